"""Exchanged kernels are reported in the first lines, with how the default step differs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.to_json import to_json
from calc.graph import exchanges
from calc.graph.exchanges import EXCHANGES
from calc.options import Options
from calc.spec import Spec
from reports.jobs import job
from reports.page.build import PageContent, build
from reports.writers import html, markdown
from tests.checks import failures

ROOT = Path(calc.__file__).parent

# What determines which kernel torch runs, in the source of the two routes.
_DECIDING = re.compile(
    r"foreign_functions|set_onednn\(|^\s*torch\.backends\.mha\.set_fastpath_enabled\(|SDPBackend\.MATH\)|attention=\"math\"|set_flags\(|_set_mkldnn|Module\.compile",
    re.MULTILINE,
)
# Only as an option of the user requests.
_BY_OPTION = {"calc/trace/step.py", "calc/trace/kernels/on_cuda.py", "calc/measure/gradients.py"}
# Packed sequences are written out there operator by operator, as torch runs them.
_AS_BY_DEFAULT = {"calc/trace/values/sequence_lengths.py"}


class Recurrent(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(n.d, n.h), nn.Linear(n.h, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.layer(x)[0])
        return y


def recurrent(kind: type[nn.Module] = Recurrent) -> Spec:
    return Spec(
        name="recurrent",
        dims={"T": 5, "B": 3, "d": 7, "h": 4},
        build=kind,
        inputs=lambda n: (torch.randn(n.T, n.B, n.d),),
        loss=lambda model, x: model(x).square().mean(),
    )


def saved_by_default() -> int:
    """Bytes that autograd keeps of the step as torch runs it: each storage that is no parameter's once."""
    model, storages = Recurrent(calc.spec.Sizes(d=7, h=4)), {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(torch.randn(5, 3, 7)).square().mean()
    assert loss.requires_grad
    return sum(storages.values())


@pytest.mark.slow
def test_an_lstm_is_said_to_run_otherwise_by_default_and_by_how_much() -> None:
    """In the first lines of the derivation, the check and all files of the report, with bytes of the step as torch runs it."""
    derivation = calc.derive(recurrent(), cache=False, optimizer="sgd")
    checks = calc.check(derivation)

    [derived] = to_json(derivation)["exchanged"]
    assert derived.endswith("By how much the default step differs is not measured here: napkin check measures it.")
    [said] = checks.exchanged
    assert checks.lines()[1] == said
    assert f"the default step saves {saved_by_default():,} bytes ({checks['activations.bytes'].measured:,} cell by cell)" in said
    assert f"({checks['memory.peak'].measured:,} cell by cell)" in said
    assert json.loads(job.json_text(job.check_json(checks, {})))["exchanged"] == [said]
    assert to_json(derivation, checks)["exchanged"] == [said]


@pytest.mark.slow
def test_the_first_lines_of_every_format_say_it() -> None:
    """Before any number: text, Markdown and HTML."""
    derivation = calc.derive(recurrent(), cache=False, optimizer="sgd")
    page = build(PageContent(derivation))

    [said] = page.exchanged
    for text in (markdown.write(page), html.write(page)):
        assert 0 < text.index("nn.LSTM is derived and measured cell by cell") < text.index("How many parameters?")
    assert said.startswith("nn.LSTM is derived and measured cell by cell, not as oneDNN's one operator")


def _compiled_in_two_ways(n: Any) -> nn.Module:
    first, second = nn.Linear(n.d, n.h), nn.Linear(n.h, n.d)
    first.compile()
    decorated: nn.Module = torch.compile(mode="max-autotune")(nn.Sequential(first, torch.compile(second)))
    return decorated


def test_what_a_model_compiles_is_said_to_run_operator_by_operator() -> None:
    """Both routes leave torch.compile out; afterwards it is torch's own."""
    by_torch = torch.compile, nn.Module.compile
    spec = Spec(
        name="compiled",
        dims={"B": 3, "d": 7, "h": 5},
        build=_compiled_in_two_ways,
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda model, x: model(x).square().mean(),
    )
    checks = calc.check(calc.derive(spec, cache=False, optimizer="sgd"))

    assert [] == failures(checks)
    [said] = checks.exchanged
    assert said.startswith("What the model passes to torch.compile is derived and measured operator by operator, not as compiled code")
    assert (torch.compile, nn.Module.compile) == by_torch


class Projected(Recurrent):
    def __init__(self, n: Any) -> None:
        super().__init__(n)
        self.layer, self.head = nn.LSTM(n.d, n.h, proj_size=2), nn.Linear(2, 1)


class Gated(Recurrent):
    def __init__(self, n: Any) -> None:
        super().__init__(n)
        self.layer = nn.GRU(n.d, n.h)


@pytest.mark.parametrize("kind", [Projected, pytest.param(Gated, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_what_torch_runs_cell_by_cell_anyway_is_not_listed_as_exchanged(kind: type[nn.Module]) -> None:
    """A GRU on a CPU, and an LSTM that projects its state."""
    checks = calc.check(calc.derive(recurrent(kind), cache=False, optimizer="sgd"))

    assert checks.exchanged == ()


@pytest.mark.parametrize(("mode", "keys"), [("train", {"attention"}), ("infer", {"fast path"})])
def test_what_only_the_count_of_flops_exchanges_is_said_too(mode: str, keys: set[str]) -> None:
    """Fused attention in training, the fast path of an encoder layer in evaluation."""
    from calc.measure import measure

    spec = Spec(
        name="encoder",
        dims={"B": 2, "T": 5, "d": 8},
        build=lambda n: nn.TransformerEncoderLayer(n.d, 2, 16, 0.0, batch_first=True),
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        loss=lambda model, x: model(x).square().mean(),
    )
    measurement = measure(spec, {}, options=Options(mode=mode, optimizer="sgd"))

    assert set(measurement.exchanged) == keys
    [said] = exchanges.of_counting(measurement.exchanged)
    assert said.startswith("To count FLOPs of matrix multiplications, the check runs ")


def test_every_code_that_chooses_a_kernel_is_in_the_table() -> None:
    """The source of both routes is searched for them."""
    places = {
        f"calc/{path.relative_to(ROOT)}"
        for part in ("experiment", "trace", "measure")
        for path in (ROOT / part).rglob("*.py")
        if _DECIDING.search(path.read_text(encoding="utf-8"))
    }

    assert places - _BY_OPTION - _AS_BY_DEFAULT == {place for exchange in EXCHANGES.values() for place in exchange.made_in}
