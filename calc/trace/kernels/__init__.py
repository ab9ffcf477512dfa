"""How operators run on fake tensors: overrides for those that torch computes with plain numbers, and layouts as real kernels have them.

Start with ``fake_kernels``, which the recorder calls for every operator; ``operator_overrides`` replaces torch functions for the time of
a trace, and ``hide_tracing`` makes libraries take the branches of a real run.
"""
