"""ATen operators written out in primitives, one family of operators per file. Each is its definition; none holds a derivative."""
