"""What a command does, between its words and its output: load, derive, check, compare, write. The one place that calls ``calc``."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import calc
from calc.derive.live_bytes import Timeline
from calc.derive.quantities import QUANTITIES, absent
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import RULES, Comparison, compare
from calc.derive.to_json import number, to_json, verdict
from calc.errors import BadInputError, MeasurementError, NapkinError, RefusedOperatorError, SpecError
from calc.graph.coverage import Ledger
from calc.hardware.accelerators import Accelerator, accelerator
from calc.memory.inference import Inference
from calc.memory.saving import Saving
from calc.options import Options
from calc.performance.measuring import Measured, MeasuringOptions
from calc.performance.records import Evidence, evidence_for, recorded
from calc.pipeline import pipeline
from calc.platform import files
from reports.figures.drawn import UNNAMED
from reports.figures.shapes import Figure
from reports.jobs.request import Request as Request
from reports.jobs.request import json_text as json_text
from reports.jobs.request import sizes_from as sizes_from
from reports.jobs.request import version as version
from reports.page.build import build, today
from reports.page.inputs import FORMATS, Inputs, digest_of, file_of, folder_digest
from reports.page.model import Command, Page
from reports.page.records import measurements
from reports.writers import html, markdown, tex
from reports.writers.render import PLAIN, Look

VERDICTS = ("exact", "within", "proved", "failed", "not measured")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished report. ``checks`` is ``None`` where the run was not possible, and ``unchecked`` says why."""

    page: Page
    files: tuple[Path, ...]
    checks: Any
    unchecked: str


def derive(request: Request, progress: Progress) -> Derivation:
    """The derivation at the request's sizes, with this program's version in its provenance."""
    progress(f"loading {request.model}")
    spec = calc.load(request.model)
    spec.sizes(request.sizes)  # a size that cannot be is refused before the work begins
    found = calc.derive(spec, request.sizes, cache=request.cache, progress=progress, **request.options.to_json())
    # A library that happens to be loaded has no part in a model of our own.
    versions = {name: of for name, of in found.provenance.items() if found.source != "built-in" or name != "transformers"}
    return replace(found, provenance={"napkin": version(), **versions})


def derive_each(
    request: Request, option: str, values: Sequence[str], progress: Progress
) -> tuple[dict[str, Derivation], dict[str, str]]:
    """The derivations with each of ``values`` for one option of the step, and why the model refuses the others."""
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
        found = derive(request, progress)
    except RefusedOperatorError as error:
        if error.ledger is None:
            raise
        spec = calc.load(request.model)
        return Covered(spec.name, spec.sizes(request.sizes), error.ledger, error)
    return Covered(found.model, found.sizes, found.ledger)


def require_explained(name: str, options: Mapping[str, str]) -> None:
    """Refuse what no derivation with ``options`` explains, before any work."""
    if name in QUANTITIES and absent(name, options):
        raise BadInputError(f"{name} has no steps to show: {absent(name, options)}; choose another quantity, or --mode train")
    known = (*QUANTITIES, *(rule.name for rule in RULES))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInputError(f"no quantity or rule of thumb {name[:60]!r}: see napkin list quantities and napkin list thumbs{hint}")


def comparisons(derivation: Derivation, explain: str | None = None) -> tuple[Comparison, ...]:
    """The rules of thumb beside a derivation: all of them, or what is needed to explain one thing."""
    return compare(derivation, [rule for rule in RULES if explain in (None, rule.name)])


def check(derivation: Derivation, sizes: Mapping[str, int], device: str, progress: Progress) -> Any:
    """Verdicts of a real run at ``sizes``; where they leave one open, the spec's own size for checks stands."""
    return calc.check(derivation, device=device, progress=progress, **sizes)


def page(
    request: Request,
    derivation: Derivation,
    checks: Any = None,
    comparisons: Sequence[Comparison] = (),
    live: Timeline | None = None,
    untimed: str = "",
) -> Page:
    """The document of a derivation for a terminal."""
    asked = live is not None or bool(untimed)
    commands = _commands(request, checks)
    return build(derivation, checks, comparisons, commands, request.sizes, timeline=live, no_timeline=untimed, sensitivity=asked)


def timeline(derivation: Derivation, progress: Progress) -> tuple[Timeline | None, str]:
    """Live bytes over the step; else why there are none."""
    try:
        return pipeline.timeline(derivation, progress=progress), ""
    except NapkinError as error:
        return None, str(error)


@dataclass(frozen=True, slots=True)
class Made:
    """A report before it is written: its texts by file name. ``environment`` is of this machine, whatever was noted in them."""

    page: Page
    texts: Mapping[str, str]
    environment: Mapping[str, str]
    checks: Any
    unchecked: str


def report(
    request: Request, directory: Path, device: str, progress: Progress, latex: bool = False, look: Look = PLAIN, gpu: str = ""
) -> Outcome:
    """Derive, check at small sizes, and write the three files, and LaTeX source where it is wanted; none is written before all of them
    can be."""
    formats = [suffix for suffix in FORMATS if latex or suffix != ".tex"]
    made = make(request, device, progress, look=look, gpu=gpu, formats=formats)
    return Outcome(made.page, write_all(directory, made.texts), made.checks, made.unchecked)


def make(
    request: Request,
    device: str,
    progress: Progress,
    stamp: Inputs | None = None,
    look: Look = PLAIN,
    gpu: str = "",
    formats: Collection[str] = FORMATS,
) -> Made:
    """The texts of a report in ``formats``. With ``stamp`` they are those of that day and machine, as far as they were noted; else of
    this one.

    ``gpu`` is the accelerator whose memory and rates the figures show.
    """
    named = accelerator(gpu) if gpu else None
    derivation = derive(request, progress)
    seen = evidence(derivation)  # a record that cannot be read is refused before anything runs
    checks, unchecked = None, ""
    try:
        checks = check(derivation, _widths(request, derivation), device, progress)
    except MeasurementError as error:
        unchecked = str(error)
    live, untimed = timeline(derivation, progress)
    progress("writing the report")
    inputs = replace(_inputs(request, derivation, checks, device, look), gpu=gpu)
    here = inputs.environment
    if stamp is not None:
        derivation, checks = _stamped(derivation, checks, stamp.environment)
        inputs = inputs.as_noted(stamp)
    compared = comparisons(derivation)
    given = (request.sizes, unchecked, live, untimed)
    commands = _commands(request, checks, gpu)
    roof = _roof(request, named, progress)
    made = build(derivation, checks, compared, commands, *given, inputs=inputs, evidence=seen, device=named, roof=roof)

    def data() -> dict[str, Any]:
        return {**to_json(derivation, checks, compared, live), "measurements": measurements(seen), **carried(inputs)}

    writers: dict[str, Callable[[], str]] = {
        ".md": lambda: markdown.write(made, look),
        ".html": lambda: html.write(made, look),
        ".tex": lambda: tex.write(made, look),
        ".json": lambda: json_text(data()),
    }
    return Made(made, {f"report{suffix}": writers[suffix]() for suffix in formats}, here, checks, unchecked)


def _roof(request: Request, named: Accelerator | None, progress: Progress) -> Figure:
    """The step under the device's rates; where they cannot bound it, why."""
    if named is None:
        return UNNAMED
    from calc.performance.roofline import RooflineCeiling
    from reports.figures.roofline import figure
    from reports.jobs import roofline

    try:
        return figure(roofline.compute(request, RooflineCeiling(named), progress))
    except NapkinError as error:
        return replace(UNNAMED, absent=str(error))


def carried(inputs: Inputs) -> dict[str, Any]:
    """What a JSON document carries of how it was made. Day and machine stand in it twice, as in the other formats: they cannot be made
    again, and what was edited in one place does not agree with the other."""
    return {"made": {"date": inputs.date, "environment": dict(inputs.environment)}, "inputs": json.loads(inputs.text())}


def evidence(derivation: Derivation) -> Evidence:
    """What is recorded of real runs of the step: in the records that come with Napkin, and in the user's own."""
    folder = Path(str(resources.files("reports").joinpath("measurements")))
    records = recorded((folder,))
    return evidence_for(derivation.model, derivation.source, derivation.options, derivation.sizes, records)


def _inputs(request: Request, derivation: Derivation, checks: Any, device: str, look: Look) -> Inputs:
    """What makes this report again."""
    file = file_of(request.model)
    environment = {**derivation.provenance, **{f"check: {name}": value for name, value in getattr(checks, "provenance", {}).items()}}
    return Inputs(
        kind="report",
        model=request.written or request.model,
        sizes=dict(request.sizes),
        options=request.options.to_json(),
        device=device,
        digest=digest_of(file) if file is not None else "",
        template="" if look.template == PLAIN.template else look.template.removesuffix(".j2"),
        templates=folder_digest(look.folder) if look.folder is not None else "",
        date=today(),
        environment={"source": derivation.source, **{name: str(value) for name, value in environment.items()}},
    )


def _stamped(derivation: Derivation, checks: Any, environment: Mapping[str, str]) -> tuple[Derivation, Any]:
    """With the versions and the machine that were noted, in place of those here."""
    versions = {name: environment.get(name, value) for name, value in derivation.provenance.items()}
    derivation = replace(derivation, provenance=versions, source=environment.get("source", derivation.source))
    if checks is not None:
        there = {name: environment.get(f"check: {name}", value) for name, value in checks.provenance.items()}
        checks = replace(checks, provenance=there)
    return derivation, checks


def _widths(request: Request, derivation: Derivation) -> dict[str, int]:
    """The given sizes at which a report checks: those that the spec does not make small (B and T, usually)."""
    small = getattr(derivation.spec, "check_at", {})
    return {name: size for name, size in request.sizes.items() if name not in small}


def inference(model: str, sizes: Mapping[str, int], progress: Progress, **how: Any) -> Inference:
    """What using a model takes at ``sizes``."""
    from calc.memory.inference import inference as infer

    progress(f"loading {model}")
    return infer(calc.load(model), sizes, progress=progress, **how)


def saving(request: Request, progress: Progress, save_seconds: float | None, failure_hours: float | None) -> Saving:
    """A checkpoint of a model, and how often to save where both times are given."""
    from calc.memory.saving import interval
    from calc.memory.saving import saving as save

    progress(f"loading {request.model}")
    chosen = None if save_seconds is None or failure_hours is None else interval(save_seconds, 3600 * failure_hours)
    return replace(save(calc.load(request.model), request.sizes, options=request.options, progress=progress), interval=chosen)


def no_cuda() -> str:
    """Why nothing is measured on a CUDA device here; empty where there is one."""
    from calc.performance.measuring import absent

    return absent()


def measure(request: Request, asked: MeasuringOptions, command: str) -> Measured:
    """Real steps of a model, timed; on a CUDA device their memory as well. ``command`` is kept with the measurement."""
    from calc.performance.measuring import measured

    asked.progress(f"loading {request.model}")
    return replace(measured(calc.load(request.model), (request.sizes,), request.options, asked), command=command)


def check_json(checks: Any, specialized: Mapping[str, Any]) -> dict[str, Any]:
    """A check as plain data. ``specialized`` are the dimensions that the closed forms lack, as a document has them."""
    return {
        "schema": 1,
        "model": checks.model,
        "sizes": {name: number(size) for name, size in checks.sizes.items()},
        "because": checks.because,
        "options": dict(checks.options),
        "specialized": specialized,
        "tally": {kind: sum(v.verdict == kind for v in checks.verdicts) for kind in VERDICTS},
        "exchanged": list(checks.exchanged),
        "checks": [verdict(v) for v in checks.verdicts],
        "provenance": dict(checks.provenance),
    }


def write_all(directory: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write all files or none; those behind symbolic links are written, and returned. A reader never sees half a report."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        raise BadInputError(f"cannot write a report to {files.shown(directory)}: {getattr(error, 'strerror', None) or error}") from None
    return files.write(*(files.Output(directory / name, text) for name, text in texts.items()), what="a report to")


# -- commands that a report names ----------------------------------------------------------------------------------------


def _commands(request: Request, checks: Any, gpu: str = "") -> tuple[Command, ...]:
    words = _line(request, request.sizes)
    found = [
        Command("Make this report again:", f"napkin report {words}{f' --gpu {shlex.quote(gpu)}' if gpu else ''}"),
        Command("The same numbers as JSON:", f"napkin derive {words} --json"),
        Command("The steps of one quantity on the terminal:", f"napkin derive {words} --explain memory.peak"),
        Command("What is alive at the peak, and what moves it:", f"napkin derive {words} --peak"),
        Command("What is kept for the backward, tensor by tensor:", f"napkin derive {words} --saved"),
    ]
    if checks is not None:
        differing = _differing(request, checks)
        settable = {dim: size for dim, size in checks.sizes.items() if dim in differing}
        found.append(Command("Run the checks of this report again:", f"napkin check {_line(request, settable)}"))
    return tuple(found)


def _differing(request: Request, checks: Any) -> set[str]:
    """Sizes that a check command must name: those given, and those that the spec made small."""
    spec = calc.load(request.model)
    named = set(request.sizes) | set(spec.check_at)
    return {name for name in named if name in checks.sizes and not spec.dimensions[name].tied}


def _line(request: Request, sizes: Mapping[str, int]) -> str:
    words = [shlex.quote(request.written or request.model), *(f"-d {name}={value}" for name, value in sizes.items())]
    default = Options().to_json()
    words += [f"--{name.replace('_', '-')} {value}" for name, value in request.options.to_json().items() if value != default.get(name)]
    return " ".join(words)
