"""The mathematics beside the accounting: gradients, update rules, initialization, einsum, strides and number formats.

Each is derived, then compared with torch. Imports the rooms up to ``pipeline``. Start with ``gradients`` (what ``napkin gradients``
computes).
"""
