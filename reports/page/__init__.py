"""The document model of a report, and what fills it: everything that a page says, with every number already written.

Imports ``typeset`` and ``figures``. Start with ``model``, then ``build``.
"""
