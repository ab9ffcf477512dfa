"""The Jinja2 environment that both writers share: undefined names are errors, and what is not marked safe is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2
from markupsafe import Markup

from reports.build import SECTIONS

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"

Filter = Callable[..., object]


def environment(
    escape: Callable[[str], str] | None, filters: dict[str, Filter], sections: Mapping[str, str] = SECTIONS
) -> jinja2.Environment:
    """An environment whose printed values pass through ``escape``; without one, through HTML's. ``sections`` are numbered in order.

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
    env.globals["numbers"] = {name: str(i) for i, name in enumerate(sections, 1)}
    return env


def render(env: jinja2.Environment, macros: str, page: object, template: str, **context: object) -> str:
    """A document's template over one format's macros."""
    return env.get_template(template).render(page=page, macros=macros, **context)
