"""Figures of a report: each states a finding in words and numbers, is drawn by hand as SVG, and stands on a table of the same numbers.

Imports ``typeset`` alone. Start with ``shapes``, then ``memory``.
"""
