"""A number in a format: its bits and value are those of torch's own casts, and numbers of the lecture come out with their steps."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import BadInputError
from calc.mathematics.dtypes import encode as encode_
from calc.mathematics.dtypes.encode import Encoding, decode, encode, of_bits
from calc.mathematics.dtypes.layouts import FORMATS, Float, named
from calc.mathematics.dtypes.numbers import NAN, FormatNumber, finite, infinity, read, written

AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
FLOATS = [f for f in FORMATS.values() if isinstance(f, Float)]
OF_TORCH = [f for f in FLOATS if f.stored and f.name != "tf32"]


def of(name: str, text: str) -> Encoding:
    return encode(named(name), read(text))


def number(value: float) -> FormatNumber:
    """A float of Python as the exact number that it is."""
    if math.isnan(value):
        return NAN
    negative = math.copysign(1, value) < 0
    return infinity(negative) if math.isinf(value) else FormatNumber(abs(Fraction(value)), negative)


def torch_code(layout: Float, value: float) -> int:
    """The bits that torch's cast makes. From fp32, since its casts to smaller formats go by way of it."""
    wide = torch.tensor([value], dtype=torch.float64 if layout.bits >= 32 else torch.float32)
    bits = wide.to(getattr(torch, layout.stored)).view(AS_INTEGER[layout.bits // 8]).item()
    return int(bits) % 2**layout.bits


def check(layout: Float, value: float) -> None:
    code = encode(layout, number(value))
    theirs = torch_code(layout, value)
    if code.kind == "nan":
        assert decode(layout, theirs).kind == "nan"
    elif code.overflow and layout.overflow == "largest":
        # Before 2.13, torch's cast to e4m3fn does not saturate.
        assert theirs == code.code or decode(layout, theirs).kind == "nan"
    else:
        assert theirs == code.code, (layout.name, value)


@pytest.mark.parametrize("layout", OF_TORCH, ids=lambda f: f.name)
@given(data=st.data())
def test_a_number_is_rounded_as_torch_rounds_it(layout: Float, data: st.DataObject) -> None:
    """Any fp32 number, and those near the format's own: ties, subnormals, the largest, signed zeros, infinities, NaN."""
    width = 64 if layout.bits >= 32 else 32
    check(layout, data.draw(st.floats(width=width)))
    code = data.draw(st.integers(0, 2 ** (layout.bits - 1) - 2))
    here, above = decode(layout, code).value, decode(layout, code + 1).value
    if here is not None and above is not None:
        for part in (0, Fraction(1, 2), Fraction(1, 4), Fraction(3, 4)):
            between = here + part * (above - here)
            value = between.numerator / between.denominator
            if layout.bits <= 16 and struct.unpack("f", struct.pack("f", value))[0] == value:
                check(layout, value)
                check(layout, -value)


@pytest.mark.parametrize("layout", FLOATS, ids=lambda f: f.name)
@given(data=st.data())
def test_a_number_of_a_format_is_its_own_encoding_and_lies_between_its_neighbors(layout: Float, data: st.DataObject) -> None:
    """Decode, encode: the same code. The neighbors are those of the codes beside it."""
    code = data.draw(st.integers(0, 2**layout.bits - 1))
    held = decode(layout, code)
    if held.kind == "nan":
        return
    actual = encode(layout, held)

    assert (code, held) == (actual.code, actual.value)
    assert actual.error in (0, None)
    if actual.above is not None and held.value is not None and actual.above.value is not None:
        assert encode(layout, actual.above).below == (held if held.size else encode(layout, finite(Fraction(0))).value)
        assert held.value < actual.above.value


@pytest.mark.parametrize("plant", ["truncate", "no tie to even"])
def test_a_wrong_rounding_is_noticed(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in place of rounding to the nearest even: some numbers then are not what torch makes of them."""
    wrong = {"truncate": lambda x: int(x), "no tie to even": lambda x: int(x + Fraction(1, 2))}[plant]
    monkeypatch.setattr(encode_, "round", wrong, raising=False)
    # 2049 and 2051 lie in the middle between two fp16 numbers; 2049.5 lies nearer to the upper one.
    codes = [encode(named("fp16"), number(x)).code for x in (2049, 2051, 2049.5)]

    assert codes != [torch_code(FORMATS["fp16"], x) for x in (2049, 2051, 2049.5)]


# -- numbers of the lecture ------------------------------------------------------------------------------------------------------


def test_0_15625_in_fp32_is_two_to_the_minus_3_times_1_25() -> None:
    """Sign 0, exponent 01111100 = 124 = -3 + 127, fraction 0.25 of 2**23; nothing is lost."""
    actual = of("fp32", "0.15625")

    assert (("sign", "0"), ("exponent", "01111100"), ("fraction", "01" + 21 * "0")) == actual.fields
    assert Fraction(5, 32) == actual.value.value
    assert (0, 0) == (actual.error, actual.ulps)


def test_0_01_in_fp16_is_1311_over_131072() -> None:
    """0.01 = 1.28 · 2**-7, so exponent code -7 + 15 = 8 and fraction 0.28 · 1024 = 286.72, which is rounded to 287."""
    actual = of("fp16", "0.01")

    assert ("0", f"{8:05b}", f"{287:010b}") == tuple(bits for _, bits in actual.fields)
    assert Fraction(1024 + 287, 1024 * 128) == actual.value.value
    assert Fraction(28, 100) == actual.ulps
    assert Fraction(287, 1024) / 128 + Fraction(1, 128) - Fraction(1, 100) == actual.error


def test_small_and_large_numbers_underflow_and_overflow_where_the_range_ends() -> None:
    """1e-8 is less than half of fp16's 2**-24, 1e8 more than its 65504; bf16 has both, rounded."""
    assert (True, "0", "zero") == (of("fp16", "1e-8").underflow, written(of("fp16", "1e-8").value), "zero")
    assert (True, "inf") == (of("fp16", "1e8").overflow, written(of("fp16", "1e8").value))
    assert "100139008" == written(of("bf16", "1e8").value)
    assert not of("bf16", "1e-8").underflow


def test_bf16_turns_1_001_into_1() -> None:
    """Its next number is 1.0078125: a 0.001 is 0.128 of that distance."""
    actual = of("bf16", "1.001")

    assert ("1", "1.0078125", Fraction(-128, 1000)) == (written(actual.value), written(actual.above or NAN), actual.ulps)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("fp16", "-0", "zero"), ("fp16", "6e-8", "subnormal"), ("fp16", "65519.999", "normal"), ("fp16", "65520", "infinity"),
        ("fp8-e4m3", "464", "normal"), ("fp8-e4m3fnuz", "1e9", "nan"), ("bf16", "-inf", "infinity"), ("fp32", "nan", "nan"),
        ("int4", "-8.5", "integer"), ("fp4-e2m1", "1e9", "normal"),
    ],
)  # fmt: skip
def test_the_kind_of_a_number_is_named(name: str, text: str, kind: str) -> None:
    """Zero, subnormal, normal, infinity, NaN or integer."""
    assert kind == of(name, text).kind


def test_a_tie_beyond_the_largest_overflows_as_ieee_says() -> None:
    """65520 is half a unit beyond fp16's largest: its even neighbor would be 2**16, so it is infinite."""
    assert not of("fp16", "65519.99").overflow
    assert of("fp16", "65520").overflow
    assert (False, True) == (of("fp8-e4m3", "464").overflow, of("fp8-e4m3", "464.1").overflow)


def test_rounding_twice_is_told_from_rounding_once() -> None:
    """1 + 2**-8 + 2**-26 is nearer to bf16's 1.0078125; fp32 makes a tie of it, which goes to 1."""
    actual = of("bf16", "0x1.01000004p0")

    assert "1.0078125" == written(actual.value)
    assert torch.tensor(1 + 2**-8 + 2**-30, dtype=torch.float32).to(torch.bfloat16).item() == 1
    assert actual.notes == ("a conversion through fp64 and fp32, like torch's from a Python number, rounds more than once and gives 1",)


def test_fp32_is_reached_by_way_of_fp64() -> None:
    """1 + 2**-24 + 2**-60 is above the middle of two fp32 numbers; fp64 makes the middle of it, which goes to 1."""
    actual = of("fp32", "0x1.0000010000000001p0")

    assert 1 + Fraction(1, 2**23) == actual.value.value
    assert torch.tensor(float.fromhex("0x1.0000010000000001p0"), dtype=torch.float32).item() == 1
    assert actual.notes == ("a conversion through fp64, like torch's from a Python number, rounds more than once and gives 1",)


def test_an_integer_is_kept_within_its_bounds() -> None:
    """As quantization does; 2.5 goes to the even 2."""
    assert [-8, 7, 2, 0] == [of("int4", text).value.value for text in ("-9", "100", "2.5", "-0.5")]
    assert (("sign", "1"), ("others", "000")) == of("int4", "-8").fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one", r"^cannot read 'one' as a number: write 0\.01, 1e-8, -0, 0x1\.8p3, inf or nan$"),
        ("", r"^cannot read '' as a number: .*$"),
        (".", r"^cannot read '\.' as a number: .*$"),
        ("1e99999999", r"^the exponent of '1e99999999' is out of range: use one from -2000 to 2000$"),
        (5000 * "9", r"^a number of 5000 characters is too long: at most 1200$"),
        ("١", r"^cannot read '١' as a number: .*$"),
    ],
)
def test_what_is_no_number_is_refused_in_one_line(text: str, message: str) -> None:
    """Before anything large is made of it."""
    with pytest.raises(BadInputError, match=message):
        read(text)


@pytest.mark.parametrize("text", ["0.1", "1e-8", "12.5e3", "1e22", "123456789012345678", "5.0", "0.00390625"])
def test_a_decimal_is_read_exactly(text: str) -> None:
    """Not by way of a float."""
    assert Fraction(text) == read(text).value


@given(st.floats(allow_nan=False))
def test_a_hexadecimal_float_is_read_as_python_writes_it(value: float) -> None:
    """Every bit."""
    assert number(value) == read(value.hex())


def test_what_a_format_cannot_hold_at_all_is_refused() -> None:
    """NaN where every code is a number, infinity among integers, a code with too many bits."""
    for name, text, message in (
        ("fp4", "nan", r"^fp4-e2m1 has no NaN: every code of it is a number$"),
        ("int8", "-inf", r"^int8 has integers only: -inf needs a floating-point format$"),
    ):
        with pytest.raises(BadInputError, match=message):
            of(name, text)
    with pytest.raises(BadInputError, match=r"^int4 has no code 16: its 4 bits hold 0 to 2\*\*4 - 1$"):
        decode(named("int4"), 16)


@pytest.mark.parametrize(
    ("name", "bits", "value"),
    [
        ("fp32", "0 01111110 00000000000000000000000", "0.5"),  # 2**(126 - 127)
        ("fp32", "0x3e200000", "0.15625"),
        ("fp16", "0 01000 0100011111", "0.01000213623046875"),
        ("fp16", "0b1", "0.000000059604644775390625"),  # the smallest subnormal
        ("fp8-e4m3", "0x7f", "nan"),
        ("bf16", "0xff80", "-inf"),
        ("int4", "1000", "-8"),
    ],
)
def test_bits_are_read_as_the_number_they_stand_for(name: str, bits: str, value: str) -> None:
    """In binary with blanks, or in hexadecimal."""
    actual = of_bits(named(name), bits)

    assert value == written(actual.value)
    assert actual.code == int("".join(b for _, b in actual.fields), 2)


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        ("0101", r"^fp16 has 16 bits, not 4: write all of them, or 0b before fewer$"),
        ("0x1ffff", r"^fp16 has no code 131071: its 16 bits hold 0 to 2\*\*16 - 1$"),
        ("two", r"^cannot read 'two' as bits of fp16: write its 16 bits, or 0x and hexadecimal digits$"),
        ("0x" + 90 * "f", r"^cannot read '0xf{38}' as bits of fp16: .*$"),
    ],
)
def test_what_are_no_bits_is_refused_in_one_line(bits: str, message: str) -> None:
    """With how many there should be."""
    with pytest.raises(BadInputError, match=message):
        of_bits(named("fp16"), bits)
