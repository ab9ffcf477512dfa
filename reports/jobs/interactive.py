"""The job of ``napkin report --interactive``: the closed forms of a step and of other recipes become a page that evaluates them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from calc.errors import NapkinError
from calc.hardware.accelerators import available
from calc.memory.peak_levers import changes
from calc.options import Options
from calc.pipeline.precomputed import Stored, form_of, forms_elsewhere
from calc.platform.progress import Progress
from reports.jobs.request import Request
from reports.page.inputs import INTERACTIVE, embedded
from reports.page.parts import chapter_anchor
from reports.page.peak import COMMON_80_GB
from reports.page.what_if import WhatIf, flags, page_of
from reports.writers import html
from reports.writers.render import PLAIN, Look

FILE = "report.interactive.html"
_BESIDE = "The same step as in the report beside this page; every number is evaluated here, exactly, from the closed forms derived there."


def interactive(request: Request, report: str, progress: Progress, look: Look = PLAIN, gpu: str = "") -> str:
    """The text of the page. ``report`` is the text of the report beside it, whose steps the page links and whose inputs are its own."""
    forms, refused = [], dict[str, list[str]]()
    for options in _recipes(request.options, request.sizes):
        progress(f"closed forms of{flags(options.to_json()) or ' the step'}")
        try:
            forms.append(_form(request, options, progress))
        except NapkinError as error:
            if options == request.options:
                raise
            refused.setdefault(str(error), []).append(flags(options.to_json()).strip())
    links = {name: f"report.html#{anchor}" for name in forms[0].quantities if f'id="{(anchor := chapter_anchor(name))}"' in report}
    devices = tuple(available().values())
    none = tuple((", nor ".join(recipes), why) for why, recipes in refused.items())
    shown = WhatIf(request.written or request.model, tuple(forms), devices, gpu or COMMON_80_GB, request.sizes, links, none)
    inputs = embedded(report, ".html")
    assert inputs is not None
    page = page_of(shown, _BESIDE, inputs.date)
    return html.write_scripted(replace(page, inputs=replace(inputs, kind=INTERACTIVE).text()), look)


def _recipes(options: Options, sizes: Mapping[str, int]) -> Iterator[Options]:
    """The step's own options, then those of the changes that the report derives, and of precision and checkpointing together."""
    yield options
    further = [dict(change.options) for change in changes(options.to_json(), sizes) if change.options and not change.sizes]
    yield from (replace(options, **one) for one in further)
    both = {name: value for one in further for name, value in one.items() if name in ("precision", "checkpointing")}
    if len(both) > 1:
        yield replace(options, **both)


def _form(request: Request, options: Options, progress: Progress) -> Stored:
    """The closed forms that hold at the request's sizes."""
    form = form_of(request.model, options.to_json(), cache=request.cache, progress=progress)
    if form.covers(request.sizes):
        return form
    return forms_elsewhere(form, cache=request.cache, progress=progress)(form.sizes(request.sizes))
