"""Number formats by the names torch gives them, with their size in bytes. Torch-free."""

from __future__ import annotations

from calc.errors import BadInputError

ITEM_SIZE: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "complex128": 16, "complex64": 8, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip


def item_size(dtype: str) -> int:
    """Bytes of one element of ``dtype`` (``"float32"`` → 4)."""
    try:
        return ITEM_SIZE[dtype]
    except KeyError:
        raise BadInputError(f"unknown number format {dtype!r}: known are {', '.join(sorted(ITEM_SIZE))}") from None
