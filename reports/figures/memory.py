"""Live bytes at the peak by kind, as one stacked bar beside the capacity of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from calc.derive.result import Derivation, Quantity
from calc.hardware.accelerators import Accelerator, accelerator
from calc.platform.reading import clipped
from calc.units import Unit
from reports.figures.scales import round_step, short_bytes
from reports.figures.shapes import Figure, Key, Label, SvgLine, SvgRect, css_class, letter, percent
from reports.typeset import numbers
from reports.typeset.numbers import NBSP, bytes_text
from reports.typeset.wording import several

ANCHOR, TITLE = "figure-memory", "Memory at the peak by kind"
ORDER = ("parameter", "master weight", "optimizer state", "gradient", "activation", "temporary", "input", "buffer")
_BAR, _HIGH = 50, 34  # where the bar begins, and how high it is, in pixels
_ROWS = (12, 27, 42)  # of the labels above it
_NAMED = Fraction(5, 100)  # a segment of less of the width has no letter
_FARTHEST = 4  # a capacity above this multiple of the peak is in the text, not in the drawing
_LONGEST = 12  # characters of a device's id in the drawing
_BESIDE = "These are live bytes: rounding by the allocator and memory of libraries come on top."


def memory(derivation: Derivation, device: Accelerator | None) -> Figure:
    """The figure of ``memory.peak``, or one without a drawing that says why."""
    quantity = derivation.quantities.get("memory.peak")
    if quantity is None or quantity.value is None:
        reason = f"the peak is unknown: {quantity.unknown}" if quantity is not None else "this derivation has no memory.peak"
        return Figure(ANCHOR, TITLE, absent=reason)
    kinds = by_kind(quantity)
    if not kinds or sum(kinds.values()) != quantity.value or min(kinds.values()) < 0:
        return Figure(ANCHOR, TITLE, absent="the bytes at the peak are not known by kind")
    return _drawn(quantity.value, kinds, beside(quantity.value, device), device is not None)


def by_kind(quantity: Quantity) -> dict[str, int]:
    """Live bytes at the peak by kind, in the order of ``ORDER``: permanent kinds first."""
    largest = quantity.largest_candidate
    bytes_of = largest.part_values if largest is not None else {}
    order = {role: place for place, role in enumerate(ORDER)}
    return {role: bytes_of[role] for role in sorted(bytes_of, key=lambda role: (order.get(role, len(order)), role)) if bytes_of[role]}


def _drawn(peak: int, kinds: Mapping[str, int], devices: Sequence[Accelerator], is_named: bool) -> Figure:
    drawn = [device for device in devices if device.memory <= _FARTHEST * peak]
    scale = max([peak, *(device.memory for device in drawn)])
    listed = ", ".join(f"{role} {numbers.percent(Fraction(value, peak))}" for role, value in kinds.items())
    return Figure(
        ANCHOR,
        TITLE,
        description=f"A bar of the bytes live at the peak, from the left: {listed}. The table below has the numbers.",
        finding=f"{_verdict(peak, devices, is_named)} {_largest(peak, kinds)} {_BESIDE}",
        height=_BAR + _HIGH + 40,
        rects=tuple(_segments(kinds, scale)),
        lines=tuple(_lines(_marked(peak, devices, scale))),
        labels=(*_labels(_marked(peak, devices, scale)), *_letters(kinds, scale), *_ticks(scale)),
        keys=tuple(_key(i, role, value, peak) for i, (role, value) in enumerate(kinds.items())),
        columns=(("Kind", "text"), ("Bytes", "number"), ("In larger units", "number"), ("Of the peak", "number")),
        rows=(
            *((role, *_cells(value), numbers.percent(Fraction(value, peak))) for role, value in kinds.items()),
            ("all: the peak", *_cells(peak), numbers.percent(Fraction(1))),
            *((f"{device.name}, {capacity(device.memory)}", *_cells(device.memory), _filled(peak, device)) for device in devices),
        ),
        folded=f"{several(len(kinds), 'kind')}, the peak and the capacities in bytes",
    )


def _cells(value: int) -> tuple[str, ...]:
    amount = numbers.amount(value, Unit.BYTE)
    return amount.exact, ", ".join(amount.readings) or amount.text


def _filled(peak: int, device: Accelerator) -> str:
    """How much of a device's memory the peak takes: a capacity is no part of the peak."""
    return f"the peak is {numbers.percent(Fraction(peak, device.memory))} of it"


# -- text ----------------------------------------------------------------------------------------------------------------


def _verdict(peak: int, devices: Sequence[Accelerator], is_named: bool) -> str:
    """Whether the peak fits the devices, as a sentence."""
    subject = f"The peak of {bytes_text(peak)}"
    small, large = ([d for d in devices if (d.memory >= peak) is fits] for fits in (False, True))
    common = "" if is_named else ", the smallest common device," if large and large[0].id == COMMON[0] else ""
    text = ""
    if small:
        times = numbers.significant(Fraction(peak, small[0].memory))
        largest = ", the largest common device," if not large and not is_named else ""
        text = f"{subject} is {times} times the {capacity(small[0].memory)} of {small[0].name}{largest} and does not fit"
    if large:
        free = bytes_text(large[0].memory - peak)
        text = f"{text}; it fits" if text else f"{subject} fits"
        text += f" {large[0].name}{common} and leaves {free} free"
    return f"{text}."


def _largest(peak: int, kinds: Mapping[str, int]) -> str:
    role = max(kinds, key=lambda role: kinds[role])
    return f"The largest kind is {role}: {bytes_text(kinds[role])}, {numbers.percent(Fraction(kinds[role], peak))} of the peak."


def _key(number: int, role: str, value: int, peak: int) -> Key:
    return Key(letter(number), css_class(role), role, bytes_text(value), numbers.percent(Fraction(value, peak)))


# -- positions -----------------------------------------------------------------------------------------------------------


def _spans(kinds: Mapping[str, int], scale: int) -> Iterator[tuple[str, Fraction, Fraction]]:
    start = 0
    for role, value in kinds.items():
        yield role, Fraction(start, scale), Fraction(value, scale)
        start += value


def _segments(kinds: Mapping[str, int], scale: int) -> Iterator[SvgRect]:
    for role, start, width in _spans(kinds, scale):
        yield SvgRect(f"segment {css_class(role)}", percent(start), str(_BAR), percent(width), str(_HIGH))


def _letters(kinds: Mapping[str, int], scale: int) -> Iterator[Label]:
    """A letter under each segment that is wide enough, so that segments differ by more than their color."""
    for number, (_, start, width) in enumerate(_spans(kinds, scale)):
        if width >= _NAMED:
            yield Label(letter(number), percent(start + width / 2), str(_BAR + _HIGH + 14), "middle")


def _marked(peak: int, devices: Sequence[Accelerator], scale: int) -> list[tuple[Fraction, str, int, str]]:
    """The labels above the bar, one a row: (share of the width, text, row, CSS class of the line).

    A capacity beyond the drawing has an arrow instead of a line.
    """
    marks = []
    for device, row in zip(devices, _ROWS, strict=False):
        words, at = f"{capacity(device.memory)}{NBSP}{clipped(device.id, _LONGEST)}", Fraction(device.memory, scale)
        marks.append((at, words, row, "capacity") if at <= 1 else (Fraction(1), f"{words}{NBSP}→", row, ""))
    return [*marks, (Fraction(peak, scale), f"peak{NBSP}{bytes_text(peak)}", _ROWS[-1], "peak")]


def _lines(marked: Sequence[tuple[Fraction, str, int, str]]) -> Iterator[SvgLine]:
    for at, _, row, css in marked:
        if css:
            yield SvgLine(css, percent(at), str(row - 10), percent(at), str(_BAR + _HIGH))


def _labels(marked: Sequence[tuple[Fraction, str, int, str]]) -> Iterator[Label]:
    for at, words, row, css in marked:
        room = NBSP if css else ""
        yield Label(f"{room}{words}{room}", percent(at), str(row), "start" if at < Fraction(1, 2) else "end")


def _ticks(scale: int) -> Iterator[Label]:
    for value in range(0, scale + 1, round_step(scale)):
        at = Fraction(value, scale)
        anchor = "start" if not value else "end" if at > Fraction(9, 10) else "middle"
        yield Label(short_bytes(value), percent(at), str(_BAR + _HIGH + 32), anchor)


# -- devices ----------------------------------------------------------------------------------------------------------


COMMON = ("t4", "l4", "rtx5090", "a100-sxm-40", "l40s", "h100-sxm", "h200-sxm", "b200-hgx", "b300")
"""Ids of the catalogue, one for each common capacity, smallest first."""


def beside(peak: int, chosen: Accelerator | None) -> tuple[Accelerator, ...]:
    """The named device; else the largest common one below ``peak`` bytes and the smallest one that holds them, if they exist."""
    if chosen is not None:
        return (chosen,)
    common = [accelerator(name) for name in COMMON]
    small = [device for device in common if device.memory < peak][-1:]
    large = [device for device in common if device.memory >= peak][:1]
    return (*small, *large)


def capacity(nbytes: int) -> str:
    """A capacity in bytes as vendors write it: ``80 GB``, or ``32 GiB`` if only that is a whole number."""
    for unit, size in (("GB", 10**9), ("GiB", 2**30)):
        if nbytes % size == 0:
            return f"{numbers.integer(nbytes // size)}{numbers.NBSP}{unit}"
    return f"{numbers.integer(nbytes)}{numbers.NBSP}bytes"
