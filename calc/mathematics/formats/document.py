"""A format, and a number in it, as plain data. Exact numbers are texts: a fraction, and all of its decimal digits where they end."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from calc.mathematics.formats.encode import Encoding
from calc.mathematics.formats.layouts import Float, Format, element_bytes
from calc.mathematics.formats.limits import limits
from calc.mathematics.formats.numbers import Number, decimal, written


def document(layout: Format, encoding: Encoding | None = None) -> dict[str, Any]:
    """The ``"schema": 1`` document of a format; with ``encoding``, of a number in it too."""
    made = {"schema": 1, "format": _format(layout), "limits": [{**_value(x.value), "name": x.name, **_text(x)} for x in limits(layout)]}
    return made if encoding is None else {**made, "encoding": _encoding(encoding)}


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


def _text(found: Any) -> dict[str, str]:
    return {"expr": found.text, "put_in": found.put_in, "because": found.because}


def _value(value: Fraction | None) -> dict[str, str | None]:
    if value is None:
        return {"value": None, "decimal": None}
    digits = decimal(value)
    return {"value": str(value), "decimal": None if "/" in digits else digits}


def _number(number: Number | None) -> dict[str, str | None] | None:
    """Infinities, NaN and the sign of 0 are in ``decimal``; their ``value`` is no rational and null."""
    if number is None:
        return None
    value = number.value
    return {"value": None if value is None else str(value), "decimal": written(number)}


def _encoding(found: Encoding) -> dict[str, Any]:
    return {
        "given": _number(found.given),
        "code": str(found.code),
        "bits": "".join(bits for _, bits in found.fields),
        "fields": [{"name": name, "bits": bits, "value": str(int(bits, 2))} for name, bits in found.fields],
        "value": _number(found.value),
        "kind": found.kind,
        "exact": found.error == 0 if found.error is not None else None,
        "error": {"absolute": _value(found.error), "relative": _value(found.relative), "ulps": _value(found.ulps)},
        "below": _number(found.below),
        "above": _number(found.above),
        "spacing": _value(found.spacing),
        "overflow": found.overflow,
        "underflow": found.underflow,
        "subnormal": found.kind == "subnormal",
        "steps": [{"name": s.name, "text": s.text, "because": s.because} for s in found.steps],
        "notes": list(found.notes),
    }
