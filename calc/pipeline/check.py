"""Derived against measured: runs the same step for real and compares it with every quantity of the derivation.

Integers are compared as integers; any unexpected difference fails. Where torch has no instrument (matmuls inside fused attention) the
verdict is "in parts": the same matmuls were run and counted one by one, and what they leave out is the expected difference. What could
not be measured is reported as such and never counts as passed. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from calc.derive.quantities import absent, applies
from calc.derive.result import Derivation, Quantity
from calc.errors import BadInputError, DimensionError, FreeMemoryError, MeasurementError, suggestion
from calc.graph.exchanges import headlines, of_counting
from calc.graph.guards import EVERY_EXPERT
from calc.options import Options, by_cuda
from calc.pipeline.observed import at_observed
from calc.pipeline.verdict import EXACT, FAILED, IN_PARTS, NOT_MEASURED, PASSED, Verdict, judged
from calc.platform.tables import text_table
from calc.spec import Spec
from calc.symbolic.assignments import TYPED, sizes_text

if TYPE_CHECKING:
    from calc.measure import Measurement, Reading
from calc.symbolic.assignments import PLAIN

OPERATORS = "operators"

# The reason of a difference that is recomputed inside a fused kernel.
_REPEATED = (
    "the derived number includes {:,} FLOP of recomputation inside the kernel (flops.backward.recompute), which no counter sees: this"
    " difference is expected"
)

_FUSED = ("scaled_dot_product_flash", "scaled_dot_product_efficient")

# Measured numbers that add up to each total. Totals have no instrument of their own.
_PARTS: dict[str, tuple[str, ...]] = {
    f"flops.{phase}.total": (f"flops.{phase}.matmul", f"flops.{phase}.elementwise") for phase in ("forward", "backward", "optimizer")
}
_PARTS["flops.step.total"] = tuple(part for parts in tuple(_PARTS.values()) for part in parts)


def _parts(name: str, options: Mapping[str, str]) -> list[str]:
    """The parts of a total in a step with ``options``: only those that the step runs."""
    return [part for part in _PARTS.get(name, ()) if not absent(part, options)]


_RECOMPUTE = "flops.backward.recompute"

# Quantities that include the matmuls that fused attention's backward recomputes.
_REPEATING = ("flops.backward.matmul", "flops.backward.total", "flops.step.total")


def _shown(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """All verdicts of one check, with its sizes and software versions. ``because`` is the reason for these sizes; ``exchanged`` lists where
    torch runs other kernels by default, and by how much the default step differs; ``counted_with`` those that count FLOPs only."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    verdicts: tuple[Verdict[int], ...]
    provenance: Mapping[str, str]
    exchanged: tuple[str, ...] = ()
    because: str = ""
    counted_with: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The tally, then every verdict in a line."""
        rows = [(v.quantity, _shown(v.derived), _shown(v.measured), str(v.verdict), v.because or v.instrument or "") for v in self.verdicts]
        tally = f"{self.passed} passed, {self.failed} failed, {self.not_measured} not measured"
        return text_table(f"{self.model} at {sizes_text(self.sizes)}: {tally}", rows, frozenset({1, 2}))

    @property
    def passed(self) -> int:
        return sum(v.passed for v in self.verdicts)

    @property
    def failed(self) -> int:
        return sum(v.failed for v in self.verdicts)

    @property
    def not_measured(self) -> int:
        return sum(v.verdict == NOT_MEASURED for v in self.verdicts)

    @property
    def ok(self) -> bool:
        """Whether nothing failed. What was not measured neither passes nor fails."""
        return self.failed == 0

    @property
    def tally(self) -> str:
        """``14 passed (12 exact, 2 in parts), 0 failed, 3 not measured``."""
        kinds = ", ".join(f"{n} {kind}" for kind in PASSED if (n := sum(v.verdict == kind for v in self.verdicts)))
        return f"{self.passed} passed{f' ({kinds})' if kinds else ''}, {self.failed} failed, {self.not_measured} not measured"

    def __getitem__(self, quantity: str) -> Verdict[int]:
        for verdict in self.verdicts:
            if verdict.quantity == quantity:
                return verdict
        raise BadInputError(f"{quantity!r} was not checked: {suggestion(quantity, (v.quantity for v in self.verdicts))}")

    def lines(self) -> list[str]:
        """The tally, exchanged kernels, the reason for these sizes, then one line per verdict."""
        at = sizes_text(self.sizes, TYPED)
        why = [f"these sizes: {self.because}"] if self.because else []
        return [f"{self.model} at {at}: {self.tally}", *self.exchanged, *self.counted_with, *why, *map(str, self.verdicts)]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def check(
    derivation: Derivation, *, device: str = "cpu", progress: Callable[[str], None] | None = None, seed: int = 0, **sizes: int
) -> Report:
    """The verdicts on every quantity: the derived step is run for real at ``sizes``, with weights and inputs drawn from ``seed``.

    Sizes not given are the spec's sizes for checks, then those of the derivation. Raises ``BadInputError`` for a derivation without its
    spec, and ``MeasurementError`` if the run fails or needs more memory than is free.
    """
    require_device_of(derivation.options, device)
    try:
        spec = _spec_of(derivation)
        small = chosen(derivation, spec, sizes)
    except DimensionError:  # its trace may need multiples that the model does not
        derivation = derivation.at_sizes(sizes)
        spec = _spec_of(derivation)
        small = chosen(derivation, spec, sizes)
    at, whole = small.sizes, derivation
    untied = {name: size for name, size in at.items() if not spec.dimensions[name].tied}
    derivation = derivation.at_sizes(untied)
    derived = {name: quantity.value for name, quantity in derivation.quantities.items()}
    _require_room(derived, _shrinkable(whole, at))

    from calc.measure import measure

    if progress is not None and (flops := derived.get("flops.step.total")) is not None:
        progress(f"running two steps of {flops:,} FLOP each")
    measurement = measure(spec, at, options=_options(derivation), device=device, progress=progress, seed=seed)
    because = small.because + _other_closed_forms(whole, derivation)
    if not any(dim.unbacked_at for dim in derivation.dims):
        return replace(compare(derivation, derived, measurement), because=because)
    observed = at_observed(
        derivation, at, measurement.unbacked_sizes, measurement.unbacked_first_step, lambda: _recounted(derivation, at, measurement)
    )
    report = compare(derivation, observed.numbers, measurement, observed.open_, observed.traced)
    skipped = _of_skipped_experts(derivation, report)
    if skipped:
        numbers = {name: None if name in skipped else number for name, number in observed.numbers.items()}
        report = compare(derivation, numbers, measurement, {**observed.open_, **skipped}, observed.traced)
    return replace(report, because=because)


def _of_skipped_experts(derivation: Derivation, report: Report) -> dict[str, str]:
    """Why quantities have no number where the run skipped an expert: some parameters of a step in which rows choose experts have no
    gradient."""
    gradients = next((v for v in report.verdicts if v.quantity == "gradients.bytes"), None)
    if gradients is None or gradients.verdict != FAILED or all(a.because != EVERY_EXPERT for a in derivation.assumptions):
        return {}
    why = f"the closed forms assume that {EVERY_EXPERT}, and in the real run one has none: check with more rows"
    return {v.quantity: why for v in report.verdicts if v.verdict == FAILED and (v.measured or 0) < (v.derived or 0)}


def _spec_of(derivation: Derivation) -> Spec:
    if isinstance(derivation.spec, Spec):
        return derivation.spec
    raise BadInputError(f"{derivation.model} was derived from a graph alone, which cannot be run: derive it from its spec to check it")


def require_device_of(options: Mapping[str, str], device: str) -> None:
    """Raises ``MeasurementError`` for the kernels of a CUDA device on a CPU."""
    if by_cuda(options) and not device.startswith("cuda"):
        raise MeasurementError("the step of a CUDA device's kernels does not run on a CPU: napkin measure compares it on a GPU")


def _other_closed_forms(derivation: Derivation, at_check_sizes: Derivation) -> str:
    """A note if the step at the check's sizes has other closed forms: the check then covers those."""
    same = all(_closed_form(derivation[name]) == _closed_form(at_check_sizes[name]) for name in derivation)
    note = "; there the step runs other operators than at the sizes of the derivation, so the check is of closed forms derived there"
    return "" if same else note


def _closed_form(quantity: Quantity) -> object:
    """The closed form for comparison; candidates of a peak are ordered by their values."""
    return {candidate.expr for candidate in quantity.candidates} or quantity.text


def _recounted(derivation: Derivation, at: Mapping[str, int], measurement: Measurement) -> Mapping[str, int]:
    """Quantities of a trace, counted by the same rules, whose masks select as many elements as in the second step of the real run."""
    from calc.trace import trace_at

    assert isinstance(derivation.spec, Spec)
    assert derivation.count_trace is not None
    # Both steps of the trace use the second step's counts: saved tensors are observed in the first.
    met = {place: 2 * counts for place, counts in measurement.unbacked_sizes.items()}
    return derivation.count_trace(trace_at(derivation.spec, derivation.specialized, at, met, _options(derivation))).quantities


def _require_room(derived: Mapping[str, int | None], numbers: Mapping[str, int]) -> None:
    """Raise ``FreeMemoryError`` if the run would not fit. ``numbers`` are sizes for checks that only a user may set."""
    from calc.measure.free_memory import available_bytes

    needed, available = derived.get("memory.peak"), available_bytes()
    if needed is not None and needed > available:
        given = f"; {sizes_text(numbers, TYPED)} must be given, since closed forms hold at other numbers" if numbers else ""
        advice = f": check at smaller sizes, given here or as check_at of the spec{given}"
        raise FreeMemoryError(f"the run would allocate {needed:,} bytes at its peak", available, advice)


def _shrinkable(derivation: Derivation, at: Mapping[str, int]) -> dict[str, int]:
    """The sizes for checks that are smaller than those of the run, since dimensions without a closed form keep their own."""
    check_at = derivation.spec.check_at if isinstance(derivation.spec, Spec) else {}
    return {name: size for name, size in check_at.items() if name in derivation.specialized and size < at.get(name, size)}


def _options(derivation: Derivation) -> Options:
    names = {f.name for f in fields(Options)}
    return Options(**{name: value for name, value in derivation.options.items() if name in names})


# -- judging -----------------------------------------------------------------------------------------------------------


def compare(
    derivation: Derivation,
    derived: Mapping[str, int | None],
    measurement: Measurement,
    open_: Mapping[str, str] | None = None,
    traced: Mapping[str, str] | None = None,
) -> Report:
    """Verdicts of a measurement on the numbers derived for its sizes. ``open_`` explains why a derived quantity has no number there,
    ``traced`` why it has that of a trace instead of its closed form's."""
    open_, traced = open_ or {}, traced or {}
    at = sizes_text(measurement.sizes, TYPED)
    covered = [row.operator for row in derivation.coverage]
    fused = bool(_fused({*covered, *measurement.operators}))
    # The counter sees recomputed operators, but not recomputation inside a fused kernel.
    repeated = (derived.get(_RECOMPUTE) or 0) - measurement.recompute if fused else 0
    verdicts = []
    for name in derivation:
        if applies(name, derivation[name].unknown, derivation.options):  # an operator that does not run needs no number
            why = derivation[name].unknown or open_.get(name, "")
            verdict = _judge(name, derived[name], why, measurement, repeated if name in _REPEATING else 0)
            verdicts.append(replace(verdict, notes=(*verdict.notes, traced[name])) if name in traced else verdict)
    return Report(
        model=derivation.model,
        sizes=measurement.sizes,
        options=measurement.options,
        verdicts=(*verdicts, _judge_operators(measurement.operators, covered)),
        provenance=measurement.provenance,
        exchanged=tuple(headlines(derivation.assumptions, measurement.exchanged, at)),
        counted_with=tuple(of_counting(measurement.exchanged)),
    )


def _judge(name: str, derived: int | None, unknown: str, measurement: Measurement, inside: int) -> Verdict[int]:
    """The verdict on one quantity. ``inside``: FLOPs recomputed inside a fused kernel, if the quantity includes them."""
    if derived is None:
        return Verdict(name, None, None, "", NOT_MEASURED, 0, f"not derived: {unknown}")
    parts = [name] if name in measurement.readings else _parts(name, measurement.options)
    missing = [part for part in parts if part not in measurement.readings]
    if not parts or missing:
        because = _no_instrument(name)
        return Verdict(name, derived, None, "", NOT_MEASURED, 0, because, notes=(because,))
    readings = [measurement[part] for part in parts]
    lacking = [r.because for r in readings if r.value is None]
    if lacking:
        return _read(name, derived, None, readings, NOT_MEASURED, lacking)
    measured = sum(r.value for r in readings if r.value is not None)
    reasons = [r.because for r in readings if r.proxy]
    reasons += [_REPEATED.format(inside)] if inside else []
    if measured + inside == derived:
        word = IN_PARTS if any(r.proxy for r in readings) else EXACT
        return _read(name, derived, measured, readings, word, reasons, inside)
    off = f"derived is off by {derived - measured - inside:+,}"
    return _read(name, derived, measured, readings, FAILED, [off, *reasons], inside)


def _read(
    name: str, derived: int, measured: int | None, readings: list[Reading], word: str, reasons: list[str], expected: int = 0
) -> Verdict[int]:
    """The verdict ``word`` with each instrument of the readings and each reason once."""
    instruments, why = dict.fromkeys(r.instrument for r in readings), dict.fromkeys(filter(None, reasons))
    together = " + ".join(instruments)
    return Verdict(name, derived, measured, together, word, 0, "; ".join(why), expected=expected, notes=(*instruments, *why))


def _no_instrument(name: str) -> str:
    if name.endswith(".causal"):
        return "no instrument: torch counts attention without its mask"
    if name.endswith(".recompute"):
        return "no instrument separates recomputed matrix multiplications from others; their total is checked as flops.backward.matmul"
    return "no instrument"


def _judge_operators(executed: Iterable[str], covered: Iterable[str]) -> Verdict[int]:
    """Whether the derivation accounts for every operator that the real run executed."""
    executed = tuple(executed)
    foreign = sorted(name for name in set(executed) - set(covered) if not _is_registered(name))
    because = f"neither counted nor stated free: {', '.join(foreign)}" if foreign else ""
    return judged(OPERATORS, len(executed) - len(foreign), len(executed), "operators that the real run executed", because=because)


def _is_registered(operator: str) -> bool:
    """Whether an operator has a rule or a reason to be free: the trace may decompose an operator that the run executes whole."""
    from calc.rules import families  # noqa: F401  # importing it fills the registry
    from calc.rules.registry import REGISTRY

    return REGISTRY.find(operator) is not None


def _fused(operators: Iterable[str]) -> list[str]:
    return sorted(name for name in operators if any(fused in name for fused in _FUSED))


# -- sizes ------------------------------------------------------------------------------------------------------------
# Selects the sizes of a check's real run, with the reason: a step with billions of parameters is checked on a small version.


@dataclass(frozen=True, slots=True)
class Chosen:
    """All sizes of the run, and a sentence with the reason."""

    sizes: Mapping[str, int]
    because: str


def chosen(derivation: Derivation, spec: Spec, given: Mapping[str, int]) -> Chosen:
    """The given sizes; else those of the active special case (e.g. B = 1); else the spec's sizes for checks; else those of the derivation.

    Where Napkin reduced the spec's sizes for checks, of the special case only the number of layers is used, and sizes that are no larger.
    A default size follows the sizes in its expression (f = 4*d when d is set).
    """
    fixed = {
        n: v
        for n, v in derivation.specialized.items()
        if not spec.dimensions[n].tied and (not spec.reduced or n in spec.trip_counts or v <= spec.check_at.get(n, v))
    }
    free = [name for name in spec.check_at if spec.reduced and name not in given.keys() | fixed.keys()]
    small = spec.sizes_from(derivation.sizes, {**spec.check_at, **fixed, **given})
    raised = derivation.usual(small, free)
    sizes = spec.sizes_from(derivation.sizes, {**spec.check_at, **fixed, **given, **raised})
    return Chosen(sizes, _because(derivation, spec, given, sizes, {**fixed, **raised}, raised))


def _because(
    derivation: Derivation,
    spec: Spec,
    given: Mapping[str, int],
    sizes: Mapping[str, int],
    own: Mapping[str, int],
    raised: Mapping[str, int],
) -> str:
    moved = {name for name in sizes if sizes[name] != derivation.sizes[name] and not spec.dimensions[name].tied}
    small = [name for name in spec.check_at if name in moved and name not in given.keys() | own.keys()]
    reasons = [f"{', '.join(given)} as given"] if given else []
    if small:
        reasons.append(f"{', '.join(small)} small, {spec.reduced or 'as the model states for checks (check_at)'}")
    reasons += [f"{sizes_text(raised, PLAIN)}, the smallest at which the step runs as at the sizes of the derivation"] if raised else []
    special = [name for name in own if name not in given.keys() | raised.keys() and spec.check_at.get(name, own[name]) != own[name]]
    reasons += [f"{sizes_text({n: own[n] for n in special}, PLAIN)} as in the derivation, a special case"] if special else []
    return "; ".join(reasons) if moved or given else "those of the derivation"
