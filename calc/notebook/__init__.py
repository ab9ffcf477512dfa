"""How IPython shows results: ``calc`` registers the formatters where IPython runs; results do not know of them.

Imports the rooms whose results it shows, for their types alone. Start with ``formatters``.
"""
