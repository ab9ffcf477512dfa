"""Settings of every test."""

from __future__ import annotations

from hypothesis import settings

# No deadlines: tests run on machines that others use as well, and time says nothing about what they claim.
settings.register_profile("napkin", deadline=None)
settings.load_profile("napkin")
