"""A format, and a number in it, as plain data. Exact numbers are texts: a fraction, and all of its decimal digits where they end."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from calc.mathematics.dtypes.encode import Encoding
from calc.mathematics.dtypes.layouts import Float, Format, element_bytes
from calc.mathematics.dtypes.limits import limits
from calc.mathematics.dtypes.numbers import FormatNumber, decimal, written


def document(layout: Format, encoding: Encoding | None = None) -> dict[str, Any]:
    """The ``"schema": 1`` document of a format; with ``encoding``, of a number in it too."""
    fields = {"schema": 1, "format": _format(layout), "limits": [{**_value(x.value), "name": x.name, **_text(x)} for x in limits(layout)]}
    return fields if encoding is None else {**fields, "encoding": _encoding(encoding)}


def _format(layout: Format) -> dict[str, Any]:
    return {
        "name": layout.name,
        "bits": layout.bits,
        "fields": [{"name": name, "bits": width} for name, width in layout.fields],
        "special_values": layout.specials if isinstance(layout, Float) else None,
        "bytes": str(element_bytes(layout)),
        "torch": layout.stored or None,
        "about": layout.about,
    }


def _text(step: Any) -> dict[str, str]:
    return {"expr": step.text, "put_in": step.put_in, "because": step.because}


def _value(value: Fraction | None) -> dict[str, str | None]:
    if value is None:
        return {"value": None, "decimal": None}
    digits = decimal(value)
    return {"value": str(value), "decimal": None if "/" in digits else digits}


def _number(number: FormatNumber | None) -> dict[str, str | None] | None:
    """Infinities, NaN and the sign of 0 are in ``decimal``; their ``value`` is no rational and null."""
    if number is None:
        return None
    value = number.value
    return {"value": None if value is None else str(value), "decimal": written(number)}


def _encoding(encoding: Encoding) -> dict[str, Any]:
    return {
        "given": _number(encoding.number),
        "code": str(encoding.code),
        "bits": "".join(bits for _, bits in encoding.fields),
        "fields": [{"name": name, "bits": bits, "value": str(int(bits, 2))} for name, bits in encoding.fields],
        "value": _number(encoding.value),
        "kind": encoding.kind,
        "exact": encoding.error == 0 if encoding.error is not None else None,
        "error": {"absolute": _value(encoding.error), "relative": _value(encoding.relative), "ulps": _value(encoding.ulps)},
        "below": _number(encoding.below),
        "above": _number(encoding.above),
        "spacing": _value(encoding.spacing),
        "overflow": encoding.overflow,
        "underflow": encoding.underflow,
        "subnormal": encoding.kind == "subnormal",
        "steps": [{"name": s.name, "text": s.text, "because": s.because} for s in encoding.steps],
        "notes": list(encoding.notes),
    }
