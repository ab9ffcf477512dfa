"""Expressions in sizes: one tree, parsed once, evaluated over integers, fractions, arrays, polynomial rings and SymPy, and written as text.

Imports only ``errors``, and no torch. Start with ``expression`` (the tree), ``parser``, ``writer`` and ``evaluation``
(what an ``Arithmetic`` is), then ``exact`` (integers and fractions) and ``algebra`` (polynomials).
"""
