"""A page as HTML, Markdown, LaTeX and terminal text.

Imports ``page`` and ``typeset``. Start with ``render`` (the Jinja environment that they share), then ``html``.
"""
