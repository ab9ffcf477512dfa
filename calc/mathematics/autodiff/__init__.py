"""Tensor equations over named dimensions: converted from a traced forward, differentiated by the chain rule, run in numpy."""
