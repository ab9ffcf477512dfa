"""Number formats: limits from the sign, exponent and fraction bits, and the encoding of a number. Torch-free."""
