"""The training step that is run: which parts are recomputed, in which dtypes, and which optimizer steps what.

Tracing and measuring both build their step here, so the two cannot differ by accident. Nothing here counts. Imports torch and the
top-level files of this package. Start at ``optimizers.build``.
"""
