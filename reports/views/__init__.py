"""Answers of single commands on the terminal and as JSON.

Imports ``typeset`` and ``page``. Start with ``asked`` (``napkin ask``) or ``brief`` (``napkin derive`` of a stored form).
"""
