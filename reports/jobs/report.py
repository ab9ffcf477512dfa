"""The job of ``napkin report``: a derivation, its checks and comparisons become a page, and the page becomes files."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import calc
from calc.capacity.homework import ASSIGNMENT
from calc.derive.quantities import QUANTITIES
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import RuleComparison
from calc.derive.to_json import to_json
from calc.errors import FreeMemoryError, MeasurementError, NapkinError
from calc.hardware.accelerators import Accelerator, accelerator
from calc.memory.peak_levers import PeakLever, levers_document, zero_document, zero_stages
from calc.options import Options, made
from calc.performance.records import Evidence, evidence_for, recorded
from calc.platform.progress import Progress
from reports.figures.drawn import UNNAMED
from reports.figures.shapes import Figure
from reports.jobs import job
from reports.jobs.recorded import FOLDER
from reports.jobs.request import Request, json_text
from reports.page.build import PageContent, build, today
from reports.page.equations import equations_document, matmuls_only, one_of_each_kind
from reports.page.inputs import FORMATS, REPORT, Inputs, digest_of, file_of, folder_digest
from reports.page.lighter import lighter
from reports.page.model import Command
from reports.page.peak import best_of, change_words
from reports.page.records import measurements
from reports.page.report import Page
from reports.page.static_sizes import static_sizes_document
from reports.writers import html, markdown, tex
from reports.writers.render import PLAIN, Look

_CHOSEN = "only chosen quantities are shown"
_HOMEWORK = "homework.j2"
_HOMEWORK_QUANTITIES = (*ASSIGNMENT, "flops.backward.matmul", "flops.step.total")
ALL = "all"  # in place of the name of a quantity


@dataclass(frozen=True, slots=True)
class ReportChoices:
    """What a report shows beside the request: checks on a ``device``, figures of the accelerator ``gpu``, and ``quantities``, those to
    derive, or ``ALL``; without any, a homework answers the questions of an assignment, with every step and equation where the page has room
    for them, and every other template shows all. ``interactive``: a page with a script too."""

    device: str = "cpu"
    look: Look = PLAIN
    gpu: str = ""
    quantities: Sequence[str] = ()
    formats: Collection[str] = FORMATS
    interactive: bool = False


@dataclass(frozen=True, slots=True)
class BuiltReport:
    """A report: its texts by file name, and the ``files`` that they were written to. ``checks`` is ``None`` where the run was
    not possible, and ``unchecked`` says why. ``environment`` is of this machine, whatever was noted in the texts."""

    derivation: Derivation
    comparisons: tuple[RuleComparison, ...]
    checks: Any
    unchecked: str
    texts: Mapping[str, str]
    environment: Mapping[str, str]
    files: tuple[Path, ...] = ()


def report(request: Request, directory: Path, choices: ReportChoices, progress: Progress) -> BuiltReport:
    """Derive, check at small sizes, and write a file in each format, and a page with a script where it is wanted; none is written before
    all of them can be."""
    built = make(request, choices, progress)
    if choices.interactive:
        from reports.jobs.interactive import FILE
        from reports.jobs.interactive import interactive as scripted

        page = scripted(request, built.texts["report.html"], progress, choices.look, choices.gpu)
        built = replace(built, texts={**built.texts, FILE: page})
    return replace(built, files=job.write_all(directory, built.texts))


def make(request: Request, choices: ReportChoices, progress: Progress, stamp: Inputs | None = None) -> BuiltReport:
    """The texts of a report. With ``stamp`` they are those of that day and machine, as far as they were noted; else of this one."""
    content = _content(request, choices, progress)
    assert content.inputs is not None
    environment = content.inputs.environment
    if stamp is not None:
        derivation, checks = _stamped(content.derivation, content.checks, stamp.environment)
        content = replace(content, derivation=derivation, checks=checks, inputs=content.inputs.as_noted(stamp))
    content = replace(content, comparisons=job.comparisons(content.derivation))
    texts = _texts(content, choices.look, choices.formats, _answers_alone(content, request, choices))
    return BuiltReport(content.derivation, content.comparisons, content.checks, content.unchecked, texts, environment)


def _content(request: Request, choices: ReportChoices, progress: Progress) -> PageContent:
    """What was derived and run, without the comparisons with rules of thumb."""
    look, quantities = choices.look, choices.quantities
    shown = accelerator(choices.gpu) if choices.gpu else None
    derivation = job.derive(request, progress)
    only = _shown(look, quantities, derivation)
    records = evidence(derivation)  # a record that cannot be read is refused before anything runs
    checks, unchecked = _checked(request, derivation, choices.device, progress)
    live, no_timeline = (None, _CHOSEN) if only else job.timeline(derivation, progress)
    levers = () if only else job.levers(derivation, request, progress)
    section = job.equations(derivation, progress, shlex.quote(request.written or request.model))
    progress("writing the report")
    gpu = shown.id if shown is not None else ""
    return PageContent(
        derivation,
        checks,
        commands=(*_commands(request, checks, gpu, _layout(look, quantities)), *_command_of_lever(request, levers)),
        chosen=request.sizes,
        unchecked=unchecked,
        timeline=live,
        no_timeline=no_timeline,
        inputs=replace(_inputs(request, derivation, checks, choices.device, look), gpu=gpu, other=" ".join(quantities)),
        evidence=records,
        device=shown,
        roof=_roof(request, shown, progress),
        levers=levers,
        equations=one_of_each_kind(section) if look.template == _HOMEWORK else section,
        with_design=look.template == "design-section.j2",
        only=only,
        solved=look.template == _HOMEWORK,
    )


def _shown(look: Look, quantities: Collection[str], derivation: Derivation) -> Collection[str]:
    """The quantities of a page; empty for all. A homework has those of the assignment and the quantities that they add up, so that no
    total rests on a number without steps."""
    if not quantities and look.template == _HOMEWORK:
        return tuple(dict.fromkeys(_with_parts(_HOMEWORK_QUANTITIES, derivation)))
    return () if ALL in quantities else quantities


def _with_parts(names: Iterable[str], derivation: Derivation) -> Iterator[str]:
    """The quantities, and those that add up to them, but for parts that are 0 at every size."""
    for name in names:
        yield name
        parts = (part for part in QUANTITIES[name].parts if part in derivation and derivation[part].text != "0")
        yield from _with_parts(parts, derivation)


def _answers_alone(content: PageContent, request: Request, choices: ReportChoices) -> PageContent | None:
    """The homework without steps, for a format in which it is too heavy with them; ``None`` where quantities were chosen, and of every
    other template."""
    if choices.look.template != _HOMEWORK or choices.quantities:
        return None
    return replace(content, only=_HOMEWORK_QUANTITIES, further=_further(request))


def _checked(request: Request, derivation: Derivation, device: str, progress: Progress) -> tuple[Any, str]:
    """The checks by a real run, and why there are none."""
    try:
        return job.check(derivation, _widths(request, derivation), device, progress), ""
    except FreeMemoryError as error:
        return None, f"{error.needs}, more than is free: napkin check takes smaller sizes"
    except MeasurementError as error:
        return None, str(error)


_MOST_BYTES = 400_000  # of a page that is loaded whole and mailed
_WRITERS: Mapping[str, Callable[[Page, Look], str]] = {".md": markdown.write, ".html": html.write, ".tex": tex.write}


def _texts(content: PageContent, look: Look, formats: Collection[str], answers: PageContent | None) -> dict[str, str]:
    """By file name. ``answers``: the content of a page without steps, if there is one."""
    page = build(content)
    texts = {f"report{suffix}": _light(suffix, page, look, answers) for suffix in formats if suffix in _WRITERS}
    return texts | ({"report.json": json_text(_document(content))} if ".json" in formats else {})


def _light(suffix: str, page: Page, look: Look, answers: PageContent | None) -> str:
    """The page in the format of ``suffix``: the whole one, unless it is too heavy; then the first version that is not, or the last."""
    text = ""
    for version in itertools.chain((page,), _lighter(suffix, page) if answers is None else _without_steps(answers)):
        text = _WRITERS[suffix](version, look)
        if len(text.encode("utf-8")) < _MOST_BYTES:
            break
    return text


def _lighter(suffix: str, page: Page) -> Iterator[Page]:
    """Versions of a page, each lighter than the one before. In Markdown, equations that layers share but for their widths are shown once,
    and every step stays."""
    if suffix == ".html":
        yield from lighter(page)
    elif suffix == ".md":
        yield replace(page, equations=one_of_each_kind(page.equations))


def _without_steps(answers: PageContent) -> Iterator[Page]:
    """A homework with the answers alone: with every equation, then with matmuls and gradients of parameters."""
    page = build(answers)
    yield page
    yield replace(page, equations=matmuls_only(page.equations, f"napkin gradients {page.equations.model} prints all equations"))


def _document(content: PageContent) -> dict[str, Any]:
    """The JSON document."""
    assert content.inputs is not None
    assert content.evidence is not None
    return {
        **to_json(content.derivation, content.checks, content.comparisons, content.timeline),
        "levers": levers_document(content.levers),
        "zero": zero_document(zero_stages(content.derivation)),
        "equations": equations_document(content.equations),
        "static_sizes": static_sizes_document(content.equations.numbers),
        "measurements": measurements(content.evidence),
        **carried(content.inputs),
    }


def _roof(request: Request, device: Accelerator | None, progress: Progress) -> Figure:
    """The step under the device's rates; where they cannot bound it, why."""
    if device is None:
        return UNNAMED
    from calc.performance.roofline import RooflineCeiling
    from reports.figures.roofline import figure
    from reports.jobs import roofline

    try:
        return figure(roofline.compute(request, RooflineCeiling(device), progress))
    except NapkinError as error:
        return replace(UNNAMED, absent=str(error))


def carried(inputs: Inputs) -> dict[str, Any]:
    """What a JSON document carries of how it was made. Day and machine stand in it twice, as in the other formats: they cannot be made
    again, and what was edited in one place does not agree with the other."""
    return {"made": {"date": inputs.date, "environment": dict(inputs.environment)}, "inputs": json.loads(inputs.text())}


def evidence(derivation: Derivation) -> Evidence:
    """What is recorded of real runs of the step: in the records that come with Napkin, and in the user's own."""
    return evidence_for(derivation.model, derivation.source, derivation.options, derivation.sizes, recorded((FOLDER,)))


def _inputs(request: Request, derivation: Derivation, checks: Any, device: str, look: Look) -> Inputs:
    """What makes this report again."""
    file = file_of(request.model)
    environment = {**derivation.provenance, **{f"check: {name}": value for name, value in getattr(checks, "provenance", {}).items()}}
    return Inputs(
        kind=REPORT,
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
        stamped = {name: environment.get(f"check: {name}", value) for name, value in checks.provenance.items()}
        checks = replace(checks, provenance=stamped)
    return derivation, checks


def _widths(request: Request, derivation: Derivation) -> dict[str, int]:
    """The given sizes at which a report checks: those that the spec does not make small (B and T, usually)."""
    small = getattr(derivation.spec, "check_at", {})
    return {name: size for name, size in request.sizes.items() if name not in small}


def _layout(look: Look, quantities: Collection[str]) -> str:
    """The options of the layout; a folder of your own templates has no name that a page could tell."""
    named = look.template != PLAIN.template and (look.folder is None or bool(quantities))
    chosen = "".join(f" --quantity {name}" for name in quantities)
    return f" --template {look.template.removesuffix('.j2')}{chosen}" if named else ""


def _commands(request: Request, checks: Any, gpu: str = "", layout: str = "") -> tuple[Command, ...]:
    words = _line(request, request.sizes)
    commands = [
        Command("Make this report again:", f"napkin report {words}{f' --gpu {shlex.quote(gpu)}' if gpu else ''}{layout}"),
        Command("The same numbers as JSON:", f"napkin derive {words} --json"),
        Command("The steps of one quantity on the terminal:", f"napkin derive {words} --explain memory.peak"),
        Command("What is alive at the peak, and what moves it:", f"napkin derive {words} --peak"),
        Command("The tensors saved for backward, one by one:", f"napkin derive {words} --saved"),
    ]
    if checks is not None:
        differing = _differing(request, checks)
        settable = {dim: size for dim, size in checks.sizes.items() if dim in differing}
        commands.append(Command("Run the checks of this report again:", f"napkin check {_line(request, settable)}"))
    return tuple(commands)


def _command_of_lever(request: Request, levers: Sequence[PeakLever]) -> Iterator[Command]:
    """The command that derives the peak with the change of the step that lowers it most."""
    best = best_of(levers)
    if best is not None:
        options = made(**{**request.options.to_json(), **best.change.options})
        line = _line(replace(request, options=options), {**request.sizes, **best.change.sizes})
        yield Command(f"The peak with {change_words(best.change)}, derived:", f"napkin derive {line} --explain memory.peak")


def _further(request: Request) -> tuple[Command, ...]:
    """The commands that derive one quantity, and all, where a page has the answers alone."""
    line = f"napkin report {_line(request, request.sizes)} --template homework --quantity"
    return (
        Command("Every step of a quantity, memory.peak say:", f"{line} memory.peak"),
        Command("Every step of all quantities, and every equation of the model:", f"{line} {ALL}"),
    )


def _differing(request: Request, checks: Any) -> set[str]:
    """Sizes that a check command must name: those given, and those that the spec made small."""
    spec = calc.load(request.model)
    named = set(request.sizes) | set(spec.check_at)
    return {name for name in named if name in checks.sizes and not spec.dimensions[name].tied}


def _line(request: Request, sizes: Mapping[str, int]) -> str:
    words = [shlex.quote(request.written or request.model), *(f"{name}={value}" for name, value in sizes.items())]
    default = Options().to_json()
    words += [f"--{name.replace('_', '-')} {value}" for name, value in request.options.to_json().items() if value != default.get(name)]
    return " ".join(words)
