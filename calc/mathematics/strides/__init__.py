"""Where the elements of a tensor lie: shape, strides and offset in one storage; which operations allocate another one, and why."""
