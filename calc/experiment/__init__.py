"""The training step that is run: which parts are recomputed, in which dtypes, and which optimizer steps what.

Both routes build the same experiment here, the one to trace it and the other to measure it, so that they can neither differ by accident
nor be wrong together by two copies of one mistake; nothing here counts. Imports torch, and of this package the loose files. Start at
``optimizers.build``.
"""
