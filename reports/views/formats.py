"""A number format, and a number in it, on a terminal and as JSON."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from calc.mathematics.dtypes.encode import Encoding
from calc.mathematics.dtypes.layouts import Float, Format, IntegerFormat, element_bytes
from calc.mathematics.dtypes.limits import limits
from calc.mathematics.dtypes.numbers import FormatNumber, decimal, written
from calc.symbolic.readable import readable
from reports.typeset.numbers import MINUS
from reports.writers.terminal import Line, Terminal, bold, dim

_MOST = 20
_FIGURES = 9


def reading(value: Fraction | None) -> str:
    """All digits of an exact number where they are few, else the first nine of them behind a sign that says so."""
    if value is None:
        return "–"
    digits, exact = _digits(value)
    return digits if exact else f"≈ {digits}"


def _digits(value: Fraction) -> tuple[str, bool]:
    """The digits of ``reading``, and whether they are all."""
    with localcontext() as context:
        context.prec = _FIGURES if "/" in decimal(value) else _MOST
        quotient = Decimal(value.numerator) / Decimal(value.denominator)
        exact = Fraction(quotient) == value
        if not exact:
            context.prec = _FIGURES
            quotient = Decimal(value.numerator) / Decimal(value.denominator)
        plain = -5 <= quotient.adjusted() < _MOST
        text = f"{quotient.normalize():f}" if plain else f"{quotient.normalize():E}".replace("E+", "e").replace("E", "e")
    return text, exact


def shown(number: FormatNumber | None) -> str:
    """A number or one of the special values."""
    if number is None:
        return "none"
    value = number.value
    return written(number) if value is None or not value else reading(value)


def layout_words(layout: Format) -> str:
    """``1 sign, 8 exponent, 7 fraction``; of an integer with a sign, that it is in two's complement."""
    widths = ", ".join(f"{width} {name}" for name, width in layout.fields)
    return f"two's complement: {widths}" if _complements(layout) else widths


def _complements(layout: Format) -> bool:
    return isinstance(layout, IntegerFormat) and layout.signed


def bytes_words(layout: Format) -> str:
    """What an element takes in memory."""
    size = element_bytes(layout)
    return f"{size} {'byte' if size <= 1 else 'bytes'}"


def show(layout: Format, encoding: Encoding | None, out: Terminal) -> None:
    """The number first, where one was given; then what the format can hold."""
    about = f" ({layout.about})" if layout.about else ""
    out.line(bold(layout.name), f": {layout.bits} bits, {layout_words(layout)}; {bytes_words(layout)} an element{about}")
    out.line()
    if encoding is not None:
        _show_number(layout, encoding, out)
        return
    out.table((), [(x.name, f"{readable(x.text)} = {readable(x.put_in)}", bold(_equals(x.value)), dim(x.because)) for x in limits(layout)])


def _equals(value: Fraction) -> str:
    digits, exact = _digits(value)
    return f"{'=' if exact else '≈'} {digits}"


def _show_number(layout: Format, encoding: Encoding, out: Terminal) -> None:
    bits = " ".join(bits for _, bits in encoding.fields)
    rows: list[tuple[str, Line]] = [
        ("given", shown(encoding.number)),
        ("bits", (bold(bits), f"  ({_weights(layout, encoding)})")),
        ("value", (bold(shown(encoding.value)), f"  ({_kind(layout, encoding)})")),
    ]
    if encoding.error is not None:
        rows.append(("error", _error(encoding)))
    if encoding.value.kind != "nan":
        rows.append(("neighbors", f"{shown(encoding.below)} below, {shown(encoding.above)} above"))
    out.table((), rows)
    if encoding.steps:
        out.line()
        out.table((), [(step.name, step.text, dim(step.because)) for step in encoding.steps])
    out.line("rounded once, from the exact number, to the nearest; ties to even", style="dim")
    out.lines(*(f"note: {note}" for note in encoding.notes), style="dim")


def _weights(layout: Format, encoding: Encoding) -> str:
    """What the bits of each field come to: ``sign 1, exponent 124``; in two's complement, their addends of the value."""
    values = {name: int(bits, 2) for name, bits in encoding.fields}
    if not _complements(layout):
        return ", ".join(f"{name} {value}" for name, value in values.items())
    weight = f"weighs {MINUS}{2 ** (layout.bits - 1)}" if values["sign"] else "is 0"
    return f"two's complement; the sign bit {weight}, the others {values['others']}"


def _kind(layout: Format, encoding: Encoding) -> str:
    word = f"{encoding.kind}, overflow" if encoding.overflow else f"{encoding.kind}, underflow" if encoding.underflow else encoding.kind
    stored = isinstance(layout, Float) and encoding.kind in ("normal", "subnormal")
    return f"{word}, {encoding.value.value}" if stored and encoding.value.size.denominator != 1 else word


def _error(encoding: Encoding) -> str:
    if not encoding.error:
        return "none: the number is in the format"
    parts = [reading(encoding.error)]
    if encoding.relative is not None:
        parts.append(f"{reading(encoding.relative)} of the number")
    if encoding.ulps is not None:
        parts.append(f"{reading(encoding.ulps)} of the last place")
    return ", ".join(parts)


# -- plain data -------------------------------------------------------------------------------------------------------
# Exact numbers are texts: a fraction, and all of its decimal digits where they end.


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
