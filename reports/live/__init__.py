"""Live documents: Markdown in which an invisible comment after a number has the expression that the number must equal.

Imports ``lecture``, ``jobs``, ``writers`` and ``page``. Start with ``language``, then ``engine`` and ``verify``.
"""
