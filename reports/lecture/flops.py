"""Claims on FLOPs: of a matmul, of elementwise operations, and the meaning of the word."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from calc.units import Unit
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab, closed_form
from reports.lecture.runs import experiment
from reports.lecture.verdicts import ClaimFinding, convention, number, readings, same, true

FLOPS = Topic("FLOPs of operations")
_AT = {"B": 16384, "D": 32768, "K": 8192}
_BY = "derive linear: flops.forward.matmul; torch.utils.flop_counter"


class CountingNumber:
    """A number that counts the multiplications and additions done with it."""

    counts: dict[str, int] = {}  # noqa: RUF012  # counts of the experiment at hand, reset by it

    def __mul__(self, _: CountingNumber) -> CountingNumber:
        CountingNumber.counts["multiplications"] += 1
        return self

    def __add__(self, _: CountingNumber) -> CountingNumber:
        CountingNumber.counts["additions"] += 1
        return self


def arithmetic(b: int, d: int, k: int) -> dict[str, int]:
    """The multiplications and additions of a (b, d) by (d, k) matmul, counted while numpy executes it."""
    CountingNumber.counts = {"multiplications": 0, "additions": 0}
    x, w = (np.array([[CountingNumber() for _ in range(n)] for _ in range(m)], dtype=object) for m, n in ((b, d), (d, k)))
    np.dot(x, w)
    return dict(CountingNumber.counts)


def _both(lab: Lab) -> tuple[int, int]:
    """(derived FLOPs, FLOPs by torch's counter) of the claimed matmul."""
    derived = lab.value("linear", "flops.forward.matmul", _AT)
    return derived, experiment("product_flops", _AT["B"], _AT["D"], _AT["K"])


@FLOPS.claim("flop-2bdk", "A product of (B, D) by (D, K) takes 2·B·D·K FLOP.")
def _(lab: Lab) -> ClaimFinding:
    derived, counted = _both(lab)
    because = f"{closed_form(lab.derive('linear')['flops.forward.matmul'])}, each multiply-add as 2; torch's counter says {counted:,}"
    return same(2 * _AT["B"] * _AT["D"] * _AT["K"], derived if derived == counted else -1, because, _BY, unit="FLOP")


@FLOPS.claim("flop-2d-1", "Strictly it is B·K·(2D − 1): one addition less for each result.")
def _(_: Lab) -> ClaimFinding:
    b, d, k = 3, 7, 5
    counts = arithmetic(b, d, k)
    because = (
        f"(3, 7) by (7, 5) took {counts['multiplications']} multiplications and {counts['additions']} additions; the usual 2·B·D·K counts "
        "one addition more a result"
    )
    return same(b * k * (2 * d - 1), sum(counts.values()), because, "numpy.dot of numbers that count", unit="FLOP")


@FLOPS.claim("flop-8796", "At B = 16384, D = 32768, K = 8192 that is 8796093022208 FLOP.")
def _(lab: Lab) -> ClaimFinding:
    derived, counted = _both(lab)
    return number("8796093022208", derived, f"torch's counter, without running it, says {counted:,}", _BY, unit="FLOP")


@FLOPS.claim("flop-2mnp", "A product of (m, n) by (n, p) takes 2·m·n·p FLOP.")
def _(_: Lab) -> ClaimFinding:
    counted = {(m, n, p): experiment("product_flops", m, n, p) for m, n, p in ((3, 5, 7), (11, 2, 13))}
    return same(
        {s: 2 * s[0] * s[1] * s[2] for s in counted},
        counted,
        "torch's counter at two sets of primes",
        "torch.utils.flop_counter",
        value="2·m·n·p",
        unit="FLOP",
    )


@FLOPS.claim("flop-def-sec", "FLOPs says how many floating-point operations are done in a second.")
def _(lab: Lab) -> ClaimFinding:
    unit = lab.derive("linear")["flops.forward.matmul"].unit
    because = (
        f"2·B·D·K has no second in it: its unit is {unit}, an amount. The other note's reading is right: a rate is FLOP/s, written "
        "FLOPS by some"
    )
    return true(unit is not Unit.FLOP, f"{unit}, an amount", because, "the unit of flops.forward.matmul")


@FLOPS.claim("flop-case", "FLOPs with a small s is an amount, FLOPS with a capital S a rate.")
def _(lab: Lab) -> ClaimFinding:
    unit = lab.derive("linear")["flops.forward.matmul"].unit
    because = "the usual reading of two words that sound alike; here the amount is FLOP and the rate FLOP/s"
    return convention(unit is Unit.FLOP, "FLOP and FLOP/s", because, "the unit of flops.forward.matmul")


@FLOPS.claim("flop-elem-mn", "Adding two matrices of (m, n) takes m·n FLOP.")
def _(_: Lab) -> ClaimFinding:
    counted = {(m, n): experiment("elementwise_flops", m, n) for m, n in ((3, 5), (11, 13))}
    return same(
        {s: s[0] * s[1] for s in counted},
        counted,
        "one addition for each element, counted by torch's reference decomposition",
        "a run under the reference counter",
        value="m·n",
        unit="FLOP",
    )


@FLOPS.claim("flop-matmul-2size", "A matrix multiplication takes twice as many FLOP as the matrix has elements.")
def _(_: Lab) -> ClaimFinding:
    d, k = 7, 5
    ratios = {b: Fraction(experiment("product_flops", b, d, k), d * k) for b in (1, 11)}
    because = f"that is so for one row alone ({ratios[1]}); for 11 rows it takes {ratios[11]} FLOP for each element: 2·B times the size"
    holds = all(ratio == 2 for ratio in ratios.values())
    return true(holds, "2·B·D·K", because, "torch.utils.flop_counter at B = 1 and B = 11", unit="FLOP")


@FLOPS.claim("flop-reduce-matmul", "One usually tries to reduce the number of matrix multiplications.")
def _(lab: Lab) -> ClaimFinding:
    products, total = (lab.value("gpt2", f"flops.forward.{kind}", {"B": 8, "T": 1024}) for kind in ("matmul", "total"))
    b, d, k = 11, 7, 5
    together, apart = experiment("product_flops", b, d, 3 * k), 3 * experiment("product_flops", b, d, k)
    because = (
        f"matmuls are {products / total:.1%} of the forward's FLOPs of GPT-2, so smaller ones are less work; their number costs nothing: "
        f"one of {b} × {d} by {d} × {3 * k} takes {together} FLOP, three of {b} × {d} by {d} × {k} take {apart}. A good MFU asks for the "
        "opposite, a step that matmuls dominate, as the rest moves bytes at few FLOP"
    )
    by = "derive gpt2: flops.forward.matmul over flops.forward.total; torch.utils.flop_counter of one product and of three"
    return readings(2 * products > total, together < apart, f"{products / total:.3f} of all FLOPs", because, by)
