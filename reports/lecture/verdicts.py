"""Verdicts as results of comparisons: none is written by hand beside the number that it judges."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

HOLDS = "holds"
ROUNDED = "holds after rounding"
APPROXIMATE = "approximate"
MISLEADING = "misleading"
WRONG = "wrong"
CONVENTION = "convention"
UNCHECKED = "cannot be checked"
VERDICTS = (HOLDS, ROUNDED, APPROXIMATE, MISLEADING, WRONG, CONVENTION, UNCHECKED)

STANDS = (HOLDS, ROUNDED, APPROXIMATE, CONVENTION)  # verdicts of claims that may hold in a contradiction

COMPUTATION, SOURCE, JUDGMENT = "computation", "source", "judgment"

Number = int | float | Fraction
FindingValue = int | float | Fraction | str | bool
NEAR = Fraction(1, 20)


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """The result for a claim. ``value``: the correct value, in ``unit``. ``rests_on``: computation, source or judgment."""

    verdict: str
    value: FindingValue
    unit: str
    because: str
    computed_by: str
    rests_on: str = COMPUTATION


def compared(claimed: str, computed: Number, *, within: Fraction = NEAR) -> str:
    """The verdict on a written number, whose digits are its precision.

    Equal → holds; equal when rounded to the digits written → holds after rounding; off by
    no more than ``within`` → approximate; else wrong.
    """
    written = Decimal(claimed)
    exact = _exact(computed)
    if Fraction(written) == exact:
        return HOLDS
    if written in _roundings(exact, written):
        return ROUNDED
    off = abs(Fraction(written) - exact)
    return APPROXIMATE if off <= within * abs(exact) else WRONG


def cut_off(claimed: str, computed: Number) -> str:
    """The words behind a reason for a number whose further digits are dropped where rounding would raise the last one; else empty. A
    number of one digit is a rule's factor, of which nothing is dropped."""
    written, exact = Decimal(claimed), _exact(computed)
    one_digit = len(written.as_tuple().digits) < 2
    if one_digit or written in _roundings(exact, written) or _quantized(exact, written, ROUND_DOWN) != written:
        return ""
    raised = _quantized(exact, written, ROUND_HALF_EVEN)
    rounded = f"{raised:E}".replace("E+", "e") if "e" in claimed else f"{raised:f}"
    return f"; {claimed} is truncated; it rounds to {rounded}"


def _exact(computed: Number) -> Fraction:
    return Fraction(str(computed)) if isinstance(computed, float) else Fraction(computed)


def _roundings(exact: Fraction, written: Decimal) -> set[Decimal]:
    """``exact`` rounded to as many decimals as ``written`` has, ties to even and ties up."""
    return {_quantized(exact, written, way) for way in (ROUND_HALF_EVEN, ROUND_HALF_UP)}


def _quantized(exact: Fraction, written: Decimal, rounding: str) -> Decimal:
    exponent = written.as_tuple().exponent
    assert isinstance(exponent, int)  # a number, no infinity
    context = Context(prec=80)
    precise = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return precise.quantize(Decimal(1).scaleb(exponent), rounding=rounding, context=context)


def yes(statement: object) -> str:
    """``yes`` for ``True``, ``no`` for everything else."""
    return "yes" if statement is True else "no"


def number(
    claimed: str, computed: Number, because: str, by: str, *, unit: str = "", within: Fraction = NEAR, rests_on: str = COMPUTATION
) -> ClaimFinding:
    """A finding on a number that a claim states."""
    because += cut_off(claimed, computed)
    return ClaimFinding(compared(claimed, computed, within=within), computed, unit, because, by, rests_on)


def same(
    claimed: Any, computed: Any, because: str, by: str, *, unit: str = "", rests_on: str = COMPUTATION, value: FindingValue | None = None
) -> ClaimFinding:
    """A finding by equality: of bits, shapes, texts or several numbers."""
    shown = value if value is not None else computed if isinstance(computed, FindingValue) else str(computed)
    return ClaimFinding(HOLDS if claimed == computed else WRONG, shown, unit, because, by, rests_on)


def true(holds: bool, value: FindingValue, because: str, by: str, *, unit: str = "", rests_on: str = COMPUTATION) -> ClaimFinding:
    """A finding on a statement that a computation makes true or false."""
    return ClaimFinding(HOLDS if holds else WRONG, value, unit, because, by, rests_on)


def readings(
    literal: bool, implied: bool, value: FindingValue, because: str, by: str, *, unit: str = "", rests_on: str = COMPUTATION
) -> ClaimFinding:
    """A finding on a statement that may be literally true but misleading, because what it implies is false."""
    verdict = WRONG if not literal else HOLDS if implied else MISLEADING
    return ClaimFinding(verdict, value, unit, because, by, rests_on)


def convention(fits: bool, value: FindingValue, because: str, by: str, *, unit: str = "") -> ClaimFinding:
    """A finding on a choice of words or of what to count. ``fits``: no computed number contradicts it."""
    return ClaimFinding(CONVENTION if fits else WRONG, value, unit, f"{because} (judgment: a choice, not a fact)", by, JUDGMENT)


def unchecked(value: FindingValue, because: str, by: str, *, unit: str = "") -> ClaimFinding:
    """A finding on a claim that cannot be computed here, with the reason and what can be computed."""
    return ClaimFinding(UNCHECKED, value, unit, because, by, JUDGMENT)


_BY_DEGREE = (HOLDS, ROUNDED, APPROXIMATE, MISLEADING, WRONG)


def worst(*verdicts: str) -> str:
    """The worst of several verdicts, in the order of ``_BY_DEGREE``."""
    return max(verdicts, key=_BY_DEGREE.index)


def numbers(
    pairs: tuple[tuple[str, Number], ...], value: FindingValue, because: str, by: str, *, unit: str = "", within: Fraction = NEAR
) -> ClaimFinding:
    """A finding on several written numbers of one claim."""
    because += "".join(cut_off(claimed, computed) for claimed, computed in pairs)
    return ClaimFinding(worst(*(compared(claimed, computed, within=within) for claimed, computed in pairs)), value, unit, because, by)
