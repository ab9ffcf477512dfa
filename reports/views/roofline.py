"""A roofline as plain data and on a terminal: totals of forward, backward and optimizer, what dominates, operator by operator."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.derive.operators import Operators, Work
from calc.derive.to_json import number
from calc.performance.roofline import LAUNCH_SECONDS, LAUNCH_SOURCE, Roofline, RooflineRow, Sums
from reports.figures.roofline_bounds import RooflinePair, bounds, ceilings, finding, notes
from reports.typeset.escape import visible
from reports.typeset.numbers import duration, percent, significant
from reports.views import hardware

if TYPE_CHECKING:
    from rich.console import Console

_FORMS = ("matmul", "elementwise", "moved", "fused")


# -- plain data -------------------------------------------------------------------------------------------------------


def document(found: RooflinePair) -> dict[str, Any]:
    """Everything, with the ceilings and their sources. Times in seconds; an intensity is ``null`` where no byte moves."""
    at = found.eager.ceiling
    return {
        "schema": 1,
        "model": {"name": found.model},
        "sizes": {name: number(size) for name, size in found.sizes.items()},
        "options": dict(found.options),
        "ceilings": {
            "gpu": hardware.entry(at.device),
            "products": {dtype: number(int(at.device.peak(dtype))) for dtype in found.formats},
            "other_arithmetic": None if at.vector is None else number(int(at.vector)),
            "ridge": {dtype: float(at.ridge(dtype)) for dtype in found.formats},
            "launch_seconds": float(at.launch),
            "launch_because": LAUNCH_SOURCE if at.launch == LAUNCH_SECONDS else "as asked",
        },
        "closed_forms": {
            "phases": {phase: {what: found.operators.total(what, phase) for what in _FORMS} for phase in found.eager.phases},
            "operators": [_forms(work, found.operators) for work in found.operators.works if work.launches],
        },
        "eager": _document(found.eager),
        "fused": _document(found.fused),
        "notes": list(notes(found)),
    }


def _forms(work: Work, of: Operators) -> dict[str, Any]:
    """One operator's counts as expressions in the model's dimensions, and how often it runs."""
    counts = {what: of.text(getattr(work, what)) for what in _FORMS}
    return {"phase": work.phase, "site": work.module_path, "operator": work.name, "times": of.text(work.times), **counts}


def _document(found: Roofline) -> dict[str, Any]:
    return {
        "total": _sums(found.total),
        "phases": {phase: _sums(found.phase(phase)) for phase in found.phases},
        "sites": [{"site": site, **_sums(sums)} for site, sums in found.by_site()],
        "operators": [_row(row) for row in found.rows],
    }


def _sums(found: Sums) -> dict[str, Any]:
    return {
        "flops": number(found.flops),
        "bytes": number(found.bytes),
        "launches": number(found.launches),
        "seconds": float(found.seconds),
        "seconds_by_bound": {bound: float(seconds) for bound, seconds in found.bounds.items()},
        "dominant": found.dominant,
    }


def _row(row: RooflineRow) -> dict[str, Any]:
    return {
        "phase": row.phase,
        "site": row.site,
        "operator": row.name,
        "times": number(row.times),
        "flops": number(row.flops),
        "bytes": number(row.bytes),
        "launches": row.launches,
        "intensity": None if row.intensity is None else float(row.intensity),
        "bound": row.bound,
        "seconds": float(row.seconds),
    }


# -- on a terminal ----------------------------------------------------------------------------------------------------


def show(found: RooflinePair, top: int, out: Console) -> None:
    """Totals by phase, the sites that take longest, then the operators that do."""
    from rich.text import Text

    sizes = ", ".join(f"{name} = {size:,}" for name, size in found.sizes.items())
    out.print(Text.assemble((visible(found.model), "bold"), f" on {visible(found.eager.ceiling.device.name)}: {visible(sizes)}"))
    for words in ceilings(found):
        out.print(Text(visible(words), style="dim"))
    out.print()
    out.print(Text(finding(found), style="bold"))
    out.print()
    _phases(found, out)
    out.print()
    _sites(found, top, out)
    out.print()
    _operators(found, top, out)
    for note in notes(found):
        out.print(Text(note, style="dim"))


def _phases(found: RooflinePair, out: Console) -> None:
    from reports.writers.columns import columns

    heads = ("FLOP", "eager bytes", "fused bytes", "kernels", "fused", "eager time", "fused time")
    made = columns("phase", *((head, "right") for head in heads), "bound by")
    rows = [(phase, found.eager.phase(phase), found.fused.phase(phase)) for phase in found.eager.phases]
    for name, eager, fused in (*rows, ("step", found.eager.total, found.fused.total)):
        counts = (eager.flops, eager.bytes, fused.bytes, eager.launches, fused.launches)
        made.add_row(name, *(f"{c:,}" for c in counts), duration(eager.seconds), duration(fused.seconds), bounds(eager))
    out.print(made)


def _sites(found: RooflinePair, top: int, out: Console) -> None:
    from rich.text import Text

    from reports.writers.columns import columns

    sites, total = found.eager.by_site(), found.eager.total.seconds
    made = columns("site, forward and backward", *((head, "right") for head in ("FLOP/byte", "eager time", "share")), "bound by")
    for site, sums in sites[:top]:
        intensity = significant(Fraction(sums.flops, sums.bytes)) if sums.bytes else "-"
        made.add_row(Text(visible(site)), intensity, duration(sums.seconds), _share(sums.seconds, total), bounds(sums))
    out.print(made)
    _left_out(len(sites) - top, "sites", out)


def _operators(found: RooflinePair, top: int, out: Console) -> None:
    from rich.text import Text

    from reports.writers.columns import columns

    total = found.eager.total.seconds
    rows = sorted(found.eager.rows, key=lambda row: -row.total)
    heads = ("times", "FLOP", "bytes", "FLOP/byte", "time of all", "share")
    made = columns("operator", "site", *((head, "right") for head in heads), "bound")
    for row in rows[:top]:
        name = row.name.removeprefix("aten.").removesuffix(".default")
        intensity = "-" if row.intensity is None else significant(row.intensity)
        cells = (f"{row.times:,}", f"{row.flops:,}", f"{row.bytes:,}", intensity, duration(row.total), _share(row.total, total))
        made.add_row(Text(visible(f"{row.phase} {name}")), Text(visible(row.site)), *cells, row.bound)
    out.print(made)
    _left_out(len(rows) - top, "kinds of operators", out)


def _left_out(number_left: int, what: str, out: Console) -> None:
    from rich.text import Text

    if number_left > 0:
        out.print(Text(f"and {number_left} more {what}: --top shows more, --json all", style="dim"))


def _share(part: Fraction, whole: Fraction) -> str:
    return percent(part / whole) if whole else "-"
