"""``trace``, ``derive`` and ``check`` as users call them: traces as deep as the certificates demand, special cases where they are met.

Imports ``graph``, ``trace``, ``derive`` and ``measure`` (torch inside functions). Start with ``pipeline``, then ``check``;
``precomputed`` has the closed forms that travel with the package, ``sweep`` evaluates quantities over many sizes.
"""
