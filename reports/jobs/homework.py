"""The job of ``napkin homework``: the accounting of a model as an exercise sheet, and its solutions apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from calc.capacity.exercise import Exercise, document
from calc.capacity.homework import PlannedTraining, homework, one_sequence
from calc.capacity.questions.values import device_memory, read
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from calc.platform.progress import Progress
from calc.symbolic.assignments import TYPED, read_assignments, sizes_text
from reports.jobs import job
from reports.jobs.report import carried
from reports.jobs.side_by_side import TableSteps, steps
from reports.page.build import today
from reports.page.homework import build
from reports.page.inputs import Inputs, digest_of, file_of
from reports.writers import html, markdown, tex
from reports.writers.render import Look

LOOK = Look("exercises.j2")
SHEETS = ("exercises", "solutions")
Made = tuple[tuple[Derivation, ...], tuple[Exercise, ...], Inputs]


def run_from(given: Mapping[str, str], gpus: Sequence[str] = ()) -> PlannedTraining:
    """The assumptions of the last questions, as they are typed. Raises ``BadInputError`` for what cannot be."""
    usual = PlannedTraining()
    units = {"context": "tokens", "mfu": "1", "steps": "steps", "batch": "sequences"}
    numbers = {name: text for name, text in given.items() if name in units}
    values = {name: read(f"--{name}", text, units[name], integer=name != "mfu").value for name, text in numbers.items()}
    if values.get("mfu", usual.mfu) > 1:
        raise BadInputError("--mfu is a share of the peak: give at most 1")
    for gpu in gpus:
        accelerator(gpu)
    context, steps, batch = (int(values.get(name, getattr(usual, name))) for name in ("context", "steps", "batch"))
    memory = device_memory("--memory", given["memory"]) if "memory" in given else usual.memory
    return PlannedTraining(context, memory, tuple(gpus) or usual.gpus, values.get("mfu", usual.mfu), steps, batch)


def compute(
    table_steps: TableSteps, run: PlannedTraining, progress: Progress, word: str = "", quantities: Sequence[str] = ()
) -> Made:  # fmt: skip
    """The derivations of a model at all its sizes, the exercises on the last of them (those about ``quantities``, if any are named), and
    what makes them again."""
    derivations = tuple(job.derive(request, progress) for request in table_steps.requests((word,) if word else ()))
    last = derivations[-1]
    progress("answering the exercises")
    file = file_of(word or table_steps.models[0][0])
    exact = {name: getattr(run, name) for name in ("context", "memory", "mfu", "steps", "batch")}
    chosen = {"quantity": ",".join(quantities)} if quantities else {}
    return derivations, homework(last, derivations, run, quantities), Inputs(
        kind="homework",
        model=" ".join(table_steps.models[0]),
        other=sizes_text({**exact, "gpu": ",".join(run.gpus), **chosen}, TYPED, " "),
        options={key: ",".join(values) for key, values in table_steps.values.items()},
        digest="" if file is None else digest_of(file),
        date=today(),
        environment={name: str(value) for name, value in last.provenance.items()},
    )  # fmt: skip


def asked_of(inputs: Inputs) -> tuple[TableSteps, PlannedTraining, tuple[str, ...]]:
    """The steps, the assumptions and the chosen quantities of a sheet, from its inputs."""
    assignments = read_assignments(inputs.other.split(), "key=value")
    gpus, named = assignments.pop("gpu", "").split(","), assignments.pop("quantity", "")
    quantities = tuple(named.split(",")) if named else ()
    exact = {name: assignments[name] for name in ("context", "steps", "batch")} | {"memory": f"{assignments['memory']} bytes"}
    return steps((inputs.model,), inputs.options, quantities), replace(run_from(exact, gpus), mfu=_share(assignments["mfu"])), quantities


def _share(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise BadInputError(f"cannot read {text[:40]!r} as a share") from None


def texts(made: Made, sheet: str, *, latex: bool = True) -> dict[str, str]:
    """The files of one sheet by name: questions alone, or the solutions with their JSON; with LaTeX where ``latex``."""
    derivations, exercises, inputs = made
    inputs = replace(inputs, template=sheet)
    one = one_sequence(derivations[-1])
    page = build(one, exercises, inputs, solved=sheet == "solutions")
    files = {f"{sheet}.md": markdown.write(page, LOOK), f"{sheet}.html": html.write(page, LOOK)}
    if latex:
        files[f"{sheet}.tex"] = tex.write(page, LOOK)
    if sheet == "solutions":
        body = {"schema": 1, "model": one.model, "sizes": one.sizes, "exercises": document(exercises)}
        files["solutions.json"] = job.json_text({**body, **carried(inputs)})
    return files
