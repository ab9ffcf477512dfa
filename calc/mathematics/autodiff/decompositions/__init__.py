"""ATen operators decomposed into primitives, one family of operators per file. Each is a definition; derivatives follow from the
primitives.
"""
