"""Graph to closed forms: every quantity of a traced step, with the steps that lead to it.

Imports the vocabulary, ``symbolic``, ``rules`` and ``graph``; SymPy, never torch. Start with ``closed_forms`` (``derive``), then
``result`` (what comes out) and ``analysis`` (what every closed form is made with). This package imports nothing itself: stored forms read
``result`` and ``quantities`` without SymPy.
"""
