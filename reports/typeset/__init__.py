"""Mathematics, numbers and text, typeset for each format; every text of a user passes an escaper here.

Imports ``calc`` alone. Start with ``numbers`` (the one place where numbers become text) and ``escape``.
"""
