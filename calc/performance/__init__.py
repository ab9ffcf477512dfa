"""Time: lower bounds by a device's peak rates, predictions from timed operators, and measured steps.

Imports the rooms up to ``pipeline``, and ``hardware``; torch inside functions. Start with ``roofline``, then ``prediction`` and
``measuring``.
"""
