"""The Jinja2 environment that both writers share: undefined names are errors, and what is not marked safe is escaped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2
from markupsafe import Markup

from reports.build import SECTIONS
from reports.page import Page

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"

Filter = Callable[..., object]


def environment(escape: Callable[[str], str] | None, filters: dict[str, Filter]) -> jinja2.Environment:
    """An environment whose printed values pass through ``escape``; without one, through HTML's.

    Jinja's autoescape is on in either case: it keeps apart what a macro made (safe) from what a name brought (not).
    """

    def finalize(value: object) -> object:
        if escape is None or hasattr(value, "__html__"):
            return value
        return Markup(escape(str(value)))

    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update(filters)
    env.globals["numbers"] = {name: str(i) for i, name in enumerate(SECTIONS, 1)}
    return env


def render(env: jinja2.Environment, macros: str, page: Page, **context: object) -> str:
    """The document template over one format's macros."""
    return env.get_template("report.j2").render(page=page, macros=macros, **context)
