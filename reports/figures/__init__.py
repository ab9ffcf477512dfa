"""Figures of a report. Each has a finding in words and numbers, an SVG drawing, and a table of the same numbers.

Imports ``typeset`` alone. Start with ``shapes``, then ``memory``.
"""
