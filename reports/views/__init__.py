"""Answers of single commands on the terminal and as JSON.

Imports ``jobs`` and the rooms that it imports. Start with ``asked`` (``napkin ask``) or ``brief`` (``napkin derive`` of a stored form).
"""
