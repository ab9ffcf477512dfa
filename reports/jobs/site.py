"""The job of ``napkin site``: the stored closed forms and the questions become a folder of static pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from calc.capacity.questions.registry import all_questions
from calc.errors import BadInputError
from calc.hardware.accelerators import catalogue
from calc.models.catalogue import CATALOGUE
from calc.options import Options
from calc.pipeline.precomputed import Stored, bundled, names, why_not
from calc.platform.progress import Progress
from reports.jobs.job import write_all
from reports.page.build import today
from reports.page.inputs import SITE, Inputs
from reports.page.parts import chapter_anchor
from reports.page.peak import COMMON_80_GB
from reports.page.questions import question_row
from reports.page.what_if import ScriptedPage, WhatIf, page_of, script_text
from reports.typeset import numbers
from reports.typeset.wording import sizes_text
from reports.writers import html

HOME, QUESTIONS = "index.html", "questions.html"
_SHOWN = ("parameters", "memory.peak", "flops.step.total")


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A model of the index: its page, its sizes, and (address of the derivation, number) of each quantity shown."""

    name: str
    file: str
    description: str
    sizes: str
    cells: tuple[tuple[str, str], ...]


def site(directory: Path, progress: Progress) -> tuple[Path, ...]:
    """Write the pages, all or none. Raises ``BadInputError`` where no stored form is valid here."""
    return write_all(directory, texts(progress))


def texts(progress: Progress, date: str = "") -> Mapping[str, str]:
    """The pages by file name, of ``date`` or of today. Raises ``BadInputError`` if no closed forms are stored."""
    date = date or today()
    forms = {name: tuple(_forms(name)) for name in names()}
    absent = {name: why_not(name) for name, each in forms.items() if not each}
    if not any(forms.values()):
        raise BadInputError(f"there is no page to write: {next(iter(absent.values()), 'no closed forms are stored')}")
    pages = {HOME: _index({name: each[0] for name, each in forms.items() if each}, absent, date)}
    for name, each in forms.items():
        if each:
            progress(name)
            pages[_file(name)] = _model(name, each, date)
    progress("questions")
    pages[QUESTIONS] = _questions(date)
    return {file: html.write_scripted(replace(page, inputs=Inputs(SITE, file, date=date).text())) for file, page in pages.items()}


def _forms(name: str) -> Iterator[Stored]:
    """The stored forms of a model: of training, and of inference where there is one."""
    for options in (Options(), Options(mode="infer")):
        form = bundled(name, options.to_json())
        if form is not None:
            yield form


def _file(name: str) -> str:
    return f"{name.replace(':', '-')}.html"


def _model(name: str, forms: tuple[Stored, ...], date: str) -> ScriptedPage:
    subtitle = f"{_description(name)}. Every number is evaluated in this page, exactly, from closed forms that were derived and certified."
    return page_of(WhatIf(name, forms, tuple(catalogue().values()), COMMON_80_GB, {}, {}), subtitle, date, HOME)


def _description(name: str) -> str:
    return CATALOGUE[name].description if name in CATALOGUE else "a class of transformers at its default sizes"


def _index(forms: Mapping[str, Stored], absent: Mapping[str, str], date: str) -> ScriptedPage:
    lines = tuple(f"{name} has no page: {why}." for name, why in absent.items())
    subtitle = "Closed forms of training steps, and questions about capacity; each number opens its derivation."
    rows = tuple(_row(name, form) for name, form in forms.items())
    return ScriptedPage("site.j2", (), "Napkin", subtitle, "", date, lines, "", rows)


def _row(name: str, form: Stored) -> SiteRow:
    covered = form.covers({})
    cells = tuple((f"{_file(name)}#{chapter_anchor(q)}", _value(form, q) if covered else "–") for q in _SHOWN)
    return SiteRow(name, _file(name), _description(name), sizes_text(form.sizes({})), cells)


def _value(form: Stored, name: str) -> str:
    quantity = form.quantity(name)
    return "unknown" if quantity.unknown else numbers.amount(quantity.at(), quantity.definition.unit).headline


def _questions(date: str) -> ScriptedPage:
    rows = tuple(question_row(question) for question in all_questions())
    data = script_text({"schema": 1, "questions": [row.data for row in rows if row.data is not None]})
    subtitle = "Change the example values, and every step follows. The command has those of the example, and solves for any variable."
    return ScriptedPage("questions.j2", ("exact.js", "questions.js"), "Questions", subtitle, data, date, (), HOME, rows)
