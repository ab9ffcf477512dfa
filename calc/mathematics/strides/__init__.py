"""Where the elements of a tensor lie: shape, strides and offset over one memory; which operations allocate another, and why."""
