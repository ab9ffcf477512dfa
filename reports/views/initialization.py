"""Moments at initialization on a terminal: the laws of the parameters, then the modules in the order of the forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from calc.mathematics.initialization import Initial, ModuleVariance, ParameterVariance
from calc.mathematics.initialization.comparison import FAILED, WITHIN, SampleComparison, percent
from calc.mathematics.initialization.state import OFF
from calc.mathematics.strides.walk import pattern
from calc.symbolic.expression import Expression
from calc.symbolic.readable import readable
from reports.typeset.wording import sizes_text
from reports.writers.terminal import Terminal


def show(initial: Initial, lines: Sequence[SampleComparison], out: Terminal) -> None:
    """The laws, then each module's second moment. ``lines`` are empty where nothing was sampled."""
    out.line(f"{initial.model} as it is initialized, at {sizes_text(initial.sizes)}")
    out.line()
    out.line("How the parameters are initialized")
    out.table(("parameter", "law", "E[w²]"), list(_laws(initial.drawn)))
    out.line()
    inside = "; PATH #1 is a value inside the module PATH" if any(part.reads_inside for part in initial.parts) else ""
    out.line(f"E[x²] of each module's output, in the order of the forward{inside}")
    heads = ("module path", "E[x²]", "equation", "closed form", *(("sampled", "verdict") if lines else ()))
    out.table(heads, _rows(initial.parts, {line.part.module_path: line for line in lines}))
    rests = dict.fromkeys(assumption for part in initial.parts for assumption in part.rests)
    for number, assumption in enumerate(rests, 1):
        out.line(f"{number}. {assumption}; {percent(OFF[assumption])} beyond a sample's interval are allowed for it")
    if not lines:
        out.line("Not sampled: napkin initialization MODEL --draws 100 builds and runs real modules beside it.")


def _laws(parameters: Sequence[ParameterVariance]) -> Iterator[tuple[str, str, str]]:
    """Parameters that have one law in all layers are one row."""
    laws: dict[str, list[tuple[str, str]]] = {}
    for each in parameters:
        laws.setdefault(pattern(each.name), []).append((_law(each), formula(each.second)))
    shared = {name: of[0] for name, of in laws.items() if len(of) > 1 and len(set(of)) == 1}
    rows = ((pattern(p.name) if pattern(p.name) in shared else p.name, _law(p), formula(p.second)) for p in parameters)
    yield from dict.fromkeys(rows)


def formula(form: str | Expression | None) -> str:
    """A formula as every other view writes it; empty where there is none."""
    return readable(form) if form else ""


def _law(drawn: ParameterVariance) -> str:
    return drawn.law.text if drawn.law is not None else f"none: made by {drawn.made_by}"


def _rows(parts: Sequence[ModuleVariance], lines: dict[str, SampleComparison]) -> Iterator[tuple[str, ...]]:
    numbers = {assumption: i for i, assumption in enumerate(dict.fromkeys(assumption for part in parts for assumption in part.rests), 1)}
    for part in parts:
        value = "–" if part.second is None else f"{part.second:.6g}"
        rests = ", ".join(str(numbers[assumption]) for assumption in part.rests)
        equation = (formula(part.equation) or part.unknown) + (f" ({rests})" if rests else "")
        line = lines.get(part.module_path)
        sampled, verdict = "", ""
        if line is not None:
            sampled = "–" if line.sampled is None else f"{line.sampled:.6g} ({line.low:.6g} … {line.high:.6g})"
            verdict = f"{line.verdict}, {percent(line.allowed)} allowed" if line.verdict in (WITHIN, FAILED) else line.verdict
        yield part.module_path, value, equation, formula(part.closed), *((sampled, verdict) if lines else ())
