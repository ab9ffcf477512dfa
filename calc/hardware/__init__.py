"""Accelerators and calibrations as data: peak rates, memory, bandwidth, timed operators.

Imports the vocabulary; no torch. Start with ``accelerators`` (the catalogue), then ``calibration``.
"""
