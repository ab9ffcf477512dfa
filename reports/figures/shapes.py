"""The parts of a figure, for the templates: shapes and labels with their positions, and the table below. Everything is written text.

Horizontal positions are shares of the width (``12.34%``), vertical ones pixels, so that a narrow screen moves text and never shrinks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

WHOLE = 1000  # units of a curve's area, each way
ROOFLINE = "figure-roofline"  # the anchor of the one figure that needs the operators of the step


@dataclass(frozen=True, slots=True)
class SvgRect:
    css: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class SvgLine:
    css: str
    x1: str
    y1: str
    x2: str
    y2: str


@dataclass(frozen=True, slots=True)
class SvgCircle:
    css: str
    x: str
    y: str
    radius: str


@dataclass(frozen=True, slots=True)
class Curve:
    """An SVG path in an area of ``WHOLE`` by ``WHOLE`` units, which is stretched to the plot."""

    css: str
    path: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text at a position; ``anchor``: which part of it is there, ``start``, ``middle`` or ``end``."""

    words: str
    x: str
    y: str
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Area:
    """The live bytes of one role over the step, as the outline of an area."""

    role: str
    css: str
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The drawing of live bytes. ``width``, ``height``: in units of the areas. ``borders``: positions where a phase begins."""

    width: int
    height: int
    areas: tuple[Area, ...]
    ticks: tuple[Label, ...]
    phases: tuple[Label, ...]
    borders: tuple[str, ...]
    peak: Label


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of the legend: letter in the figure, CSS class, name, value and share."""

    letter: str
    css: str
    words: str
    value: str
    share: str
    line: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure. If there is nothing to draw, ``absent`` says why and all else is empty.

    ``axis``: labels left of the plot. Curves are between ``top`` and ``top + plot`` pixels. A figure without ``rows`` has its numbers in
    the table of the report that follows it.
    """

    anchor: str
    title: str
    description: str = ""
    finding: str = ""
    absent: str = ""
    height: int = 0
    top: int = 0
    plot: int = 0
    axis: tuple[Label, ...] = ()
    rects: tuple[SvgRect, ...] = ()
    lines: tuple[SvgLine, ...] = ()
    curves: tuple[Curve, ...] = ()
    dots: tuple[SvgCircle, ...] = ()
    labels: tuple[Label, ...] = ()
    keys: tuple[Key, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    folded: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each column of the table."""
        return tuple(kind for _, kind in self.columns)


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a report except that of live bytes over the step."""

    memory: Figure
    flops: Figure
    roofline: Figure
    sensitivity: Figure
    rules_of_thumb: Figure


def percent(share: Fraction) -> str:
    """A share of the width with two decimals, as SVG writes it."""
    hundredths = round(share * 10_000)
    return f"{hundredths // 100}.{hundredths % 100:02d}%"


def css_class(role: str) -> str:
    """The CSS class that colors a role of memory."""
    return f"role-{role.replace(' ', '-')}"


def letter(number: int) -> str:
    """``A`` for 0, ``B`` for 1, … ``Z``, ``AA``."""
    head, tail = divmod(number, 26)
    return f"{letter(head - 1) if head else ''}{chr(ord('A') + tail)}"


def apart(places: list[tuple[float, int]], least: float) -> dict[int, float]:
    """Number → height, moved down until each is at least ``least`` below the one above it. ``places``: (height, number)."""
    heights: dict[int, float] = {}
    last = float("-inf")
    for height, number in sorted(places):
        last = max(height, last + least)
        heights[number] = last
    return heights
