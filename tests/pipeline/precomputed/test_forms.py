"""Stored closed forms: they say what a fresh derivation says, for the sizes at which they stand, and notice when they no longer can."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import calc
from calc.derive.result import Quantity
from calc.errors import DimensionError, NapkinError, UnknownQuantityError
from calc.models.catalogue import configs
from calc.options import Options
from calc.pipeline.precomputed import Stored, code, names, produced, stored, why_not
from calc.pipeline.precomputed.index import FOLDER, INDEX
from calc.pipeline.precomputed.writing import compare, made
from tests.quick import few

ROOT = Path(calc.__file__).resolve().parent.parent
INDEXED = json.loads((FOLDER / INDEX).read_text(encoding="utf-8"))
FILES = [line["file"] for line in INDEXED["forms"]]
SMALL = ("linear", "two-layer", "mlp")


def _data(file: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / file).read_text(encoding="utf-8"))
    return document


def _form(file: str) -> Stored:
    """A form as it is in its file, whatever code it is of: that it is of this code is one test's claim."""
    return Stored(_data(file))


def _comparable(quantity: Quantity) -> Quantity:
    """Without what is not stored: the parts of a term, the addends of a part of the model."""
    terms, parts = (replace(term, parts=()) for term in quantity.terms), (replace(part, addends=()) for part in quantity.parts)
    return replace(quantity, terms=tuple(terms), parts=tuple(parts), _evaluator=None)


# -- what is stored is what is derived --------------------------------------------------------------------------------------


def test_stored_forms_are_of_this_code() -> None:
    """``python -m calc.pipeline.precomputed.make`` was run after the last change of what a derivation runs."""
    assert code.sources() == INDEXED["sources"]
    assert {line["file"] for line in INDEXED["forms"] if line["sha256"] != produced.digest(INDEXED["sources"])} == set()


def test_every_known_family_has_a_form() -> None:
    """GPT-2, Llama, Mixtral, DeepSeek, Gemma, Qwen, BERT, T5 and ViT, as built-in or as the library's class; and none is left over."""
    families = ("gpt2", "llama3-8b", "llama3-70b", "mixtral", "vit-b", "resnet50")
    library = ("bert", "deepseek_v3", "gemma", "gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen3", "t5", "vit")

    assert {*families, *(f"transformers:{name}" for name in library)} <= {*names()}
    assert {*FILES, INDEX} == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("name", few(SMALL, 1))
def test_a_small_form_is_what_a_fresh_trace_gives(name: str) -> None:
    """Every closed form, value, addend and moment; and the file is rewritten byte for byte."""
    fresh = calc.derive(calc.load(name), cache=False)
    form = _form(f"{name}.json")

    assert {q: _comparable(form.derivation({})[q]) for q in fresh} == {q: _comparable(fresh[q]) for q in fresh}
    assert _data(f"{name}.json") == json.loads(json.dumps(made(name, Options(), cache=False).data))


@pytest.mark.slow
@pytest.mark.parametrize("line", INDEXED["forms"], ids=lambda line: line["file"])
def test_a_form_is_what_a_fresh_trace_gives(line: dict[str, Any]) -> None:
    """The same for every form, with its options. The cache of a run of the tests holds what this run traced, and nothing older."""
    fresh = calc.derive(calc.load(line["name"]), **line["options"])
    derivation = _form(line["file"]).derivation({})

    assert {q: _comparable(derivation[q]) for q in fresh} == {q: _comparable(fresh[q]) for q in fresh}


def test_a_changed_coefficient_is_caught() -> None:
    """One more in one numerator, and the comparison that every form passes when it is written refuses it."""
    fresh = calc.derive(calc.load("two-layer"), cache=False)
    data = _data("two-layer.json")
    compare(data, fresh)
    changed = copy.deepcopy(data)
    changed["polynomials"][changed["quantities"]["parameters"]["is"]][2] += 1

    with pytest.raises(NapkinError, match="the stored form of two-layer differs from its derivation in parameters; please report it"):
        compare(changed, fresh)


def test_by_cases_a_form_gives_the_case_in_force() -> None:
    """transformers:gpt2 keeps other tensors with a batch of one (48·T·d·L where it keeps 40 for each of several), and says which."""
    form = _form("transformers-gpt2.json")
    kept = form.quantity("activations.bytes")
    T, d, h, f, L, V = (form.sizes({})[name] for name in "TdhfLV")
    alike = 12 * T * T * h * L + 12 * T * d + 20 * T * f * L + 16 * T * L + 4 * T * V

    assert {"B": "1"} == form.cases[0].equal
    assert kept.expr_text.startswith("Piecewise((12*T**2*h*L + 48*T*d*L + ")
    assert kept.at() == alike + 48 * T * d * L + 32 * T + 12
    assert kept.at(B=2) == 2 * (alike + 40 * T * d * L + 24 * T) + 8 * T + 4


# -- for which sizes --------------------------------------------------------------------------------------------------------


def test_a_value_at_other_sizes_is_exact() -> None:
    """linear: 2·B·D·K in the forward, 2·7·5·3 = 210; parameters D·K + K = 5·3 + 3 = 18."""
    form = _form("linear.json")

    assert form.quantity("flops.forward.matmul").at(B=7, D=5, K=3) == 210
    assert form.quantity("parameters").at(B=7, D=5, K=3) == 18
    assert form.quantity("parameters").expr_text == "D*K + K"


@pytest.mark.slow
def test_at_sizes_at_which_the_step_may_run_otherwise_the_model_is_derived() -> None:
    """Where a condition of the trace comes out otherwise and no certificate tells: a GPT-2 of which every size is 1 has a token, a
    position, three norms, and matrices with biases for queries, keys and values, for what attention gives, and two of the feed-forward."""
    form = _form("gpt2.json")

    assert form.covers({"B": 3}) is True
    assert form.covers({"L": 1, "B": 1, "T": 1, "d": 1, "h": 1, "f": 1, "V": 1, "C": 1}) is False
    with pytest.raises(DimensionError, match=r"^T = 2048 is more than C = 1024: this model needs T <= C: lower T or raise C$"):
        form.quantity("parameters").at(T=2048)
    ones = dict.fromkeys(("L", "B", "T", "d", "h", "f", "V", "C"), 1)
    assert form.quantity("parameters").at(**ones) == (1 + 1) + 3 * 2 + (3 + 3) + (1 + 1) + (1 + 1) + (1 + 1)
    assert form.quantity("memory.peak").at(**ones) == calc.derive(calc.load("gpt2"), ones)["memory.peak"].value


def test_what_there_is_not_is_refused_with_the_nearest() -> None:
    """A quantity that a step does not have keeps its reason; one of another name is no quantity."""
    form = _form("gpt2-infer.json")

    with pytest.raises(UnknownQuantityError, match=r"^gradients\.bytes is unknown: mode infer runs no backward$"):
        form.quantity("gradients.bytes").at()
    with pytest.raises(UnknownQuantityError, match=r"^unknown quantity 'memory\.peek': did you mean memory\.peak\?$"):
        form.quantity("memory.peek")


# -- when it no longer can --------------------------------------------------------------------------------------------------


def test_another_torch_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A closed form is of the operators that one version runs. Builds of one version run the same; a torch that is absent is no other."""
    (tmp_path / "torch-2.12.1+cu130.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert produced.differing({"torch": "2.13.0+cpu"}) == "torch 2.13.0+cpu, and here is torch 2.12.1+cu130"
    assert produced.differing({"torch": "2.12.1+cpu"}) == ""
    assert produced.differing({"transformers": "5.23.0"}) == ""


def test_what_is_not_stored_is_said() -> None:
    """No form of the name, or none for the options."""
    assert stored("nothing") is None
    assert why_not("nothing") == "no closed forms of nothing are stored"
    assert stored("linear", {"optimizer": "sgd"}) is None
    assert why_not("linear", {"optimizer": "sgd"}) == "no closed forms of linear are stored for these options"


# -- what it takes ----------------------------------------------------------------------------------------------------------


def test_neither_torch_nor_sympy_is_imported() -> None:
    """To read a form, evaluate it and write its closed form, and to show ``napkin derive llama3-8b``; nor numpy."""
    assert why_not("llama3-8b") == ""
    code = """
import sys
from calc.pipeline.precomputed import form_of
form = form_of("llama3-8b")
form.quantity("memory.peak").at(B=2, T=1024), form.quantity("memory.peak").expr_text
sys.argv = ["napkin", "derive", "llama3-8b", "-d", "B=2"]
from reports.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code
assert not {"torch", "sympy", "numpy", "transformers"} & set(sys.modules), sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.splitlines()[0] == (
        f"bundled closed forms of this version of napkin, traced with torch {_data('llama3-8b.json')['versions']['torch']};"
        " --no-cache traces the step again"
    )


def test_all_forms_are_small() -> None:
    """They are bundled with the package: 2 MB in all."""
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000


def test_a_configuration_that_does_not_travel_along_is_refused() -> None:
    """With those that do, and the way to one's own."""
    with pytest.raises(NapkinError) as caught:
        calc.load("transformers:nothing")
    assert str(caught.value) == (
        f"unknown configuration 'nothing' of transformers: use one of {', '.join(configs())} (your own config.json is hf:PATH)"
    )
