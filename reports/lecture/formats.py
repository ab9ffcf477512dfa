"""Claims on number formats of 16 bits and more: layouts, ranges, encodings; derived from the layout and compared with torch."""

from __future__ import annotations

from fractions import Fraction

from calc.errors import BadInputError
from calc.mathematics.dtypes.encode import Encoding, encode
from calc.mathematics.dtypes.layouts import Float, named
from calc.mathematics.dtypes.limits import limit
from calc.mathematics.dtypes.numbers import decimal, read, written
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab
from reports.lecture.runs import experiment
from reports.lecture.sources import YEAR, source
from reports.lecture.verdicts import SOURCE, ClaimFinding, number, numbers, readings, same, true, yes

FORMATS = Topic("Number formats of 16 bits and more")


def layout(name: str) -> Float:
    """The floating-point format of that name. Raises ``BadInputError`` for another kind of format."""
    float_layout = named(name)
    if not isinstance(float_layout, Float):
        raise BadInputError(f"{name} is not a floating-point format")
    return float_layout


def encoded(name: str, text: str) -> Encoding:
    """The number ``text`` in the format ``name``."""
    return encode(named(name), read(text))


def fields(name: str, text: str) -> dict[str, str]:
    """Field → bits of a number."""
    return dict(encoded(name, text).fields)


def positions(name: str) -> dict[str, tuple[int, int]]:
    """Field → (highest bit, lowest bit)."""
    ranges, top = {}, layout(name).bits - 1
    for field, width in layout(name).fields:
        ranges[field] = (top, top - width + 1)
        top -= width
    return ranges


def bits(name: str, text: str) -> str:
    """The bits of the number, its fields separated by spaces."""
    return " ".join(b for _, b in encoded(name, text).fields)


def like_torch(name: str, text: str) -> bool:
    """Whether torch rounds the number to the same value."""
    value = encoded(name, text).value.value
    torchs = experiment("rounded", layout(name).stored, float(text))
    return (value is None and torchs in (float("inf"), float("-inf"))) or (value is not None and float(value) == torchs)


def _layout(name: str, says: str, dtype: str, claimed: dict[str, tuple[int, int]]) -> None:
    @FORMATS.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        ranges = positions(dtype)
        because = ", ".join(f"{field} {high}" if high == low else f"{field} {high} to {low}" for field, (high, low) in ranges.items())
        return same(claimed, {f: ranges[f] for f in claimed}, f"bits of {dtype}: {because}", f"formats: fields of {dtype}", value=because)


_layout("fp32-layout", "The fraction of fp32 is in bits 22 to 0.", "fp32", {"fraction": (22, 0)})
_layout(
    "bf16-layout",
    "bf16 has its sign in bit 15, the exponent in 14 to 7 and the fraction in 6 to 0.",
    "bf16",
    {"sign": (15, 15), "exponent": (14, 7), "fraction": (6, 0)},
)
_layout(
    "fp16-layout",
    "fp16 has its sign in bit 15, the exponent in 14 to 10 and the fraction in 9 to 0.",
    "fp16",
    {"sign": (15, 15), "exponent": (14, 10), "fraction": (9, 0)},
)


@FORMATS.claim("fp32-half-example", "0.5 in fp32 has sign 0, exponent code 126 = 01111110 and fraction 0.")
def _(_: Lab) -> ClaimFinding:
    parts = fields("fp32", "0.5")
    return same(
        ("0", "01111110", "0" * 23, 126),
        (*parts.values(), int(parts["exponent"], 2)),
        "0.5 = 2^-1, and -1 + 127 = 126",
        "formats.encode(fp32, 0.5)",
        value=bits("fp32", "0.5"),
    )


@FORMATS.claim("fp32-formula", "A number in fp32 is (-1)^sign · 2^(exponent − 127) times its fraction with a leading 1.")
def _(_: Lab) -> ClaimFinding:
    texts = ("0.5", "0.15625", "-1.001", "3.0e38", "1.2e-38")
    normal = [_by_formula(text) == encoded("fp32", text).value.value for text in texts]
    small = _by_formula("1e-40") == encoded("fp32", "1e-40").value.value
    because = (
        f"it gives the value of {sum(normal)} of {len(texts)} normal numbers; subnormals have exponent "
        f"{limit(layout('fp32'), 'smallest exponent')} and no"
        f" leading 1 (1e-40 by the formula: {yes(small)}), and code 255 is infinity and NaN"
    )
    return true(all(normal), "of normal numbers", because, "formats.encode and the formula at normal and subnormal numbers")


def _by_formula(text: str) -> Fraction:
    parts = fields("fp32", text)
    sign, exponent, fraction = (int(parts[f], 2) for f in ("sign", "exponent", "fraction"))
    size = Fraction(2) ** (exponent - 127) * (1 + Fraction(fraction, 2**23))
    return -size if sign else size


@FORMATS.claim("fp32-001-0.15625", "0.15625 in fp32 has the exponent code 01111100 = 124, which less 127 is -3.")
def _(_: Lab) -> ClaimFinding:
    exponent = fields("fp32", "0.15625")["exponent"]
    parts = (exponent, int(exponent, 2), int(exponent, 2) - int(limit(layout("fp32"), "bias")))
    return same(("01111100", 124, -3), parts, "0.15625 = 1.25 · 2^-3", "formats.encode(fp32, 0.15625)", value=bits("fp32", "0.15625"))


@FORMATS.claim("fp32-bias-formula", "The bias is 2 to the length of the exponent less 1, which is 127.")
def _(_: Lab) -> ClaimFinding:
    bias, e = limit(layout("fp32"), "bias"), layout("fp32").exponent
    because = (
        f"the value is right, the formula lacks a term: 2^({e} − 1) is {2 ** (e - 1)} and 2^{e} − 1 is {2**e - 1}; the bias is 2^({e} − "
        "1) − 1"
    )
    return readings(bias == 127, bias in (2 ** (e - 1), 2**e - 1), bias, because, "formats: bias of fp32")


@FORMATS.claim("fp32-bias-128", "An exponent code 10000000 = 128, less the bias 127, is the exponent 1.")
def _(_: Lab) -> ClaimFinding:
    exponent = fields("fp32", "2")["exponent"]
    parts = (exponent, int(exponent, 2) - int(limit(layout("fp32"), "bias")))
    return same(("10000000", 1), parts, "that of 2 = 2^1; the note calls the code a bias", "formats.encode(fp32, 2)", value=parts[1])


def _digits(name: str, says: str, dtype: str, claimed: str, note: str = "") -> None:
    @FORMATS.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        dtype_layout = layout(dtype)
        digits, exact_digits = limit(dtype_layout, "decimal digits, about"), limit(dtype_layout, "decimal digits kept")
        resolution = experiment("limits", dtype_layout.stored)["resolution"]
        because = (
            f"{dtype_layout.fraction} + 1 significant bits are {float(digits):.2f} digits; {exact_digits} survive a round trip through "
            f"text, so torch's resolution is {resolution:g}{note}"
        )
        return number(claimed, digits, because, f"formats: digits of {dtype}; torch.finfo", unit="digits")


_digits("fp32-digits", "fp32 has about 7 significant decimal digits.", "fp32", "7")
_digits("fp16-digits", "fp16 has about 3 significant decimal digits.", "fp16", "3")
_digits("bf16-digits", "bf16, with 7 bits of fraction, has about 3 significant decimal digits.", "bf16", "3")


def _range(name: str, says: str, dtype: str, low: str, high: str) -> None:
    @FORMATS.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        dtype_layout = layout(dtype)
        small, large, least = (limit(dtype_layout, n) for n in ("smallest normal", "largest", "smallest subnormal"))
        info = experiment("limits", dtype_layout.stored)
        equal = float(small) == info["tiny"] and float(large) == info["max"]
        because = (
            f"normal numbers go from {float(small):.5g} to {float(large):.5g} (torch.finfo: {'the same' if equal else 'not the same'}), "
            f"subnormals down to {float(least):.3g}"
        )
        return numbers(
            ((low, small), (high, large)), f"{float(small):.6g} to {float(large):.6g}", because, f"formats: limits of {dtype}; torch.finfo"
        )


_range("fp32-range", "fp32 reaches from 1.18e-38 to 3.4e38.", "fp32", "1.18e-38", "3.4e38")
_range("fp16-range", "fp16 reaches from 6.1e-5 to 6.5e4.", "fp16", "6.1e-5", "6.5e4")


def _encoding(name: str, says: str, dtype: str, text: str, claimed: str) -> None:
    @FORMATS.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        encoding, agrees = encoded(dtype, text), like_torch(dtype, text)
        shown = written(encoding.value)
        because = (
            f"{dtype} has {bits(dtype, text)} for it, which is {shown} ({encoding.kind}); torch rounds to "
            f"{'the same' if agrees else 'another number'}"
        )
        return true(shown == claimed and agrees, shown, because, f"formats.encode({dtype}, {text}); torch.tensor")


_encoding("fp16-underflow", "1e-8 becomes 0 in fp16.", "fp16", "1e-8", "0")
_encoding("fp16-overflow", "1e8 becomes infinity in fp16.", "fp16", "1e8", "inf")
_encoding("fp16-1e-8-004", "A number as small as 1e-8 is rounded to 0 in fp16.", "fp16", "1e-8", "0")


def _printed(name: str, says: str, text: str, claimed: str) -> None:
    @FORMATS.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        value = encoded("bf16", text).value.value
        assert value is not None
        shown = experiment("printed", "bfloat16", float(text))
        return number(claimed, value, f"exactly {decimal(value)}; torch prints {shown}", f"formats.encode(bf16, {text}); torch.tensor")


_printed("bf16-1e8", "1e8 becomes 1.0014e8 in bf16.", "1e8", "1.0014e8")
_printed("bf16-1e-8", "1e-8 becomes 1.0012e-8 in bf16.", "1e-8", "1.0012e-8")


@FORMATS.claim("bf16-2018", "Google Brain proposed bf16 in 2018.")
def _(_: Lab) -> ClaimFinding:
    paper = source("bfloat16")
    left = layout("fp32").fraction - int(str(paper.facts["dropped_bits"]))
    earlier = left == layout("bf16").fraction and paper.year < 2018
    because = (
        f"it is Google Brain's, but {paper.words} has it already: fp32 less 16 bits of fraction, which leaves {left};"
        " the name and devices that compute in it came later"
    )
    return readings(
        paper.facts["by"] == "Google Brain", not earlier, paper.year, because, "comparison with the paper", unit=YEAR, rests_on=SOURCE
    )


@FORMATS.claim("bf16-range-fp32", "bf16 has the dynamic range of fp32.")
def _(_: Lab) -> ClaimFinding:
    two, four = layout("bf16"), layout("fp32")
    ends = [(limit(f, "smallest exponent"), limit(f, "largest exponent")) for f in (two, four)]
    short = 1 - limit(two, "largest") / limit(four, "largest")
    because = (
        f"both have {two.exponent} exponent bits, so exponents from {ends[0][0]} to {ends[0][1]}; bf16's largest is {float(short):.1%} "
        "less, as it has fewer fraction bits"
    )
    return true(ends[0] == ends[1], f"2^{ends[0][0]} to 2^{ends[0][1]}", because, "formats: exponents of bf16 and fp32")


@FORMATS.claim("bf16-1001", "bf16 does not turn 1.001 into 1.000.")
def _(_: Lab) -> ClaimFinding:
    encoding = encoded("bf16", "1.001")
    because = (
        f"it does: next to 1 numbers lie {decimal(limit(layout('bf16'), 'epsilon'))} apart, so 1.001 becomes {written(encoding.value)} "
        f"(torch: {'the same' if like_torch('bf16', '1.001') else 'another'}); fp16 has {written(encoded('fp16', '1.001').value)}"
    )
    return true(encoding.value.value != 1, written(encoding.value), because, "formats.encode(bf16, 1.001); torch.tensor")


@FORMATS.claim("bf16-res-worse", "The resolution of bf16, given by its fraction, is worse than that of fp16 and fp32.")
def _(_: Lab) -> ClaimFinding:
    eps = {name: limit(layout(name), "epsilon") for name in ("bf16", "fp16", "fp32")}
    because = "from 1 to the next number: " + ", ".join(f"{name} {float(e):.3g}" for name, e in eps.items())
    return true(eps["bf16"] > eps["fp16"] > eps["fp32"], eps["bf16"], because, "formats: epsilon")


@FORMATS.claim("finfo-values", "torch.finfo of bf16 gives resolution 0.01, min -3.38953e38, max 3.38953e38 and eps 0.0078125.")
def _(_: Lab) -> ClaimFinding:
    bf16, info = layout("bf16"), experiment("limits", "bfloat16")
    digits = limit(bf16, "decimal digits kept")
    largest = limit(bf16, "largest")
    derived = {"resolution": Fraction(1, 10 ** int(digits)), "min": -largest, "max": largest, "eps": limit(bf16, "epsilon")}
    pairs = tuple(zip(("0.01", "-3.38953e38", "3.38953e38", "0.0078125"), derived.values(), strict=True))
    same_there = all(info[name] == float(value) for name, value in derived.items())
    because = f"derived from 8 exponent and 7 fraction bits, and {'equal' if same_there else 'not equal'} to torch.finfo here"
    return numbers(pairs, f"max {float(largest):.6g}", because, "formats: limits of bf16; torch.finfo")


def _shown(widths: tuple[int, ...]) -> str:
    return " + ".join(map(str, widths)) + " bits"


def _widths(name: str) -> tuple[int, ...]:
    return tuple(width for _, width in layout(name).fields)


@FORMATS.claim("fp32-004-bits", "fp32 has 1 bit for the sign, 8 for the exponent and 23 for the fraction.")
def _(_: Lab) -> ClaimFinding:
    return same((1, 8, 23), _widths("fp32"), "IEEE 754 binary32; 32 in all", "formats: fields of fp32", value=_shown(_widths("fp32")))


@FORMATS.claim("fp16-half-mem", "From fp32 to fp16 the exponent shrinks from 8 bits to 5 and the fraction from 23 to 10.")
def _(_: Lab) -> ClaimFinding:
    widths = _widths("fp32"), _widths("fp16")
    return same(
        ((1, 8, 23), (1, 5, 10)), widths, "with the sign, 32 and 16 bits", "formats: fields of fp32 and fp16", value=_shown(widths[1])
    )


@FORMATS.claim("tf32-mantissa", "TF32 has only 10 bits of fraction.")
def _(_: Lab) -> ClaimFinding:
    tf32 = layout("tf32")
    because = f"{tf32.fraction}, as fp16, with the {tf32.exponent} exponent bits of fp32: {tf32.about}"
    return number("10", tf32.fraction, because, "formats: fields of tf32", unit="bits")
