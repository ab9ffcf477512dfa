"""What a command does between its arguments and its output: load, derive, check, compare, write. The one place that calls ``calc``.

What only some commands need is imported inside functions, so that the others start without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import calc
from calc.derive.quantities import QUANTITIES, absent
from calc.errors import BadInputError, NapkinError, RefusedOperatorError, SpecError
from calc.graph.unbacked_sizes import declared_sizes
from calc.platform import files
from calc.platform.progress import Progress
from reports.jobs.request import Request as Request
from reports.jobs.request import json_text as json_text
from reports.jobs.request import sizes_from as sizes_from
from reports.jobs.request import version as version

if TYPE_CHECKING:
    from calc.derive.live_bytes import Timeline
    from calc.derive.result import Derivation
    from calc.derive.rules_of_thumb import RuleComparison
    from calc.graph.coverage import Ledger
    from calc.graph.step import StepTrace
    from calc.memory.checkpoint import Checkpoint
    from calc.memory.inference import Inference
    from calc.memory.peak_levers import PeakLever
    from calc.options import Options
    from calc.performance.measuring import Measured, MeasuringOptions
    from calc.spec import Spec
    from reports.page.equations import ModelSection


def load(model: str, progress: Progress) -> Spec:
    """The spec of a model, with progress from where it may take a while: a name that cannot be one is refused without."""
    from calc.models.load import require

    require(model)
    progress(f"loading {model}")
    return calc.load(model)


def derive(request: Request, progress: Progress, require: Callable[[Collection[str]], None] = lambda _: None) -> Derivation:
    """The derivation at the request's sizes, with this program's version in its provenance and the model's name as a report has it.
    ``require`` refuses dimensions of a model."""
    spec = load(request.model, progress)
    declared_sizes(spec, request.sizes)  # a size that cannot be is refused before the work begins
    require(spec.dimensions)
    derivation = calc.derive(spec, request.sizes, cache=request.cache, progress=progress, **request.options.to_json())
    # A library that happens to be loaded has no part in a model of our own.
    others = derivation.source != "built-in"
    versions = {name: of for name, of in derivation.provenance.items() if others or name != "transformers"}
    named_by_path = bool(request.written) and derivation.model == request.model
    model = request.written if named_by_path else derivation.model
    return replace(derivation, model=model, provenance={"napkin": version(), **versions})


def keep(request: Request, derivation: Derivation) -> None:
    """Keep the closed forms of a derivation for later commands, unless the request goes without the cache."""
    from calc.pipeline import precomputed

    if request.cache:
        precomputed.keep(request.model, derivation)


def derive_each(request: Request, option: str, values: Sequence[str], progress: Progress) -> tuple[dict[str, Derivation], dict[str, str]]:
    """The derivations with each of ``values`` for one option of the step, and why the model refuses the others."""
    from calc.models.load import require

    require(request.model)
    derivations, refused = {}, {}
    for value in values:
        progress(f"{option} {value}")
        try:
            derivations[value] = derive(replace(request, options=replace(request.options, **{option: value})), progress)
        except SpecError as error:
            refused[value] = str(error)
    return derivations, refused


@dataclass(frozen=True, slots=True)
class Covered:
    """The ledger of a step's operators; of a step that is refused, with the refusal."""

    model: str
    sizes: Mapping[str, int]
    ledger: Ledger
    refusal: RefusedOperatorError | None = None


def covered(request: Request, progress: Progress) -> Covered:
    """How much of a step is counted, refused or not. What cannot even be recorded has no ledger."""
    try:
        derivation = derive(request, progress)
    except RefusedOperatorError as error:
        if error.ledger is None:
            raise
        spec = calc.load(request.model)
        return Covered(spec.name, declared_sizes(spec, request.sizes), error.ledger, error)
    return Covered(derivation.model, derivation.sizes, derivation.ledger)


def require_explained(name: str, options: Mapping[str, str]) -> None:
    """Refuse what no derivation with ``options`` explains, before any work."""
    if name in QUANTITIES and absent(name, options):
        raise BadInputError(f"{name} has no steps to show: {absent(name, options)}; choose another quantity, or --mode train")
    if name in QUANTITIES:
        return
    from calc.derive.rules_of_thumb import RULES

    names = (*QUANTITIES, *(rule.name for rule in RULES))
    if name not in names:
        raise BadInputError(
            f"no quantity or rule of thumb {name[:60]!r}: see napkin list quantities and napkin list rules-of-thumb{nearest(name, names)}"
        )


def nearest(name: str, names: Iterable[str]) -> str:
    """``; did you mean memory.peak?``, or nothing where none of ``names`` is close."""
    import difflib  # only where something is refused

    near = difflib.get_close_matches(name, [*names], n=1)
    return f"; did you mean {near[0]}?" if near else ""


def comparisons(derivation: Derivation, explain: str | None = None) -> tuple[RuleComparison, ...]:
    """The rules of thumb beside a derivation: all of them, or what is needed to explain one thing."""
    from calc.derive.rules_of_thumb import RULES, compare

    return compare(derivation, [rule for rule in RULES if explain in (None, rule.name)])


def require_checkable(request: Request, device: str) -> None:
    """Refuse a step that does not run on ``device``, before any work."""
    from calc.pipeline.check import require_device_of

    require_device_of(request.options.to_json(), device)


def check(derivation: Derivation, sizes: Mapping[str, int], device: str, progress: Progress, seed: int = 0) -> Any:
    """Verdicts of a real run at ``sizes``; where they leave one open, the spec's own size for checks stands."""
    return calc.check(derivation, device=device, progress=progress, seed=seed, **sizes)


def timeline(derivation: Derivation, progress: Progress) -> tuple[Timeline | None, str]:
    """Live bytes over the step; else why there are none."""
    from calc.pipeline import pipeline

    try:
        return pipeline.timeline(derivation, progress=progress), ""
    except NapkinError as error:
        return None, str(error)


def levers(derivation: Derivation, request: Request, progress: Progress) -> tuple[PeakLever, ...]:
    """Changes of a step that may lower its peak, each derived, where possible on two cores."""
    from calc.memory.peak_levers import changes, peak_levers
    from calc.options import Options
    from calc.pipeline import pipeline

    spec = calc.load(request.model)
    tried = [Options(**{**derivation.options, **change.options}) for change in changes(derivation.options, derivation.sizes)]
    seconds = [0.0]

    def silently(options: Options, sizes: Mapping[str, int], progress: Progress = lambda _: None) -> Derivation | StepTrace:
        return pipeline.derived_or_traced(derivation, spec, {**request.sizes, **sizes}, pipeline.Run(options, request.cache, progress))

    def changed(options: Options, sizes: Mapping[str, int]) -> Derivation | StepTrace:
        changed_options = ", ".join(f"{name} {value}" for name, value in options.to_json().items() if value != derivation.options.get(name))
        about = f", about {seconds[-1]:.0f} s, like the one before" if seconds[-1] >= 1 else ""
        progress(f"deriving a change that may lower the peak, {tried.index(options) + 1} of {len(tried)}: {changed_options}{about}")
        begin = time.perf_counter()
        try:
            return silently(options, sizes, progress)
        finally:
            seconds.append(time.perf_counter() - begin)

    return peak_levers(derivation, changed, silently)


def equations(derivation: Derivation, progress: Progress, model: str = "") -> ModelSection:
    """The forward and, of a training step, the gradients as equations; else why there are none. ``model``: what a command calls it."""
    from calc.mathematics.autodiff.derived import derived, without_gradients
    from calc.mathematics.gradients import traced
    from calc.options import TRAIN, Options
    from reports.page.equations import NO_EQUATIONS, model_section
    from reports.page.static_sizes import NO_STATIC_SIZES, static_size_table

    if derivation.spec is None:
        return NO_EQUATIONS
    if derivation.ledger.calls > _MOST_CALLS and not derivation.trip_counts:
        return replace(NO_EQUATIONS, why=f"this step has {derivation.ledger.calls:,} operators, and no loop over equal layers")
    mode, attention = derivation.options.get("mode", TRAIN), derivation.options.get("attention", "fused")
    numbers = NO_STATIC_SIZES
    try:
        program = traced(derivation.spec, options=Options(attention=attention, mode=mode), progress=progress)
        numbers = static_size_table(program)
        progress("deriving gradients" if mode == TRAIN else "writing the model's equations")
        of = derived(program) if mode == TRAIN else without_gradients(program)
        return model_section(of, mode=mode, numbers=numbers, model=model or derivation.model)
    except NapkinError as error:
        return model_section(None, str(error), numbers=numbers)


# Operators of a step whose equations fill no page. The equations of a loop are those of two iterations, however many there are.
_MOST_CALLS = 20_000


def inference(model: str, sizes: Mapping[str, int], progress: Progress, **how: Any) -> Inference:
    """What using a model takes at ``sizes``."""
    from calc.memory.inference import inference as infer

    return infer(load(model, progress), sizes, progress=progress, **how)


def saving(
    request: Request, progress: Progress, save_seconds: float | None, failure_hours: float | None, schedule: str = "", seed: int = 0
) -> Checkpoint:
    """A checkpoint of a model, trained from ``seed``, with a scheduler if one is named; how often to save where both times are given."""
    from calc.memory.checkpoint import interval
    from calc.memory.checkpoint import saving as save

    spec = load(request.model, progress)
    chosen = None if save_seconds is None or failure_hours is None else interval(save_seconds, 3600 * failure_hours)
    saved = save(spec, request.sizes, options=request.options, schedule=schedule, seed=seed, progress=progress)
    return replace(saved, interval=chosen)


def no_cuda() -> str:
    """Why nothing is measured on a CUDA device here; empty where there is one."""
    from calc.performance.measuring import absent

    return absent()


def measure(request: Request, options: MeasuringOptions, command: str) -> Measured:
    """Real steps of a model, timed; on a CUDA device their memory as well. ``command`` is kept with the measurement."""
    from calc.performance.measuring import measured

    spec = load(request.model, options.progress)
    return replace(measured(spec, (request.sizes,), request.options, options), command=command)


def check_json(checks: Any, specialized: Mapping[str, Any]) -> dict[str, Any]:
    """A check as plain data. ``specialized`` are the dimensions that the closed forms lack, as a document has them."""
    from calc.derive.to_json import number, verdict
    from calc.pipeline.verdict import VERDICTS

    return {
        "schema": 1,
        "model": checks.model,
        "sizes": {name: number(size) for name, size in checks.sizes.items()},
        "because": checks.because,
        "options": dict(checks.options),
        "specialized": specialized,
        "tally": {kind: sum(v.verdict == kind for v in checks.verdicts) for kind in VERDICTS},
        "exchanged": [*checks.exchanged, *checks.counted_with],
        "checks": [verdict(v) for v in checks.verdicts],
        "provenance": dict(checks.provenance),
    }


def write_all(directory: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write all files or none; those behind symbolic links are written, and returned. A reader never sees half a report.
    Raises ``BadInputError`` if they cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        raise BadInputError(f"cannot write a report to {files.shown(directory)}: {getattr(error, 'strerror', None) or error}") from None
    return files.write(*(files.Output(directory / name, text) for name, text in texts.items()), label="a report to")
