"""A roofline as plain data and on a terminal: totals of forward, backward and optimizer, what dominates, operator by operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import calc
from calc.derive.operators import Operators, Work
from calc.derive.to_json import number
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from calc.performance import step_operators
from calc.performance.roofline import LAUNCH, LAUNCH_SECONDS, LAUNCH_SOURCE, MEMORY, Ceiling, Roofline, Row, Sums, roofline
from calc.performance.step_operators import StepWork
from reports.cli import job
from reports.typeset.escape import visible
from reports.typeset.numbers import duration, percent, rate, significant
from reports.views import hardware

if TYPE_CHECKING:
    from rich.console import Console

FUSED = (
    "fused is a lower model: operators between two products run as one kernel, which reads each tensor made before it once and writes each"
    " tensor that is read after it once; a compiler may leave more"
)
LOOP = "the optimizer runs parameter by parameter here; on CUDA torch runs it over lists of them: --implementation foreach"
NOTE = "times are bounds from below, at dense published rates; no operator reaches them"
_SECONDS = re.compile(r"[0-9.]{1,20}(e-?[0-9]{1,2})?")
_FORMS = ("matmul", "elementwise", "moved", "fused")


@dataclass(frozen=True, slots=True)
class Found:
    """A step under a ceiling, eager and fused."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    operators: Operators
    works: tuple[Work, ...]
    eager: Roofline
    fused: Roofline

    @property
    def formats(self) -> tuple[str, ...]:
        """The rates at which products run."""
        return tuple(dict.fromkeys(self.eager.ceiling.format_of(w.operator) for w in self.works if w.matmul))


def ceiling(gpu: str, file: str | None, dtype: str | None, launch: str | None) -> Ceiling:
    """What a device does at most; unusable words are refused."""
    device = accelerator(gpu, file)
    if dtype is not None:
        device.peak(dtype)
    return Ceiling(device, LAUNCH_SECONDS if launch is None else _launch(launch), dtype)


def _launch(text: str) -> Fraction:
    try:
        seconds = Fraction(Decimal(text)) if _SECONDS.fullmatch(text) else None
    except InvalidOperation:
        seconds = None
    if seconds is None or not 0 <= seconds < 1:
        raise BadInputError(f"--launch {text[:40]!r} is no time between kernels: write seconds from 0 to 1, as in 5e-6")
    return seconds


def compute(request: job.Request, ceiling: Ceiling, progress: Callable[[str], None]) -> Found:
    """The roofline of a request's step, eager and fused."""
    found = step_work(request, progress)
    both = (roofline(found.works, ceiling, fused=fused) for fused in (False, True))
    return Found(found.operators.graph.model, found.sizes, request.options.to_json(), found.operators, found.works, *both)


def step_work(request: job.Request, progress: Callable[[str], None]) -> StepWork:
    """What the operators of a request's step do and move."""
    progress(f"loading {request.model}")
    spec = calc.load(request.model)
    return step_operators.step_work(spec, request.sizes, options=request.options, cache=request.cache, progress=progress)


# -- plain data -------------------------------------------------------------------------------------------------------


def document(found: Found) -> dict[str, Any]:
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
    return {"phase": work.phase, "site": work.site, "operator": work.name, "times": of.text(work.times), **counts}


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


def _row(row: Row) -> dict[str, Any]:
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


def show(found: Found, top: int, out: Console) -> None:
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


def ceilings(found: Found) -> tuple[str, ...]:
    """The rates in words: of the products by format, of the memory, of the launches."""
    at = found.eager.ceiling
    rates = (f"{rate(at.device.peak(d), 'FLOP')} dense {d} (ridge {significant(at.ridge(d))} FLOP per byte)" for d in found.formats)
    launch = LAUNCH_SOURCE if at.launch == LAUNCH_SECONDS else f"{float(at.launch):g} s from one kernel to the next, as asked"
    return f"products at {', '.join(rates) or 'no rate: there are none'}; memory at {rate(Fraction(at.device.bandwidth), 'B')}", launch


def notes(found: Found) -> tuple[str, ...]:
    """What must be known of the numbers."""
    loop = "optimizer" in found.eager.phases and found.options.get("implementation", "loop") == "loop"
    return NOTE, FUSED, *((LOOP,) if loop else ())


def finding(found: Found) -> str:
    """What dominates, in a sentence."""
    total, fused = found.eager.total, found.fused.total
    if not total.seconds:
        return "The step takes no time at these ceilings."
    share = total.bounds[total.dominant] / total.seconds
    bound = {MEMORY: "memory traffic", LAUNCH: "launches"}.get(total.dominant, "compute")
    site, sums = found.eager.by_site()[0]
    least = f"At least {duration(total.seconds)} eager and {duration(fused.seconds)} fused"
    taken = percent(sums.seconds / total.seconds)
    return f"{least}; {percent(share)} of the eager time is bound by {bound}, and {site} takes {taken}."


def _phases(found: Found, out: Console) -> None:
    from reports.views.columns import columns

    heads = ("FLOP", "eager bytes", "fused bytes", "kernels", "fused", "eager time", "fused time")
    made = columns("phase", *((head, "right") for head in heads), "bound by")
    rows = [(phase, found.eager.phase(phase), found.fused.phase(phase)) for phase in found.eager.phases]
    for name, eager, fused in (*rows, ("step", found.eager.total, found.fused.total)):
        counts = (eager.flops, eager.bytes, fused.bytes, eager.launches, fused.launches)
        made.add_row(name, *(f"{c:,}" for c in counts), duration(eager.seconds), duration(fused.seconds), bounds(eager))
    out.print(made)


def _sites(found: Found, top: int, out: Console) -> None:
    from rich.text import Text

    from reports.views.columns import columns

    sites, total = found.eager.by_site(), found.eager.total.seconds
    made = columns("site, forward and backward", *((head, "right") for head in ("FLOP/byte", "eager time", "share")), "bound by")
    for site, sums in sites[:top]:
        intensity = significant(Fraction(sums.flops, sums.bytes)) if sums.bytes else "-"
        made.add_row(Text(visible(site)), intensity, duration(sums.seconds), _share(sums.seconds, total), bounds(sums))
    out.print(made)
    _left_out(len(sites) - top, "sites", out)


def _operators(found: Found, top: int, out: Console) -> None:
    from rich.text import Text

    from reports.views.columns import columns

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


def bounds(sums: Sums) -> str:
    """The shares of the bounds, the largest first; below a thousandth they are left out."""
    shares = sorted(((bound, seconds / sums.seconds) for bound, seconds in sums.bounds.items() if seconds), key=lambda pair: -pair[1])
    return ", ".join(f"{bound} {percent(share)}" for bound, share in shares if share >= Fraction(1, 1000))


def _share(part: Fraction, whole: Fraction) -> str:
    return percent(part / whole) if whole else "-"
