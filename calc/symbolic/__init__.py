"""Expressions in sizes: parsed once, evaluated over integers, fractions, arrays and polynomial rings, solved, and kept as display trees.

Imports the vocabulary (``errors``, ``units``, ``dimensions``) and no torch. Start with ``algebra`` (exact polynomials) and ``exact``
(values of texts), then ``tree`` (how an expression is argued).
"""
