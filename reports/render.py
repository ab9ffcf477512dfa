"""The Jinja2 environment that both writers share: undefined names are errors, and what is not marked safe is escaped."""

from __future__ import annotations

import functools
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from calc.errors import BadInputError
from reports.build import SECTIONS
from reports.escape import visible

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"

Filter = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Look:
    """Which template writes a page, and the folder of a user's own templates that go before ours."""

    template: str = "report.j2"
    folder: Path | None = None


PLAIN = Look()


class Sectioned(Protocol):
    """A page of any kind."""

    @property
    def sections(self) -> Mapping[str, str]: ...


def look_of(template: str, folder: str) -> Look:
    """The look of a template by its name, ``homework`` say, and of a user's own folder; what is not there is refused before any work."""
    own = Path(folder) if folder else None
    if own is not None and not os.path.isdir(own):  # os.path, unlike Path, says no to names that no file can have
        raise BadInputError(f"{folder} is no folder of templates")
    name = f"{template or 'report'}.j2"
    places = [TEMPLATES] if own is None else [own, TEMPLATES]
    if not re.fullmatch(r"[\w-]{1,60}", template or "report") or not any((place / name).is_file() for place in places):
        known = sorted({file.stem for place in places for file in place.glob("*.j2")} - _PARTS)
        raise BadInputError(f"there is no template {template[:60]!r}: there are {', '.join(known)}")
    return Look(name, own)


_PARTS = {"html", "markdown", "latex", "lecture", "roofline", "contrast"}  # macros of a format, and what is no report of a model


@dataclass(frozen=True, eq=False, slots=True)
class Format:
    """What a page is written in: the template of its macros, what printed values pass through, and filters of its own."""

    macros: str
    escape: Callable[[str], str] | None
    filters: Mapping[str, Filter]


def environment(
    escape: Callable[[str], str] | None,
    filters: Mapping[str, Filter],
    sections: Iterable[str] = SECTIONS,
    folder: Path | None = None,
) -> jinja2.Environment:
    """An environment whose printed values pass through ``escape``; without one, they are HTML, in which control characters are shown as
    well. ``sections`` are numbered in order.

    Jinja's autoescape is on in either case: it keeps apart what a macro made (safe) from what a name brought (not). Templates run in
    Jinja's sandbox: one that somebody brought can read the page and nothing else.
    """

    def finalize(value: object) -> object:
        if hasattr(value, "__html__"):
            return value
        if escape is None:
            return "\n".join(map(visible, str(value).split("\n")))
        return Markup(escape(str(value)))

    env = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader([TEMPLATES] if folder is None else [folder, TEMPLATES]),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update(filters)
    env.globals["numbers"] = {name: str(i) for i, name in enumerate(sections, 1)}
    return env


# Our templates do not change while a process runs, and take longer to compile than to fill in. A user's own are compiled for each page.
@functools.lru_cache(maxsize=32)
def _ours(form: Format, sections: tuple[str, ...]) -> jinja2.Environment:
    return environment(form.escape, form.filters, sections)


def render(form: Format, page: Sectioned, look: Look, **context: object) -> str:
    """A page in one format: a document's template over the format's macros. What is wrong with a template is one line that names it."""
    sections = tuple(page.sections)
    env = _ours(form, sections) if look.folder is None else environment(form.escape, form.filters, sections, look.folder)
    try:
        return env.get_template(look.template).render(page=page, macros=form.macros, **context)
    except jinja2.TemplateNotFound as error:
        raise BadInputError(f"there is no template {error.name}") from None
    except jinja2.TemplateSyntaxError as error:
        raise BadInputError(f"template {error.name}, line {error.lineno}: {error.message}") from None
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError) as error:
        name, line = _place(error)
        raise BadInputError(f"template {name}, line {line}: {error}") from None


def _place(error: BaseException) -> tuple[str, int]:
    """The template and line where an error arose: the innermost one of the traceback, which Jinja writes in terms of templates."""
    places = [(Path(f.filename).name, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
    if not places:
        raise error
    return places[-1]
