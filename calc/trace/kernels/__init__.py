"""How operators run on fake tensors: overrides for operators that torch computes with plain numbers, and the layouts of real kernels.

Start with ``fake_kernels``, which the recorder calls for every operator; ``operator_overrides`` replaces torch functions during a trace,
and ``hide_tracing`` makes libraries take the branches of a real run.
"""
