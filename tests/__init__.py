"""Tests mirror the packages. A test is a claim: its name says it, its docstring is one sentence, expected numbers show their arithmetic."""
