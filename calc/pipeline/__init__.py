"""``trace``, ``derive`` and ``check`` as users call them: traces as deep as the certificates require, special cases where needed.

Imports ``graph``, ``trace``, ``derive`` and ``measure`` (torch inside functions). Start with ``pipeline``, then ``check``; ``precomputed``
has the bundled closed forms, ``sweep`` evaluates quantities over many sizes.
"""
