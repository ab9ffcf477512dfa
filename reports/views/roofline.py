"""A roofline as plain data and on a terminal: totals of forward, backward and optimizer, what dominates, operator by operator."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from calc.derive.operators import Operators, Work
from calc.derive.to_json import number
from calc.performance.roofline import LAUNCH_SECONDS, LAUNCH_SOURCE, Roofline, RooflineRow, Sums
from calc.units import singular
from reports.figures.roofline_bounds import RooflinePair, bounds, ceilings, finding, notes
from reports.typeset.numbers import duration, percent, significant
from reports.typeset.wording import sizes_text
from reports.views import hardware
from reports.writers.terminal import Terminal, bold, right

_FORMS = ("matmul", "elementwise", "moved", "fused")


# -- plain data -------------------------------------------------------------------------------------------------------


def document(rooflines: RooflinePair) -> dict[str, Any]:
    """Everything, with the ceilings and their sources. Times in seconds; an intensity is ``null`` where no byte moves."""
    at = rooflines.eager.ceiling
    return {
        "schema": 2,
        "model": {"name": rooflines.model},
        "sizes": {name: number(size) for name, size in rooflines.sizes.items()},
        "options": dict(rooflines.options),
        "ceilings": {
            "gpu": hardware.entry(at.device),
            "matmul": {dtype: number(int(at.device.peak(dtype))) for dtype in rooflines.formats},
            "other_arithmetic": None if at.vector is None else number(int(at.vector)),
            "ridge": {dtype: float(at.ridge(dtype)) for dtype in rooflines.formats},
            "launch_seconds": float(at.launch),
            "launch_because": LAUNCH_SOURCE if at.launch == LAUNCH_SECONDS else "as given",
        },
        "closed_forms": {
            "phases": {phase: {form: rooflines.operators.total(form, phase) for form in _FORMS} for phase in rooflines.eager.phases},
            "operators": [_forms(work, rooflines.operators) for work in rooflines.operators.works if work.launches],
        },
        "eager": _document(rooflines.eager),
        "fused": _document(rooflines.fused),
        "notes": list(notes(rooflines)),
    }


def _forms(work: Work, of: Operators) -> dict[str, Any]:
    """One operator's counts as expressions in the model's dimensions, and how often it runs."""
    counts = {form: of.text(getattr(work, form)) for form in _FORMS}
    return {"phase": work.phase, "module_path": work.module_path, "operator": work.name, "times": of.text(work.times), **counts}


def _document(roofline: Roofline) -> dict[str, Any]:
    return {
        "total": _sums(roofline.total),
        "phases": {phase: _sums(roofline.phase(phase)) for phase in roofline.phases},
        "modules": [{"module_path": path, **_sums(sums)} for path, sums in roofline.by_module()],
        "operators": [_row(row) for row in roofline.rows],
    }


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "flops": number(sums.flops),
        "bytes": number(sums.bytes),
        "launches": number(sums.launches),
        "seconds": float(sums.seconds),
        "seconds_by_bound": {bound: float(seconds) for bound, seconds in sums.bounds.items()},
        "dominant": sums.dominant,
    }


def _row(row: RooflineRow) -> dict[str, Any]:
    return {
        "phase": row.phase,
        "module_path": row.module_path,
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


def show(rooflines: RooflinePair, top: int, out: Terminal) -> None:
    """Totals by phase, the sites that take longest, then the operators that do."""
    sizes = sizes_text(rooflines.sizes)
    out.line(bold(rooflines.model), f" on {rooflines.eager.ceiling.device.name}: {sizes}")
    out.lines(*ceilings(rooflines), style="dim")
    out.line()
    out.line(bold(finding(rooflines)))
    out.line()
    _show_phases(rooflines, out)
    out.line()
    _show_sites(rooflines, top, out)
    out.line()
    _show_operators(rooflines, top, out)
    out.lines(*notes(rooflines), style="dim")


def _show_phases(rooflines: RooflinePair, out: Terminal) -> None:
    eager_of, fused_of = rooflines.eager, rooflines.fused
    sums = [(phase, eager_of.phase(phase), fused_of.phase(phase)) for phase in eager_of.phases]
    rows = []
    for name, eager, fused in (*sums, ("step", eager_of.total, fused_of.total)):
        counts = (eager.flops, eager.bytes, fused.bytes, eager.launches, fused.launches)
        rows.append((name, *(f"{c:,}" for c in counts), duration(eager.seconds), duration(fused.seconds), bounds(eager)))
    numbers = ("FLOP", "eager bytes", "fused bytes", "kernels", "fused", "eager time", "fused time")
    out.table(("phase", *right(*numbers), "bound by"), rows)


def _show_sites(rooflines: RooflinePair, top: int, out: Terminal) -> None:
    modules, total = rooflines.eager.by_module(), rooflines.eager.total.seconds
    rows = []
    for module_path, sums in modules[:top]:
        intensity = significant(Fraction(sums.flops, sums.bytes)) if sums.bytes else "-"
        rows.append((module_path, intensity, duration(sums.seconds), _share(sums.seconds, total), bounds(sums)))
    numbers = ("FLOP/byte", "eager time", "share")
    out.table(("module path, forward and backward", *right(*numbers), "bound by"), rows)
    _show_omitted(len(modules) - top, "module paths", out)


def _show_operators(rooflines: RooflinePair, top: int, out: Terminal) -> None:
    total = rooflines.eager.total.seconds
    ordered = sorted(rooflines.eager.rows, key=lambda row: -row.total)
    rows = []
    for row in ordered[:top]:
        name = row.name.removeprefix("aten.").removesuffix(".default")
        intensity = "-" if row.intensity is None else significant(row.intensity)
        cells = (f"{row.times:,}", f"{row.flops:,}", f"{row.bytes:,}", intensity, duration(row.total), _share(row.total, total))
        rows.append((f"{row.phase} {name}", row.module_path, *cells, row.bound))
    numbers = ("times", "FLOP", "bytes", "FLOP/byte", "time of all", "share")
    out.table(("operator", "module path", *right(*numbers), "bound"), rows)
    _show_omitted(len(ordered) - top, "kinds of operators", out)


def _show_omitted(count: int, noun: str, out: Terminal) -> None:
    if count > 0:
        out.line(f"and {count:,} more {singular(noun) if count == 1 else noun}: --top shows more, --json all", style="dim")


def _share(part: Fraction, total: Fraction) -> str:
    return percent(part / total) if total else "-"
