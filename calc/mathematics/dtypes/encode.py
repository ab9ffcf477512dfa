"""Encodes a number in a format: bits, exact value, error, neighbors. Rounds once, to nearest, ties to even."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from calc.errors import BadInputError
from calc.mathematics.dtypes.layouts import FORMATS, Float, Format, IntegerFormat
from calc.mathematics.dtypes.limits import limit
from calc.mathematics.dtypes.numbers import NAN, FormatNumber, finite, infinity, written
from calc.symbolic.readable import superscript


@dataclass(frozen=True, slots=True)
class EncodingStep:
    """One step of an encoding: the name of the value, its text, and the reason."""

    name: str
    text: str
    because: str


@dataclass(frozen=True, slots=True)
class Encoding:
    """``number`` as ``code`` of a format.

    ``fields``    (name, bits) from the highest down. ``value`` is the number of the code.
    ``kind``      zero, subnormal, normal, integer, infinity or nan.
    ``below`` and ``above`` are the neighboring numbers, ``None`` where there is none.
    ``spacing``   the unit in the last place at the number given, where it is in range: the distance of two numbers of the format there.
    """

    format: str
    number: FormatNumber
    code: int
    fields: tuple[tuple[str, str], ...]
    value: FormatNumber
    kind: str
    below: FormatNumber | None
    above: FormatNumber | None
    spacing: Fraction | None
    overflow: bool
    underflow: bool
    steps: tuple[EncodingStep, ...]
    notes: tuple[str, ...]

    @property
    def error(self) -> Fraction | None:
        """Value less number given, where both are finite."""
        a, b = self.value.value, self.number.value
        return None if a is None or b is None else a - b

    @property
    def relative(self) -> Fraction | None:
        """The relative error."""
        error, number = self.error, self.number.value
        return None if error is None or not number else error / abs(number)

    @property
    def ulps(self) -> Fraction | None:
        """The error in units in the last place."""
        return None if self.error is None or self.spacing is None or self.overflow else self.error / self.spacing


# -- floating point ------------------------------------------------------------------------------------------------------------


def largest_code(layout: Float) -> int:
    """The code of the largest number, without its sign: codes of one sign are in the order of their numbers."""
    e, m = layout.exponent, layout.fraction
    all_ones = (1 << (e + m)) - 1
    return {"ieee": all_ones - (1 << m), "fn": all_ones - 1}.get(layout.specials, all_ones)


def decode(layout: Format, code: int) -> FormatNumber:
    """The number of a code. Raises ``BadInputError`` for codes outside the format."""
    if not 0 <= code < 2**layout.bits:
        raise BadInputError(f"{layout.name} has no code {str(code)[:40]}: its {layout.bits} bits hold 0 to 2**{layout.bits} - 1")
    if isinstance(layout, IntegerFormat):
        return finite(Fraction(code - 2**layout.bits if layout.signed and code >> (layout.bits - 1) else code))
    negative, magnitude = bool(code >> (layout.bits - 1)), code % 2 ** (layout.bits - 1)
    if layout.specials == "fnuz" and negative and not magnitude:
        return NAN
    if magnitude > largest_code(layout):
        return infinity(negative) if layout.specials == "ieee" and magnitude == largest_code(layout) + 1 else NAN
    return FormatNumber(_magnitude(layout, magnitude), negative)


def _magnitude(layout: Float, code: int) -> Fraction:
    stored, fraction = divmod(code, 2**layout.fraction)
    part = Fraction(fraction, 2**layout.fraction)
    emin = int(limit(layout, "smallest exponent"))
    return (1 + part) * Fraction(2) ** (stored - 1 + emin) if stored else part * Fraction(2) ** emin


def encode(layout: Format, number: FormatNumber) -> Encoding:
    """``number`` rounded once into a format. An integer format refuses infinities and NaN."""
    return _integer(layout, number) if isinstance(layout, IntegerFormat) else _float(layout, number)


def _float(layout: Float, number: FormatNumber) -> Encoding:
    spacing = _spacing(layout, number.size) if number.kind == "finite" else None
    magnitude, overflow = _code(layout, number, spacing)
    sign = int(number.negative and number.kind != "nan" and not (layout.specials == "fnuz" and magnitude in (0, _nan(layout))))
    code = magnitude if layout.specials == "fnuz" and magnitude == _nan(layout) else (sign << (layout.bits - 1)) | magnitude
    value = decode(layout, code)
    kind = value.kind if value.kind != "finite" else _kind(layout, magnitude)
    underflow = kind == "zero" and number.size > 0
    below, above = _neighbors(layout, value)
    return Encoding(
        layout.name, number, code, fields_of(layout, code), value, kind, below, above, None if overflow else spacing, overflow, underflow,
        _steps(layout, number, magnitude, spacing, overflow), _notes(layout, number, code, overflow),
    )  # fmt: skip


def _code(layout: Float, number: FormatNumber, spacing: Fraction | None) -> tuple[int, bool]:
    """The code without its sign, and whether the number is beyond the largest."""
    top = largest_code(layout)
    if number.kind == "nan":
        return _nan(layout), False
    if spacing is None:
        return _beyond(layout), layout.specials != "ieee"
    # Exponent code and fraction are one integer: rounding up to the next power of two carries into the exponent.
    binades = _binade(layout, number.size) - int(limit(layout, "smallest exponent"))
    unit_code = round(number.size / spacing) + (binades << layout.fraction)
    return (unit_code, False) if unit_code <= top else (_beyond(layout), True)


def _beyond(layout: Float) -> int:
    match layout.overflow:
        case "infinity":
            return largest_code(layout) + 1
        case "nan":
            return _nan(layout)
    return largest_code(layout)


def _nan(layout: Float) -> int:
    """The usual quiet NaN; raises for a format without NaN."""
    match layout.specials:
        case "ieee":
            return largest_code(layout) + 1 + (1 << (layout.fraction - 1))
        case "fn":
            return largest_code(layout) + 1
        case "fnuz":
            return 1 << (layout.bits - 1)
    raise BadInputError(f"{layout.name} has no NaN: every code of it is a number")


def _binade(layout: Float, size: Fraction) -> int:
    """The exponent under which a number is written: that of the power of two at or below it, or the smallest there is."""
    emin = int(limit(layout, "smallest exponent"))
    if size == 0:
        return emin
    power = size.numerator.bit_length() - size.denominator.bit_length()
    return max(power if Fraction(2) ** power <= size else power - 1, emin)


def _spacing(layout: Float, size: Fraction) -> Fraction:
    return Fraction(2) ** (_binade(layout, size) - layout.fraction)


def _kind(layout: Float, magnitude: int) -> str:
    return "zero" if not magnitude else "subnormal" if magnitude < 2**layout.fraction else "normal"


def _neighbors(layout: Float, value: FormatNumber) -> tuple[FormatNumber | None, FormatNumber | None]:
    if value.kind == "nan":
        return None, None
    top = largest_code(layout)
    at = top + 1 if value.kind == "infinity" else _rest_of(layout, value.size)
    signed = -at if value.negative else at
    return _at(layout, signed - 1, top), _at(layout, signed + 1, top)


def _at(layout: Float, signed: int, top: int) -> FormatNumber | None:
    """The number at a distance of some codes from 0, or None."""
    if abs(signed) > top:
        return infinity(signed < 0) if layout.specials == "ieee" and abs(signed) == top + 1 else None
    return FormatNumber(_magnitude(layout, abs(signed)), signed < 0)


def _rest_of(layout: Float, size: Fraction) -> int:
    emin = int(limit(layout, "smallest exponent"))
    return int(size / _spacing(layout, size)) + ((_binade(layout, size) - emin) << layout.fraction)


def fields_of(layout: Format, code: int) -> tuple[tuple[str, str], ...]:
    """(name, bits) of a code from the highest down."""
    bits, fields = format(code, f"0{layout.bits}b"), []
    for name, width in layout.fields:
        fields.append((name, bits[:width]))
        bits = bits[width:]
    return tuple(fields)


_BECOMES = {"infinity": "becomes infinity", "nan": "becomes NaN", "largest": "stays at the largest"}


def _steps(layout: Float, number: FormatNumber, magnitude: int, spacing: Fraction | None, overflow: bool) -> tuple[EncodingStep, ...]:
    if spacing is None or not number.size:
        return ()
    bias, e = int(limit(layout, "bias")), _binade(layout, number.size)
    normal = number.size >= Fraction(2) ** e
    scaled = number.size / spacing
    range_ = f"{_power(e)} ≤ |x| < {_power(e + 1)}" if normal else f"|x| < {_power(e)}"
    why = "the power of two at or below the number" if normal else "the smallest exponent: there is no leading 1, the number is subnormal"
    lines = [EncodingStep("exponent", f"{range_}, so the exponent is {e}", why)]
    if normal and not overflow:
        lines.append(EncodingStep("exponent code", f"{e} + {bias} = {e + bias} = {e + bias:0{layout.exponent}b}", f"the bias is {bias}"))
    of_last_place = f"|x| / {_power(e - layout.fraction)} = {_short(scaled)}"
    lines.append(EncodingStep("in units of the last place", of_last_place, "the spacing of numbers there"))
    rounded = round(scaled)
    tie = "ties to even" if scaled.denominator == 2 else "to the nearest"
    lines.append(EncodingStep("rounded", f"{rounded}", tie if scaled.denominator != 1 else "nothing to round: the number is in the format"))
    if overflow:
        at = f"{rounded}·{_power(e - layout.fraction)} is beyond the largest, {written(FormatNumber(limit(layout, 'largest')))}"
        lines.append(EncodingStep("overflow", at, _BECOMES[layout.overflow]))
        return tuple(lines)
    stored, fraction = divmod(magnitude, 2**layout.fraction)
    shown = f"{fraction} = {fraction:0{layout.fraction}b}"
    carried = f"exponent code {stored}, " if stored != (e + bias if normal else 0) else ""
    why = "the leading 1 is not stored" if stored else "without a leading 1"
    lines.append(EncodingStep("fraction", f"{carried}{shown}", f"{why}; the rounding carries into the exponent" if carried else why))
    return tuple(lines)


def _power(exponent: int) -> str:
    return f"2{superscript(exponent)}"


def _short(value: Fraction) -> str:
    """All digits where they are few, else the first of them."""
    text = written(finite(value))
    if "/" in text or len(text) > 24:
        integer, part = divmod(value, 1)
        return f"{integer}.{int(part * 10**6):06d}…"
    return text


_SATURATES = (
    "it has no infinity: a number beyond the largest becomes the largest here, as in saturating OCP conversions;"
    " non-saturating ones give NaN"
)


def _notes(layout: Float, number: FormatNumber, code: int, overflow: bool) -> tuple[str, ...]:
    notes = []
    if overflow and layout.overflow == "largest":
        notes.append(_SATURATES)
    if overflow and layout.overflow == "nan":
        notes.append("it has no infinity: a number beyond the largest becomes NaN")
    between = _wider(layout)
    twice = _by_way_of(between, layout, number)
    if twice is not None and twice != code:
        value = written(decode(layout, twice))
        notes.append(
            f"a conversion through {' and '.join(between)}, like torch's from a Python number, rounds more than once and gives {value}"
        )
    return tuple(notes)


def _wider(layout: Float) -> tuple[str, ...]:
    """The dtypes through which torch converts a Python number: it is fp64, and small formats are cast from fp32."""
    return ("fp64", "fp32") if layout.bits < 32 else ("fp64",) if layout.bits < 64 else ()


def _by_way_of(names: tuple[str, ...], layout: Float, number: FormatNumber) -> int | None:
    """The code after conversion through other formats, if any."""
    if number.kind != "finite" or not names:
        return None
    for name in names:
        between = FORMATS[name]
        assert isinstance(between, Float)
        number = decode(between, _signed_code(between, number))
    return _signed_code(layout, number)


def _signed_code(layout: Float, number: FormatNumber) -> int:
    magnitude, _ = _code(layout, number, _spacing(layout, number.size) if number.kind == "finite" else None)
    if layout.specials == "fnuz" and magnitude in (0, _nan(layout)):
        return magnitude
    return (int(number.negative) << (layout.bits - 1)) | magnitude


# -- integers --------------------------------------------------------------------------------------------------------------------


def _integer(layout: IntegerFormat, number: FormatNumber) -> Encoding:
    exact = number.value
    if exact is None:
        raise BadInputError(f"{layout.name} has integers only: {written(number)} needs a floating-point format")
    low, high = limit(layout, "smallest"), limit(layout, "largest")
    nearest = Fraction(round(exact))
    clamped = min(max(nearest, low), high)
    code = int(clamped) % 2**layout.bits
    overflow = clamped != nearest
    steps = [EncodingStep("rounded", str(nearest), "to the nearest integer, ties to even")]
    if overflow:
        steps.append(EncodingStep("overflow", f"{nearest} is outside {low} to {high}", "clamped to the nearest bound, as in quantization"))
    notes = ("a cast in C or torch drops the fraction instead, and is undefined out of range",) if overflow or nearest != exact else ()
    return Encoding(
        layout.name, number, code, fields_of(layout, code), finite(clamped), "zero" if not clamped else "integer",
        None if clamped == low else finite(clamped - 1), None if clamped == high else finite(clamped + 1), Fraction(1),
        overflow, clamped == 0 and exact != 0, tuple(steps), notes,
    )  # fmt: skip


# -- a number read from its bits --------------------------------------------------------------------------------------


def of_bits(layout: Format, text: str) -> Encoding:
    """The number encoded by bits: ``0 01000 0100011111`` (as many as the format has), ``0x211f`` or ``0b…``."""
    code = _bits(layout, text)
    encoding = encode(layout, decode(layout, code))
    return replace(encoding, code=code, fields=fields_of(layout, code), steps=_decoding(layout, code), notes=())


def _bits(layout: Format, text: str) -> int:
    plain = text.replace(" ", "").replace("_", "").lower()
    base = 16 if plain.startswith("0x") else 2
    digits = plain[2:] if plain[:2] in ("0x", "0b") else plain
    allowed = "01" if base == 2 else "0123456789abcdef"
    if not digits or len(digits) > layout.bits or any(c not in allowed for c in digits):
        raise BadInputError(
            f"cannot read {text[:40]!r} as bits of {layout.name}: write its {layout.bits} bits, or 0x and hexadecimal digits"
        )
    if plain == digits and len(digits) != layout.bits:
        raise BadInputError(f"{layout.name} has {layout.bits} bits, not {len(digits)}: write all of them, or 0b before fewer")
    return int(digits, base)


def _decoding(layout: Format, code: int) -> tuple[EncodingStep, ...]:
    """The steps that decode a finite number."""
    value = decode(layout, code)
    if isinstance(layout, IntegerFormat) or value.kind != "finite":
        return ()
    magnitude = code % (1 << (layout.bits - 1))
    stored, fraction = divmod(magnitude, 1 << layout.fraction)
    bias, m = int(limit(layout, "bias")), layout.fraction
    power = f"{stored} - {bias} = {stored - bias}" if stored else f"1 - {bias} = {1 - bias}"
    lines = [
        EncodingStep(
            "exponent", power, "the code minus the bias" if stored else "code 0 is for 0 and subnormals, with the exponent of code 1"
        )
    ]
    part = f"{'1 + ' if stored else ''}{fraction}/{_power(m)}"
    lines.append(EncodingStep("fraction", part, "with the leading 1" if stored else "without a leading 1"))
    sign = "-" if value.negative else ""
    formula = f"{sign}({part})·{_power(stored - bias if stored else 1 - bias)} = {written(value)}"
    return (*lines, EncodingStep("value", formula, "sign, fraction and power"))
