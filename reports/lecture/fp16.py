"""Claims on fp16 worked out by hand: the encoding of 0.01, and the format's limits from its bits."""

from __future__ import annotations

from fractions import Fraction

from calc.mathematics.dtypes.limits import limit
from calc.mathematics.dtypes.numbers import decimal, written
from reports.lecture.claim import Topic
from reports.lecture.formats import bits, encoded, fields, layout, like_torch
from reports.lecture.lab import Lab
from reports.lecture.verdicts import ClaimFinding, number, same

FP16 = Topic("fp16 worked out by hand")


@FP16.claim("fp16-0.01-exp", "0.01 in fp16 is 1.010 (binary) times 2^-6.")
def _(_: Lab) -> ClaimFinding:
    code = int(fields("fp16", "0.01")["exponent"], 2)
    exponent = code - int(limit(layout("fp16"), "bias"))
    because = f"2^-6 is 0.015625, more than 0.01; it is 1.{fields('fp16', '0.01')['fraction']} · 2^{exponent} in binary"
    return number("-6", exponent, because, "formats.encode(fp16, 0.01)", unit="exponent")


@FP16.claim("fp16-0.01-bits", "The exponent code of 0.01 in fp16 is -6 + 15 = 9 = 001001.")
def _(_: Lab) -> ClaimFinding:
    code = fields("fp16", "0.01")["exponent"]
    return same("001001", code, f"-7 + 15 = {int(code, 2)}, in {len(code)} bits", "formats.encode(fp16, 0.01)")


def doubled(number: Fraction, digits: int) -> str:
    """The first binary digits behind the point of a number below 1: the integer parts as it is doubled and they are taken off."""
    written = ""
    for _ in range(digits):
        number *= 2
        written += str(int(number))
        number -= int(number)
    return written


@FP16.claim("fp16-0.01-value", "Doubling 0.01 step by step gives its binary digits.")
def _(_: Lab) -> ClaimFinding:
    digits = doubled(Fraction("0.01"), 24)
    first = digits.index("1") + 1
    because = (
        f"0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28: the first 1 is digit {first}, so 0.01 is 1.{digits[first:]}… · 2^-{first} in binary, "
        f"which fp16 rounds to {bits('fp16', '0.01')}, {written(encoded('fp16', '0.01').value)} (torch: "
        f"{'the same' if like_torch('fp16', '0.01') else 'another'})"
    )
    by = "exact doubling of 1/100 beside floor(2^24 / 100); formats.encode(fp16, 0.01)"
    return same(2**24 // 100, int(digits, 2), because, by, value=f"0.{digits}…")


def _limit(name: str, says: str, limit_name: str, claimed: Fraction, why: str, *, of: str = "fp16") -> None:
    @FP16.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        derived = limit(layout(of), limit_name)
        return same(
            claimed,
            derived,
            f"{why} (derived: {limit_name} of {of} is {decimal(derived)})",
            f"formats: {limit_name} of {of}",
            value=derived,
        )


_limit("fp16-bias", "The bias of fp16 is 2^(5 − 1) − 1 = 2^4 − 1 = 15.", "bias", Fraction(15), "five exponent bits")
_limit(
    "fp16-maxexp",
    "The largest exponent of fp16 is 31 − 1 − 15 = 15.",
    "largest exponent",
    Fraction(15),
    "code 31 is kept for infinities and NaN",
)
_limit(
    "fp16-max",
    "The largest number in fp16 is (2 − 2^-10) · 2^15.",
    "largest",
    (2 - Fraction(1, 2**10)) * 2**15,
    "a fraction of ones under exponent 15",
)
_limit(
    "fp16-minnormal",
    "The smallest normal number in fp16 is 1.0 · 2^-14.",
    "smallest normal",
    Fraction(1, 2**14),
    "exponent code 1, fraction 0",
)
_limit(
    "fp16-subnormal",
    "The smallest subnormal number in fp16 is 2^-10 · 2^-14 = 2^-24.",
    "smallest subnormal",
    Fraction(1, 2**24),
    "the last bit alone",
)
_limit(
    "fp16-subnormal-exp",
    "The exponent of a subnormal in fp16 is 00000 = 0 − 15 = -15.",
    "smallest exponent",
    Fraction(-15),
    "code 0 shares the exponent of code 1 and has no leading 1; with -15 the smallest would be 2^-25",
)


@FP16.claim("fp16-111111", "The exponent code 111111 of fp16 is special.")
def _(_: Lab) -> ClaimFinding:
    code = fields("fp16", "inf")["exponent"]
    return same(
        "111111", code, f"the exponent has {len(code)} bits, and {code} is the code of infinities and NaN", "formats.encode(fp16, inf)"
    )


@FP16.claim("fp16-minnormal-sign", "The smallest positive normal number in fp16 has sign bit 1 and exponent code 00001 = 1 − 15 = -14.")
def _(_: Lab) -> ClaimFinding:
    parts = fields("fp16", decimal(limit(layout("fp16"), "smallest normal")))
    because = f"the exponent is right, the sign is not: {' '.join(parts.values())}; a sign bit of 1 is a negative number"
    return same(("1", "00001"), (parts["sign"], parts["exponent"]), because, "formats.encode(fp16, 2^-14)", value=" ".join(parts.values()))
