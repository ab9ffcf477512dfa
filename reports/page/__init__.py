"""Derivation → ``Page``: the document model of a report, with every number and word already written.

Imports ``typeset`` and ``figures``. Start with ``model`` (formulas, badges, steps, chapters) and ``report`` (the whole page), then
``build``. Each other file has the dataclasses of a section and what fills them.
"""
