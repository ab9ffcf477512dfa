"""The lecture audited: every claim of public notes on Stanford CS336 lecture 2, recomputed, with a verdict that follows from numbers.

A claim is restated in our own words. What it says is compared with what the product derives, runs or evaluates; the verdict is
the outcome of that comparison (``verdicts``). Where something rests on a source or on judgement instead, the finding says so.

Imports ``jobs``, ``writers``, ``page`` and ``typeset``. Start with ``claim`` and ``audit``, then ``writing``.
"""
