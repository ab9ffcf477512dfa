"""Number formats: what follows from a layout of sign, exponent and fraction bits, and what a given number becomes in one. Torch-free."""
