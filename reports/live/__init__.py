"""Live documents: they keep their numbers in their own text, each with an invisible comment that says what it must equal.

Imports ``lecture``, ``jobs``, ``writers`` and ``page``. Start with ``language``, then ``engine`` and ``verify``.
"""
