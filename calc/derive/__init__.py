"""Graph to closed forms: every quantity of a traced step, with the steps that derive it.

Imports the vocabulary, ``symbolic``, ``rules`` and ``graph``; SymPy, never torch. Start with ``closed_forms`` (``derive``), then ``result``
(what a derivation contains) and ``analysis`` (how closed forms are computed). This package imports nothing itself: stored forms read
``result`` and ``quantities`` without SymPy.
"""
