"""Errors of the rules of thumb for this model, as bars to both sides of the exact count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from calc.derive.rules_of_thumb import RuleComparison
from reports.figures.shapes import Figure, Label, SvgLine, SvgRect, percent
from reports.typeset import numbers
from reports.typeset.numbers import NBSP
from reports.typeset.wording import several

ANCHOR, TITLE = "figure-thumbs", "Errors of rules of thumb"
NEAR = Fraction(5, 100)
_TOP, _ROW, _BAR = 4, 34, 10
_SCALES = (Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1))  # errors at both ends of the drawing
_HALF = Fraction(1, 2)


def thumbs(comparisons: Sequence[RuleComparison]) -> Figure:
    """The figure of the rules that apply to this model, or one without a drawing that says why."""
    drawn = [c for c in comparisons if c.applies and c.ratio is not None]
    errors = {c.rule.name: c.ratio - 1 for c in drawn if c.ratio is not None}
    cancelling = {c.rule.name for c in drawn if c.gross is not None and c.gross.cancel}
    if not errors:
        return Figure(ANCHOR, TITLE, absent="no rule of thumb applies to this model" if comparisons else "no rule of thumb was compared")
    farthest = max(abs(off) for off in errors.values())
    scale = next((s for s in _SCALES if s >= farthest), _SCALES[-1])
    bottom = _TOP + _ROW * len(errors)
    return Figure(
        ANCHOR,
        TITLE,
        description="Bars from the middle, where a rule equals the exact count: to the right if its estimate is too high, to the left if"
        f" it is too low. The paler stripe is within {numbers.percent(NEAR)}. The table below has the numbers.",
        finding=_finding(errors, cancelling, scale),
        height=bottom + 18,
        rects=(_band(scale, bottom), *_bars(errors, scale)),
        lines=(SvgLine("peak", "50%", str(_TOP), "50%", str(bottom)),),
        labels=(*_labels(errors), *_ends(scale, bottom)),
    )


def _finding(errors: dict[str, Fraction], cancelling: set[str], scale: Fraction) -> str:
    near = [f"{name} (by cancellation)" if name in cancelling else name for name, off in errors.items() if abs(off) <= NEAR]
    names = f": {', '.join(near)}" if near else ""
    farthest, within = max(errors, key=lambda name: abs(errors[name])), f"within {numbers.percent(NEAR)}"
    if len(errors) == 1:
        how = " only by cancellation" if cancelling else ""
        text = f"{farthest} is {'' if near else 'not '}{within} of the exact count{how}: its error is {_off(errors[farthest])}."
    else:
        of, verb = several(len(errors), "rule"), "is" if len(near) == 1 else "are"
        text = f"{numbers.integer(len(near))} of {of} {verb} {within}{names}."
        text += f" The largest error is that of {farthest}: {_off(errors[farthest])}."
    beyond = [name for name, off in errors.items() if abs(off) > scale]
    if beyond:
        text += f" Bars end at {numbers.percent(scale)}; {', '.join(beyond)} {'exceeds' if len(beyond) == 1 else 'exceed'} it."
    return text


def _off(value: Fraction) -> str:
    return numbers.percent(value, signed=True)


def _band(scale: Fraction, bottom: int) -> SvgRect:
    share = min(NEAR / scale, Fraction(1))
    return SvgRect("band", percent(_HALF * (1 - share)), str(_TOP), percent(share), str(bottom - _TOP))


def _bars(errors: dict[str, Fraction], scale: Fraction) -> Iterator[SvgRect]:
    for row, off in enumerate(errors.values()):
        length = min(abs(off) / scale, Fraction(1)) * _HALF
        yield SvgRect("bar", percent(_HALF - length if off < 0 else _HALF), str(_TOP + row * _ROW + 20), percent(length), str(_BAR))


def _labels(errors: dict[str, Fraction]) -> Iterator[Label]:
    for row, (name, off) in enumerate(errors.items()):
        yield Label(name, "0", str(_TOP + row * _ROW + 14))
        yield Label(_off(off), "100%", str(_TOP + row * _ROW + 14), "end")


def _ends(scale: Fraction, bottom: int) -> Iterator[Label]:
    written = f"{numbers.integer(int(scale * 100))}{NBSP}%"
    yield Label(f"{numbers.MINUS}{written}", "0", str(bottom + 14))
    yield Label("exact", "50%", str(bottom + 14), "middle")
    yield Label(f"+{written}", "100%", str(bottom + 14), "end")
