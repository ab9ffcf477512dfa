"""Settings of every test."""

from __future__ import annotations

from hypothesis import settings

# No deadlines: tests run on machines that others use as well, and time says nothing about what they claim. The same examples
# every time: a run that fails does so for a change of the code.
settings.register_profile("napkin", deadline=None, derandomize=True, database=None)
settings.load_profile("napkin")
