"""An audit of Stanford CS336 lecture 2: every claim of its public notes, restated, recomputed, and given a verdict.

Napkin compares what a claim states with what it derives, runs or evaluates; the verdict is the result (``verdicts``). A finding that
depends on a source or on judgment says so.

Imports ``jobs``, ``writers``, ``page`` and ``typeset``. Start with ``claim`` and ``audit``, then ``writing``.
"""
