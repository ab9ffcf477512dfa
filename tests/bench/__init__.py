"""Timings, as ratios within one run: `make bench`. Nothing here is a test, and no time is asserted."""
