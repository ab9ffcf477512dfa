"""A number format, and a number in it, on a terminal."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.mathematics.formats.encode import Encoding
from calc.mathematics.formats.layouts import Float, Format, IntegerFormat, element_bytes
from calc.mathematics.formats.limits import limits
from calc.mathematics.formats.numbers import FormatNumber, decimal, written
from reports.typeset.numbers import MINUS

_MOST = 20
_FIGURES = 9


def reading(value: Fraction | None) -> str:
    """All digits of an exact number where they are few, else the first nine of them behind a sign that says so."""
    if value is None:
        return "–"
    with localcontext() as context:
        context.prec = _FIGURES if "/" in decimal(value) else _MOST
        found = Decimal(value.numerator) / Decimal(value.denominator)
        exact = Fraction(found) == value
        if not exact:
            context.prec = _FIGURES
            found = Decimal(value.numerator) / Decimal(value.denominator)
        plain = -5 <= found.adjusted() < _MOST
        text = f"{found.normalize():f}" if plain else f"{found.normalize():E}".replace("E+", "e").replace("E", "e")
    return text if exact else f"≈ {text}"


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


def show(layout: Format, found: Encoding | None, out: Console) -> None:
    """The number first, where one was given; then what the format can hold."""
    about = f" ({layout.about})" if layout.about else ""
    out.print(
        Text.assemble((layout.name, "bold"), f": {layout.bits} bits, {layout_words(layout)}; {bytes_words(layout)} an element{about}")
    )
    out.print()
    if found is not None:
        _show_number(layout, found, out)
        return
    table = Table.grid(padding=(0, 3))
    for wraps in (False, False, False, True):
        table.add_column(no_wrap=not wraps)
    for x in limits(layout):
        table.add_row(Text(x.name), Text(f"{x.text} = {x.put_in}"), Text(_equals(x.value), style="bold"), Text(x.because, style="dim"))
    out.print(table)


def _equals(value: Fraction) -> str:
    found = reading(value)
    return found if found.startswith("≈") else f"= {found}"


def _show_number(layout: Format, found: Encoding, out: Console) -> None:
    table = Table.grid(padding=(0, 3))
    table.add_row(Text("given"), Text(shown(found.given)))
    bits = " ".join(bits for _, bits in found.fields)
    table.add_row(Text("bits"), Text.assemble((bits, "bold"), f"  ({_weights(layout, found)})"))
    table.add_row(Text("value"), Text.assemble((shown(found.value), "bold"), f"  ({_kind(layout, found)})"))
    if found.error is not None:
        table.add_row(Text("error"), Text(_error(found)))
    if found.value.kind != "nan":
        table.add_row(Text("neighbours"), Text(f"{shown(found.below)} below, {shown(found.above)} above"))
    out.print(table)
    if found.steps:
        out.print()
        steps = Table.grid(padding=(0, 3))
        for step in found.steps:
            steps.add_row(Text(step.name), Text(step.text), Text(step.because, style="dim"))
        out.print(steps)
    out.print(Text("rounded once, from the exact number, to the nearest; a tie goes to the even one", style="dim"))
    for note in found.notes:
        out.print(Text(f"note: {note}", style="dim"))


def _weights(layout: Format, found: Encoding) -> str:
    """What the bits of each field come to: ``sign 1, exponent 124``; in two's complement, their addends of the value."""
    values = {name: int(bits, 2) for name, bits in found.fields}
    if not _complements(layout):
        return ", ".join(f"{name} {value}" for name, value in values.items())
    weight = f"weighs {MINUS}{2 ** (layout.bits - 1)}" if values["sign"] else "is 0"
    return f"two's complement; the sign bit {weight}, the others {values['others']}"


def _kind(layout: Format, found: Encoding) -> str:
    word = f"{found.kind}, overflow" if found.overflow else f"{found.kind}, underflow" if found.underflow else found.kind
    stored = isinstance(layout, Float) and found.kind in ("normal", "subnormal")
    return f"{word}, {found.value.value}" if stored and found.value.size.denominator != 1 else word


def _error(found: Encoding) -> str:
    if not found.error:
        return "none: the number is in the format"
    parts = [reading(found.error)]
    if found.relative is not None:
        parts.append(f"{reading(found.relative)} of the number")
    if found.ulps is not None:
        parts.append(f"{reading(found.ulps)} of the last place")
    return ", ".join(parts)
