"""``napkin derive`` from a stored form: the same words as from a fresh derivation, and the same numbers as JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from calc.errors import BadInputError
from calc.pipeline.precomputed import Stored
from calc.pipeline.precomputed.index import FOLDER, INDEX
from reports.cli.derive import _values
from reports.jobs import job
from reports.jobs.request import Request
from reports.views import answers
from reports.writers.terminal import Terminal

INDEXED = json.loads((FOLDER / INDEX).read_text(encoding="utf-8"))


def _form(name: str) -> Stored:
    return Stored(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def _fresh(request: Request, width: int) -> str:
    """What a fresh derivation shows."""
    derivation = job.derive(request, lambda _: None)
    return _shown(answers.of_derivation(derivation, job.comparisons(derivation)), width)


def _stored(form: Stored, sizes: dict[str, int], width: int) -> str:
    return _shown(answers.of_stored(form, sizes), width)


def _shown(shown: answers.Answers, width: int) -> str:
    out = io.StringIO()
    answers.show(shown, Terminal(width, out))
    return out.getvalue()


SHOWN = [("two-layer", {}, 140), ("mlp", {"B": 3, "d": 6}, 140), ("linear", {"D": 10**6}, 100)]


@pytest.mark.parametrize(("name", "sizes", "width"), SHOWN)
def test_a_stored_form_is_shown_as_a_derivation_is(name: str, sizes: dict[str, int], width: int) -> None:
    """Every line, broken at the same words."""
    assert _fresh(Request(name, sizes), width) == _stored(_form(name), sizes, width)


# One of each kind; that every stored form is what a fresh trace gives is tested in tests/pipeline/precomputed.
KINDS = ("gpt2", "gpt2-infer", "vit-b", "transformers-mistral", "transformers-qwen3", "mixtral")


@pytest.mark.slow
@pytest.mark.parametrize("line", [f for f in INDEXED["forms"] if f["file"].removesuffix(".json") in KINDS], ids=lambda line: line["file"])
def test_a_large_stored_form_is_shown_as_its_derivation_is(line: dict[str, Any]) -> None:
    """The same, at its own sizes; and its quantities as JSON."""
    from calc.options import made

    request = Request(line["name"], {}, made(**line["options"]))
    form = _form(line["file"].removesuffix(".json"))

    assert _fresh(request, 140) == _stored(form, {}, 140)
    assert _values(job.derive(request, lambda _: None)) == _values(form.derivation({}))


def test_the_quantities_as_json_are_those_of_a_fresh_derivation() -> None:
    """At other sizes too: dims, options, every closed form, value, term and moment."""
    for name, sizes in (("two-layer", {}), ("mlp", {"B": 3, "d": 6})):
        fresh = job.derive(Request(name, sizes), lambda _: None)
        whole = json.loads(job.json_text(_values(fresh)))

        assert whole == json.loads(job.json_text(_values(_form(name).derivation(sizes))))
        assert {"schema", "model", "dims", "options", "exchanged", "specialized", "assumptions", "quantities", "notes"} == whole.keys()


def test_a_changed_number_would_be_seen() -> None:
    """One more in one numerator of a form, and neither table nor JSON is that of the derivation."""
    data = json.loads((FOLDER / "two-layer.json").read_text(encoding="utf-8"))
    data["polynomials"][data["quantities"]["parameters"]["is"]][2] += 1
    fresh = job.derive(Request("two-layer"), lambda _: None)

    assert _fresh(Request("two-layer"), 140) != _stored(Stored(data), {}, 140)
    assert _values(fresh) != _values(Stored(data).derivation({}))


def test_sizes_that_cannot_be_are_refused_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written."""
    with pytest.raises(BadInputError, match=r"^B = 0 is not positive"):
        answers.of_stored(_form("linear"), {"B": 0})
    assert capsys.readouterr().out == ""
