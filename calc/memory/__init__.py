"""What a model keeps besides a training step: keys and values in inference, checkpoint files, bytes of each parameter, CUDA memory.

Imports the rooms up to ``pipeline``. Start with ``inference``.
"""
