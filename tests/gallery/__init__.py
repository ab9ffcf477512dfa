"""Reports of real models, committed under ``reports/gallery`` and made anew by ``python -m tests.gallery``."""
