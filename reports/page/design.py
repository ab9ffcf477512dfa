"""A section for a design document: sentences with live claims, what-if and fit tables, and one recommendation.

The claims name quantities by the statements that come first, so that ``napkin verify`` holds the section where it is pasted.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.result import Derivation
from calc.errors import NapkinError
from calc.hardware.accelerators import Accelerator, accelerator
from calc.memory.peak_levers import BATCH, PeakLever, StepChange, matmul
from calc.options import Options, trains
from calc.symbolic import search
from calc.units import Unit
from reports.figures.memory import COMMON, capacity
from reports.page.conventions import options_in_words
from reports.page.peak import COMMON_80_GB, LeverRow, PeakStory, caption_of, caution, change_words, difference
from reports.typeset import numbers
from reports.typeset.numbers import NBSP, bytes_text
from reports.typeset.wording import model_title, sizes_text


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """A part of a sentence: ``words``, then a ``number`` with the expression that it must equal, if it has one."""

    words: str
    number: str = ""
    expr: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device beside the step. ``margin``: what it has left, or lacks. ``batch``: the largest that fits, or that there is none."""

    device: str
    memory: str
    fits: str
    margin: str
    batch: str


@dataclass(frozen=True, slots=True)
class DesignSection:
    """A section of a design document. ``statements``: those of a ``napkin`` block, which define the names of the claims. ``rows`` and
    ``columns``: the fit grid. Each change has its peak as a claim, or as words where it is a bound."""

    statements: tuple[str, ...]
    sentences: tuple[tuple[ClaimPart, ...], ...]
    changes: tuple[tuple[LeverRow, ClaimPart], ...]
    device: str
    devices: tuple[DeviceRow, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    recommendation: str
    otherwise: str
    kernels: str

    @property
    def changes_caption(self) -> str:
        return caption_of(row for row, _ in self.changes)

    @property
    def varied(self) -> str:
        """What the rows of the fit grid, and its columns, are."""
        return "batch and sequence length" if len(self.columns) > 1 else "batch"

    @property
    def grid(self) -> tuple[tuple[str, str], ...]:
        """The columns of the fit grid."""
        return (("", "text"), *((title, "number") for title in self.columns))


MFU = Fraction(40, 100)
LENGTH = "T"
RATES = {"fp32": "fp32", "bf16": "bf16", "bf16-autocast": "bf16", "bf16-master": "bf16", "fp16-autocast": "fp16"}


def design_section(
    derivation: Derivation,
    story: PeakStory | None,
    levers: Sequence[PeakLever] = (),
    device: Accelerator | None = None,
    model: str = "",
    chosen: Mapping[str, int] | None = None,
) -> DesignSection | None:
    """The section; ``None`` where the peak is unknown. ``device``: by default one of 80 GB. ``model``: how the statements name the model,
    with the sizes ``chosen``."""
    peak = derivation.quantities.get("memory.peak")
    if story is None or peak is None or peak.value is None:
        return None
    board = device or accelerator(COMMON_80_GB)
    rows, columns = _grid(derivation, board)
    devices = _common_devices(board)
    batches = {device.id: _largest_batch(derivation, device) for device in devices}
    return DesignSection(
        statements=tuple(_statements(derivation, board, model or derivation.model, chosen or {}, levers)),
        sentences=tuple(_sentences(derivation, board, story)),
        changes=tuple((row, _peak_claim(row)) for row in story.levers),
        device=capacity(board.memory),
        devices=tuple(_device(device, peak.value, batches[device.id]) for device in devices),
        columns=columns,
        rows=rows,
        recommendation=_recommendation(derivation, peak.value, levers, story.levers, board),
        kernels=story.kernels,
        otherwise=_otherwise(derivation, batches[board.id]),
    )


# -- statements and sentences ------------------------------------------------------------------------------------------------


def _name(change: StepChange) -> str:
    """The name in the statements of the model with a change: ``m_bf16``, ``m_B_4``."""
    words = (*change.options.values(), *(f"{name} {size}" for name, size in change.sizes.items()))
    return "_".join(re.findall(r"\w+", " ".join(("m", *words))))


def _peak_claim(row: LeverRow) -> ClaimPart:
    """The peak of a change, as a claim of its model; of a bound nothing is claimed."""
    if row.derived is None:
        return ClaimPart(row.peak.headline)
    return ClaimPart("", row.peak.headline, f"{_name(row.derived)}.memory.peak")


def _statements(
    derivation: Derivation, board: Accelerator, model: str, chosen: Mapping[str, int], levers: Sequence[PeakLever]
) -> Iterator[str]:
    yield _model_statement(model, "m", chosen, derivation.options)
    for change in (lever.change for lever in levers):
        yield _model_statement(model, _name(change), {**chosen, **change.sizes}, {**derivation.options, **change.options})
    yield f"device {board.id} as device"
    if (time := _time(derivation, board)) is not None:
        yield f"mfu = {float(MFU):g}"
        yield f"seconds = {_FLOPS} / (mfu * device.{time[1]})"


def _model_statement(model: str, name: str, chosen: Mapping[str, int], options: Mapping[str, str]) -> str:
    default = Options().to_json()
    changed = [shlex.quote(f"{option}={value}") for option, value in options.items() if default.get(option) != value]
    pairs = [*(f"{dim}={size}" for dim, size in chosen.items()), *changed]
    return " ".join(" ".join([f"model {shlex.quote(model)} as {name}", *pairs]).split())


_FLOPS = "(m.flops.forward.matmul + m.flops.backward.matmul - m.flops.backward.recompute)"


def _time(derivation: Derivation, board: Accelerator) -> tuple[Fraction, str] | None:
    """(seconds of the model FLOPs at ``MFU``, the name of the rate); ``None`` where one of both is unknown."""
    rate = RATES.get(derivation.options.get("precision", "fp32"), "")
    flops, recomputed = matmul(derivation), derivation.quantities.get("flops.backward.recompute")
    computable = flops is not None and recomputed is not None and recomputed.value is not None and rate in board.peaks
    if not computable or not trains(derivation.options) or flops is None or recomputed is None or recomputed.value is None:
        return None
    return (flops - recomputed.value) / (MFU * board.peaks[rate].dense), rate


def _sentences(derivation: Derivation, board: Accelerator, story: PeakStory) -> Iterator[tuple[ClaimPart, ...]]:
    yield (
        ClaimPart(f"{model_title(derivation.model)} has "),
        *_claims(derivation, [("parameters", " parameters")]),
        ClaimPart(f". All numbers are for one step ({options_in_words(derivation)}) at {sizes_text(derivation.sizes)}."),
    )
    allocated = [
        ("parameters.bytes", " for the parameters"),
        ("optimizer_state.bytes", " for the optimizer state"),
        ("activations.bytes", " for activations"),
    ]
    yield (
        ClaimPart("Its memory peaks at "),
        *_claims(derivation, [("memory.peak", "")]),
        ClaimPart(". It needs "),
        *_claims(derivation, allocated, " and "),
        ClaimPart(" saved for backward." if "activations.bytes" in derivation.quantities else "."),
    )
    largest = "; ".join(f"{part.words} ({part.share}, {part.size})" for part in story.parts)
    when = f"The peak is {story.when}. " if story.when else ""
    yield (ClaimPart(f"{when}Its largest parts: {largest}.".replace("`", "")),)
    yield tuple(_fit(derivation, board))
    yield (
        ClaimPart("The step executes "),
        *_claims(derivation, [("flops.step.total", ""), ("flops.forward.matmul", " are matmuls of the forward")], ", of which "),
        ClaimPart("."),
    )
    if (time := _time(derivation, board)) is not None:
        rate = numbers.rate(board.peaks[time[1]].dense, "FLOP")
        yield (
            ClaimPart(f"At an MFU of {numbers.percent(MFU)} of the {time[1]} rate of {board.name}, "),
            ClaimPart("", rate, f"device.{time[1]}"),
            ClaimPart(", its model FLOPs take "),
            ClaimPart("", numbers.duration(time[0]), "seconds"),
            ClaimPart("; that MFU is an assumption, not a measurement."),
        )
    if derivation.quantities.get("checkpoint.bytes") is not None:
        yield ClaimPart("A checkpoint takes "), *_claims(derivation, [("checkpoint.bytes", "")]), ClaimPart(".")


def _claims(derivation: Derivation, names: Sequence[tuple[str, str]], last: str = " ") -> Iterator[ClaimPart]:
    """The quantities that the step has, each as a number with its expression."""
    quantities = [(name, text, q) for name, text in names if (q := derivation.quantities.get(name)) is not None and q.value is not None]
    for place, (name, text, quantity) in enumerate(quantities):
        between = "" if not place else last if place == len(quantities) - 1 else ", "
        value = numbers.amount(quantity.value or 0, quantity.unit)
        number = value.exact if quantity.unit is Unit.ELEMENT else value.headline
        yield ClaimPart(between, number, f"m.{name}")
        if text:
            yield ClaimPart(text)


def _fit(derivation: Derivation, board: Accelerator) -> Iterator[ClaimPart]:
    peak = derivation["memory.peak"].value or 0
    room = board.memory - peak
    yield ClaimPart(f"The {board.name} has ")
    yield ClaimPart("", capacity(board.memory), "device.memory")
    yield ClaimPart(": the step fits and leaves " if room >= 0 else ", and the step does not fit: it needs ")
    expr = "device.memory - m.memory.peak" if room >= 0 else "m.memory.peak - device.memory"
    yield ClaimPart("", bytes_text(abs(room)), expr)
    yield ClaimPart(" for the allocator's rounding and library workspaces." if room >= 0 else " more.")


# -- what if ---------------------------------------------------------------------------------------------------------------


def _grid(derivation: Derivation, board: Accelerator) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]:
    """(rows of the fit grid with their titles, titles of its columns): peaks at batch times sequence length, where closed forms hold."""
    if BATCH not in derivation.sizes:
        return (), ()
    batches = _around(derivation.sizes[BATCH], (Fraction(1, 4), Fraction(1, 2), 1, 2, 4, 8))
    lengths = _lengths(derivation, batches)
    columns = tuple(f"{LENGTH}{NBSP}={NBSP}{numbers.integer(length)}" for length in lengths) or ("Peak",)
    rows = []
    for batch in batches:
        sizes = [{BATCH: batch, LENGTH: length} for length in lengths] or [{BATCH: batch}]
        rows.append((f"{BATCH}{NBSP}={NBSP}{numbers.integer(batch)}", tuple(_cell(derivation, at, board) for at in sizes)))
    return tuple(rows), columns


_COLUMNS = 5


def _lengths(derivation: Derivation, batches: Sequence[int]) -> list[int]:
    """Sequence lengths about that of the step at which some batch has a peak: none that is longer than the learned positions."""
    if LENGTH not in derivation.sizes:
        return []
    factors = (Fraction(1, 16), Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), 1, 2, 4)
    valid = [t for t in _around(derivation.sizes[LENGTH], factors) if any(_peak_at(derivation, {BATCH: b, LENGTH: t}) for b in batches)]
    return valid[-_COLUMNS:]


def _around(size: int, factors: Sequence[Fraction | int]) -> list[int]:
    return sorted({int(size * factor) for factor in factors if size * factor >= 1 and (size * factor) % 1 == 0})


def _peak_at(derivation: Derivation, sizes: Mapping[str, int]) -> int | None:
    """The peak at other sizes; ``None`` where they are invalid or its closed form does not hold."""
    try:
        return derivation["memory.peak"].at(**sizes) if derivation.holds_at(sizes) else None
    except NapkinError:
        return None


def _cell(derivation: Derivation, sizes: Mapping[str, int], board: Accelerator) -> str:
    peak = _peak_at(derivation, sizes)
    if peak is None:
        return "–"
    return f"{bytes_text(peak)} {'✓' if peak <= board.memory else '×'}"


def _common_devices(board: Accelerator) -> list[Accelerator]:
    """Devices of every common capacity and ``board``, smallest first."""
    devices = {device.id: device for device in (*map(accelerator, COMMON), board)}
    return sorted(devices.values(), key=lambda device: device.memory)


def _device(device: Accelerator, peak: int, batch: int | None) -> DeviceRow:
    room = device.memory - peak
    margin = bytes_text(abs(room))
    return DeviceRow(
        device=device.name,
        memory=capacity(device.memory),
        fits="yes" if room >= 0 else "no",
        margin=f"{margin} left" if room >= 0 else f"{margin} too little",
        batch="unknown" if batch is None else numbers.integer(batch) if batch else "none",
    )


# -- recommendation ---------------------------------------------------------------------------------------------------------


def _recommendation(
    derivation: Derivation, peak: int, levers: Sequence[PeakLever], rows: Sequence[LeverRow], board: Accelerator
) -> str:
    if peak <= board.memory:
        return f"Run the step as it is on {board.name}: it fits, and nothing has to be traded for memory."
    fitting = [lever for lever in levers if lever.change.options and lever.peak <= board.memory]
    if not fitting:
        alone = f"Do not run it on one {board.name}: no change above fits one device at this batch."
        return " ".join((alone, "Shard it (napkin shard) or take a smaller batch.", *_may_fit("", rows)))
    current = matmul(derivation) or 0
    same = [lever for lever in fitting if not caution(lever.change, derivation)]
    cheapest = min(same or fitting, key=lambda lever: ((lever.matmul or current) - current, lever.peak))
    advice = _cheapest(cheapest, len(fitting), len(same), current, board)
    warning = caution(cheapest.change, derivation)
    return " ".join((advice, warning, *_may_fit("If that matters, ", rows))) if warning else advice


def _cheapest(lever: PeakLever, fitting: int, same: int, current: int, board: Accelerator) -> str:
    """Why ``lever`` is recommended: the only one of ``fitting``, or the cheapest of those, of which ``same`` round no weight."""
    among = "of the changes above that fit" + (" and round no weight" if 0 < same < fitting else "")
    choice = f"{among} it costs the fewest matmul FLOPs" if fitting > 1 else "it is the only change above that fits one device"
    extra = difference(lever.matmul, current) if lever.matmul is not None and current else "unknown"
    return f"Use {change_words(lever.change)} on {board.name}: {choice} (peak {bytes_text(lever.peak)}, matmul FLOPs {extra})."


def _may_fit(beginning: str, rows: Sequence[LeverRow]) -> Iterator[str]:
    """The first change that may fit, of those of which only a lower bound is derived, as a sentence."""
    for row in itertools.islice((row for row in rows if row.derived is None and row.fits == "perhaps"), 1):
        yield f"{beginning}{row.change} may fit{'' if beginning else ' too'}: at least {row.peak.headline} on each device."


def _otherwise(derivation: Derivation, fits: int | None) -> str:
    """The largest batch that ``fits``, as what would change the recommendation; empty where it is unknown."""
    if fits is None:
        return ""
    batch = derivation.sizes[BATCH]
    if not fits:
        return f"Unchanged, the step fits at no batch: {BATCH}{NBSP}={NBSP}1 is too large already." if batch > 1 else ""
    largest = f"{BATCH}{NBSP}={NBSP}{numbers.integer(fits)}, the largest batch that fits with all else unchanged"
    return f"Above {largest}, the step needs a change." if fits >= batch else f"The step needs no change at {largest}."


_MOST_BATCH = 2**30


def _largest_batch(derivation: Derivation, board: Accelerator) -> int | None:
    """The largest batch whose peak the device holds, 0 if it holds none: the peak grows with the batch. ``None`` where the step has no
    batch, where there is no end, or where it is not known that the next one does not fit: the closed form does not hold there."""
    if BATCH not in derivation.sizes:
        return None

    def fits(batch: int) -> bool:
        peak = _peak_at(derivation, {BATCH: batch})
        return peak is not None and peak <= board.memory

    batch = search.largest(fits, _MOST_BATCH)
    return batch if batch < _MOST_BATCH and _peak_at(derivation, {BATCH: batch + 1}) is not None else None
