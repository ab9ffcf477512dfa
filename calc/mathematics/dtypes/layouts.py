"""The layouts of number formats, by name. Everything else about a format follows from its layout.

Sources: IEEE 754-2019 (fp64, fp32, fp16); NVIDIA A100 whitepaper 2020 (tf32); Micikevicius et al. 2022, FP8 Formats for Deep Learning,
arXiv:2209.05433 (e4m3, e5m2); Noune et al. 2022, arXiv:2206.02915 (the fnuz pair); OCP Microscaling Formats 1.0, 2023 (e2m1, e2m3, e3m2).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from calc.errors import BadInputError
from calc.units import item_size

# ieee: the highest exponent code is reserved for infinities and NaN. fn: it is used, and only the code of all ones is NaN.
# fnuz: it is used, and NaN is the code that would be -0. finite: every code is a number.
Specials = Literal["ieee", "fn", "fnuz", "finite"]


@dataclass(frozen=True, slots=True)
class Float:
    """One sign bit, ``exponent`` and ``fraction`` bits. ``stored`` is the format of torch in which an element lies in memory.

    ``overflow`` is what a number beyond the largest becomes: infinity, nan or largest.
    """

    name: str
    exponent: int
    fraction: int
    specials: Specials = "ieee"
    stored: str = ""
    overflow: Literal["infinity", "nan", "largest"] = "infinity"
    about: str = ""

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """The bits from the highest down."""
        return ("sign", 1), ("exponent", self.exponent), ("fraction", self.fraction)


@dataclass(frozen=True, slots=True)
class IntegerFormat:
    """An integer of ``bits``, in two's complement where it has a sign."""

    name: str
    bits: int
    signed: bool = True
    stored: str = ""
    about: str = ""

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """The bits from the highest down. In two's complement the sign bit has a negative weight."""
        return (("sign", 1), ("others", self.bits - 1)) if self.signed else (("magnitude", self.bits),)


Format = Float | IntegerFormat

_NAMED: tuple[Format, ...] = (
    Float("fp64", 11, 52, stored="float64", about="IEEE 754 binary64"),
    Float("fp32", 8, 23, stored="float32", about="IEEE 754 binary32"),
    Float("tf32", 8, 10, stored="float32", about="fp32's range with fp16's fraction, inside matmuls only: memory holds fp32"),
    Float("bf16", 8, 7, stored="bfloat16", about="the upper half of fp32"),
    Float("fp16", 5, 10, stored="float16", about="IEEE 754 binary16"),
    Float("fp8-e4m3", 4, 3, "fn", "float8_e4m3fn", "largest", "no infinities: all ones are NaN"),
    Float("fp8-e5m2", 5, 2, stored="float8_e5m2", about="as in IEEE 754"),
    Float("fp8-e4m3fnuz", 4, 3, "fnuz", "float8_e4m3fnuz", "nan", "no infinities and no -0, whose code is NaN"),
    Float("fp8-e5m2fnuz", 5, 2, "fnuz", "float8_e5m2fnuz", "nan", "no infinities and no -0, whose code is NaN"),
    Float("fp6-e3m2", 3, 2, "finite", "", "largest", "every code is a number"),
    Float("fp6-e2m3", 2, 3, "finite", "", "largest", "every code is a number"),
    Float("fp4-e2m1", 2, 1, "finite", "", "largest", "every code is a number; two in a byte"),
    IntegerFormat("int64", 64, stored="int64"),
    IntegerFormat("int32", 32, stored="int32"),
    IntegerFormat("int16", 16, stored="int16"),
    IntegerFormat("int8", 8, stored="int8"),
    IntegerFormat("uint8", 8, signed=False, stored="uint8"),
    IntegerFormat("int4", 4, about="two in a byte"),
    IntegerFormat("uint4", 4, signed=False, about="two in a byte"),
)
FORMATS: dict[str, Format] = {f.name: f for f in _NAMED}
_SHORT = {"e4m3": "fp8-e4m3", "e4m3fn": "fp8-e4m3", "fp8-e4m3fn": "fp8-e4m3", "half": "fp16", "double": "fp64", "fp4": "fp4-e2m1"}
_SHORT |= {"float": "fp32", "single": "fp32", "long": "int64", "int": "int32", "short": "int16", "bfloat": "bf16"}
_SEVERAL = {"fp8": "fp8-e4m3 or fp8-e5m2", "float8": "fp8-e4m3 or fp8-e5m2", "fp6": "fp6-e3m2 or fp6-e2m3"}
_GENERAL = re.compile(r"(?:fp\d{1,2}-)?e(\d{1,2})m(\d{1,2})(fnuz|fn|)", re.ASCII)
_WIDEST = (11, 52)


def element_bytes(layout: Format) -> Fraction:
    """Bytes that an element takes in memory: torch's own where it has the format, else its bits packed."""
    return Fraction(item_size(layout.stored)) if layout.stored else Fraction(layout.bits, 8)


def named(name: str) -> Format:
    """A format by its name here, by torch's, or by its layout: ``bf16``, ``float8_e5m2``, ``e3m4``, ``e4m3fn``."""
    plain = name.lower().removeprefix("torch.").replace("_", "-")
    plain = _SHORT.get(plain, plain)
    for layout in _NAMED:
        torch_name = layout.stored.replace("_", "-")
        if plain == layout.name or (layout.stored and torch_name == plain and layout.name != "tf32"):
            return layout
    if plain in _SEVERAL:
        raise BadInputError(f"{plain} is ambiguous: choose {_SEVERAL[plain]}")
    general = _GENERAL.fullmatch(plain)
    if general is not None:
        return _from_layout(plain, int(general[1]), int(general[2]), general[3])
    near = difflib.get_close_matches(plain, [*FORMATS, *_SHORT], n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(FORMATS)}, or a layout such as e3m4"
    raise BadInputError(f"unknown number format {name[:40]!r}: {hint}")


def _from_layout(name: str, exponent: int, fraction: int, specials: str) -> Float:
    """A format outside the table: laid out as in IEEE 754, unless the name ends in fn or fnuz."""
    same = [f for f in _NAMED if isinstance(f, Float) and f.name.endswith(f"-e{exponent}m{fraction}{specials}")]
    if same:
        return same[0]
    if not (2 <= exponent <= _WIDEST[0] and 1 <= fraction <= _WIDEST[1]):
        raise BadInputError(
            f"no format {name}: a layout has 2 to {_WIDEST[0]} exponent bits and 1 to {_WIDEST[1]} fraction bits, as fp64 has at most"
        )
    convention: Specials = "fn" if specials == "fn" else "fnuz" if specials == "fnuz" else "ieee"
    overflow: Literal["infinity", "nan", "largest"] = "infinity" if convention == "ieee" else "nan" if convention == "fnuz" else "largest"
    return Float(f"e{exponent}m{fraction}{specials}", exponent, fraction, convention, overflow=overflow, about="a layout of your own")
