"""What a trace infers about values: affine indices, constants, data-dependent sizes, doubles, integers and lengths.

These modules use symbolic sizes and ``hide_tracing`` and run no operator override. Start with ``constant_propagation``, which evaluates
tensors that depend on sizes and constants alone, and ``data_dependence``, which bounds the others.
"""
