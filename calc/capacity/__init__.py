"""Capacity questions and steps on several devices: how long, how many, what fits, what it costs.

Imports the rooms up to ``pipeline``, and ``hardware``; no torch of its own. Start with ``questions`` (systems of equations solved for
any variable) and ``sharding`` (memory, traffic and time of a layout).
"""
