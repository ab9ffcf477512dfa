"""Measurements on a CUDA machine, unattended: ``python -m tests.gpu``."""
