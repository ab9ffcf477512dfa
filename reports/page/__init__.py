"""Derivation → ``Page``: the document model of a report, with every number and word already written.

Imports ``typeset`` and ``figures``. Start with ``model``, then ``build``.
"""
