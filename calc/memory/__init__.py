"""Memory beyond a training step: keys and values in inference, checkpoint files, bytes per parameter, CUDA memory.

Imports the rooms up to ``pipeline``. Start with ``inference``.
"""
