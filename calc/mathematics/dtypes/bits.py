"""A number read from its bits."""

from __future__ import annotations

from dataclasses import replace

from calc.errors import BadInputError
from calc.mathematics.dtypes.encode import Encoding, EncodingStep, decode, encode, fields_of
from calc.mathematics.dtypes.layouts import Format, IntegerFormat
from calc.mathematics.dtypes.limits import limit
from calc.mathematics.dtypes.numbers import written


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
    lines.append(
        EncodingStep("fraction", f"{'1 + ' if stored else ''}{fraction}/2**{m}", "with the leading 1" if stored else "without a leading 1")
    )
    sign = "-" if value.negative else ""
    formula = f"{sign}({'1 + ' if stored else ''}{fraction}/2**{m}) * 2**{stored - bias if stored else 1 - bias} = {written(value)}"
    return (*lines, EncodingStep("value", formula, "sign, fraction and power"))
