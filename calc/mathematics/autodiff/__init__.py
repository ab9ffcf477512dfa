"""Tensor equations over named dimensions: lifted from a traced forward, differentiated by the chain rule, run in numpy."""
