"""Number formats: every limit that follows from a layout is torch's, and that of an enumeration of the codes."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
import torch

from calc.errors import BadInputError
from calc.mathematics.dtypes import limits as limits_
from calc.mathematics.dtypes.encode import decode, encode, largest_code
from calc.mathematics.dtypes.layouts import FORMATS, Float, IntegerFormat, element_bytes, named
from calc.mathematics.dtypes.limits import limit, limits
from calc.mathematics.dtypes.numbers import read
from calc.symbolic.algebra import evaluate_text
from calc.units import ITEM_SIZE, item_size

FLOATS = [f for f in FORMATS.values() if isinstance(f, Float)]
INTEGERS = [f for f in FORMATS.values() if isinstance(f, IntegerFormat)]
OF_TORCH = [f for f in FLOATS if f.stored and f.name != "tf32"]
SMALL = [f for f in FLOATS if f.bits <= 8] + [named("e5m6")] + [named("e3m4"), named("e6m5fn"), named("e2m4fnuz")]


def name_of(layout: Float | IntegerFormat) -> str:
    return layout.name


@pytest.mark.parametrize("layout", OF_TORCH, ids=name_of)
def test_the_limits_of_a_float_are_those_of_torch(layout: Float) -> None:
    """Largest, smallest normal, epsilon, resolution, bits; the smallest subnormal is what torch has under code 1."""
    info = torch.finfo(getattr(torch, layout.stored))
    # torch.finfo says 1/8 of float8_e5m2fnuz, but the next number after 1 is 1.25 there: two bits of fraction.
    epsilon = 0.25 if layout.name == "fp8-e5m2fnuz" else info.eps
    code_one = torch.tensor([1], dtype={1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[layout.bits // 8])

    assert Fraction(info.max) == limit(layout, "largest")
    assert Fraction(info.smallest_normal) == limit(layout, "smallest normal")
    assert Fraction(epsilon) == limit(layout, "epsilon")
    assert info.resolution == float(limit(layout, "resolution"))
    assert info.bits == layout.bits == 8 * element_bytes(layout)
    assert Fraction(code_one.view(getattr(torch, layout.stored)).double().item()) == limit(layout, "smallest subnormal")


@pytest.mark.parametrize("layout", [f for f in INTEGERS if f.stored], ids=name_of)
def test_the_limits_of_an_integer_are_those_of_torch(layout: IntegerFormat) -> None:
    """Of every integer format that torch has."""
    info = torch.iinfo(getattr(torch, layout.stored))

    assert (info.max, info.min, info.bits) == (limit(layout, "largest"), limit(layout, "smallest"), layout.bits)


def test_tf32_has_the_range_of_fp32_and_the_fraction_of_fp16() -> None:
    """torch has no name for it: 1 + 8 + 10 = 19 bits, which lie in memory as fp32."""
    tf32, fp32, fp16 = (FORMATS[name] for name in ("tf32", "fp32", "fp16"))

    assert (19, 4) == (tf32.bits, element_bytes(tf32))
    assert limit(tf32, "smallest normal") == limit(fp32, "smallest normal")
    assert limit(tf32, "epsilon") == limit(fp16, "epsilon")
    assert (2 - Fraction(1, 2**10)) * 2**127 == limit(tf32, "largest")


@pytest.mark.parametrize("layout", SMALL, ids=name_of)
def test_the_limits_are_those_found_by_writing_down_every_code(layout: Float) -> None:
    """Another route: decode all codes and look."""
    finite = [n.value for n in (decode(layout, code) for code in range(2**layout.bits)) if n.value is not None]
    positive = sorted({value for value in finite if value > 0})

    assert positive[-1] == limit(layout, "largest")
    assert positive[0] == limit(layout, "smallest subnormal")
    assert positive[positive.index(1) + 1] - 1 == limit(layout, "epsilon")
    assert len(finite) == limit(layout, "finite codes")
    assert positive[2**layout.fraction - 1] == limit(layout, "smallest normal")
    whole, held = int(limit(layout, "integers without a gap up to")), set(positive)
    assert held.issuperset(n for n in range(1, whole + 1) if n <= positive[-1])
    assert whole + 1 not in held
    gaps = [(b - a) / 2 / a for a, b in pairwise(positive[2**layout.fraction - 1 :])]
    assert max(gaps) == limit(layout, "rounding error, at most")


@pytest.mark.parametrize("layout", FLOATS, ids=name_of)
def test_the_exponent_code_of_1_is_the_bias(layout: Float) -> None:
    """1 is 2**0, so its code is the bias itself; the smallest and the largest exponent lie where the codes end."""
    assert limit(layout, "bias") == int(dict(encode(layout, read("1")).fields)["exponent"], 2)
    for name, code in (("largest exponent", largest_code(layout)), ("smallest exponent", 2**layout.fraction)):
        size = decode(layout, code).size
        power = Fraction(2) ** int(limit(layout, name))
        assert power <= size < 2 * power


@pytest.mark.parametrize("specials", ["ieee", "fn", "fnuz", "finite"])
def test_a_wrong_top_exponent_code_is_noticed(specials: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: one less than there is. The enumeration disagrees."""
    layout = next(f for f in FLOATS if f.specials == specials)
    right = limit(layout, "largest")  # kept for the other tests too: asked before the error is planted
    text, because = limits_._TOP[specials]
    monkeypatch.setitem(limits_._TOP, specials, (f"{text} - 1", because))

    planted = {step.name: step.value for step in limits_._of_float(layout)}

    assert decode(layout, largest_code(layout)).size == right != planted["largest"]


@pytest.mark.parametrize("layout", FORMATS.values(), ids=name_of)
def test_every_step_is_its_expression_with_the_numbers_put_in(layout: Float | IntegerFormat) -> None:
    """What is shown as put in comes to the value that is shown; logarithms are checked by powers of 10."""
    without = [step for step in limits(layout) if "log10" not in step.text]
    assert without
    for step in without:
        assert step.value == evaluate_text(step.put_in, {}), step
    if isinstance(layout, Float):
        kept, needed = (int(limit(layout, f"decimal digits {word}")) for word in ("kept", "needed"))
        p = layout.fraction + 1
        assert 10**kept <= 2 ** (p - 1) < 10 ** (kept + 1)
        assert 10 ** (needed - 2) < 2**p < 10 ** (needed - 1)
        assert 10 ** int(100 * limit(layout, "decimal digits, about")) <= 2 ** (100 * p)


def test_the_bytes_of_an_element_are_those_of_the_one_table() -> None:
    """Formats that torch has take what calc.units says; the others their bits, packed."""
    for layout in FORMATS.values():
        assert element_bytes(layout) == (item_size(layout.stored) if layout.stored else Fraction(layout.bits, 8))
    assert {f.stored for f in FORMATS.values() if f.stored} <= ITEM_SIZE.keys()


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("bf16", "bf16"), ("torch.bfloat16", "bf16"), ("float8_e4m3fn", "fp8-e4m3"), ("E5M2", "fp8-e5m2"), ("fp8_e4m3", "fp8-e4m3"),
        ("float32", "fp32"), ("half", "fp16"), ("e5m10", "e5m10"), ("e4m3fnuz", "fp8-e4m3fnuz"), ("e3m4", "e3m4"),
    ],
)  # fmt: skip
def test_a_format_goes_by_its_names_and_by_its_layout(written: str, name: str) -> None:
    """Ours, torch's, and a layout that no table has."""
    assert name == named(written).name


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("bf61", r"^unknown number format 'bf61': did you mean bf16\?$"),
        ("", r"^unknown number format '': .*$"),
        ("fp8", r"^fp8 is ambiguous: choose fp8-e4m3 or fp8-e5m2$"),
        ("e1m3", r"^no format e1m3: a layout has 2 to 11 exponent bits and 1 to 52 fraction bits, as fp64 has at most$"),
        ("e12m3", r"^no format e12m3: .*$"),
        ("\x1b[31m" + 90 * "x", r"^unknown number format '\\x1b\[31mx{35}': use one of fp64, .*, or a layout such as e3m4$"),
    ],
)
def test_a_format_that_is_none_is_refused_in_one_line(written: str, message: str) -> None:
    """With those that there are."""
    with pytest.raises(BadInputError, match=message):
        named(written)
