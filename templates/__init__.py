"""Jinja2 templates of the reports: layout and words only. Nothing here computes, rounds or chooses a unit."""
