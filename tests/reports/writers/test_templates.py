"""Templates hold layout and words: they do not compute, and a name they mistype is an error."""

from __future__ import annotations

import jinja2
import pytest
from jinja2 import nodes

from reports.writers import render
from tests.reports import pages

ALLOWED_FILTERS = {
    "mathml", "mathml_row", "module_path", "oneline", "rows", "code", "html", "fenced", "address", "inline_math", "equations", "prose",
    "columns", "label", "verbatim", "anchor", "inline", "inline_row", "digits", "cell_kinds", "file_path", "model_title", "uncaptioned",
}  # fmt: skip
TEMPLATES = sorted(render.TEMPLATES.glob("*.j2"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates_compute_nothing(path):
    """No arithmetic, no rounding, no filter that changes a number; text is joined with ~ or list addition never."""
    tree = jinja2.Environment().parse(path.read_text(encoding="utf-8")) if path.name == "report.j2" else _parsed(path)
    arithmetic = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Neg)

    assert [] == [type(n).__name__ for n in tree.find_all(arithmetic)]
    assert {n.name for n in tree.find_all(nodes.Filter)} <= ALLOWED_FILTERS


def _parsed(path):
    env = jinja2.Environment()
    env.filters.update(dict.fromkeys(ALLOWED_FILTERS, str))
    return env.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("layout", ["report", "homework", "design-section"])
@pytest.mark.parametrize("kind", ["html", "markdown", "latex"])
def test_every_format_has_the_macros_of_every_layout(layout, kind):
    """A layout finds in each what it calls."""
    names = {m.name for m in _parsed(render.TEMPLATES / f"{kind}.j2").find_all(nodes.Macro)}
    used = {
        n.node.attr
        for n in _parsed(render.TEMPLATES / f"{layout}.j2").find_all(nodes.Call)
        if isinstance(n.node, nodes.Getattr) and isinstance(n.node.node, nodes.Name) and n.node.node.name == "m"
    }

    assert used <= names


def test_a_mistyped_name_is_an_error():
    """StrictUndefined: a typo does not print as nothing."""
    env = render.environment(None, {})

    with pytest.raises(jinja2.UndefinedError):
        env.from_string("{{ page.parametres }}").render(page=pages.page())


def test_what_is_not_marked_safe_is_escaped():
    """HTML by markupsafe; another format by its own escaper."""
    assert "&lt;b&gt;" == render.environment(None, {}).from_string("{{ x }}").render(x="<b>")
    assert "(<b>)" == render.environment(lambda s: f"({s})", {}).from_string("{{ x }}").render(x="<b>")
