"""Optimizers: what is listed of them is true of torch's classes, and what a step with one costs is exact on both routes."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.errors import BadInputError, CertificateError, DataDependentError, NapkinError, SpecError
from calc.experiment import optimizers
from calc.options import LBFGS_STATE, NAMED_OPTIMIZERS, OPTIMIZERS, REFUSED, NamedOptimizer, Options
from calc.spec import Sizes, Spec
from calc.symbolic.algebra import evaluate_text
from reports.page.conventions import conventions
from reports.views import listing
from tests.checks import failures
from tests.quick import few

SHAPES = ((5, 7), (11,), (2, 3, 5, 7), ())
MATRIX = ((5, 7),)


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [t for part in parts for t in tensors_in(part)]


def kept(optimizer: torch.optim.Optimizer, steps: int = 2) -> int:
    """Bytes of the state after some steps on random gradients."""
    for _ in range(steps):
        for p in optimizer.param_groups[0]["params"]:
            p.grad = torch.rand_like(p)
        optimizer.step()
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors_in(dict(optimizer.state))}
    return sum(storages.values())


def built(known: NamedOptimizer, parameters: list[nn.Parameter], **more: Any) -> torch.optim.Optimizer:
    """The class as the list has it: what is given, and nothing of its defaults."""
    given = eval(f"dict({known.overrides})", {})
    made: torch.optim.Optimizer = getattr(torch.optim, known.kind)(parameters, **given, **more)
    return made


# -- the list -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", NAMED_OPTIMIZERS.values(), ids=NAMED_OPTIMIZERS)
def test_the_defaults_that_are_listed_are_those_of_the_class(known: NamedOptimizer) -> None:
    """Each is written as the class has it, and none that changes what a step runs is left out."""
    parameters = inspect.signature(getattr(torch.optim, known.kind).__init__).parameters
    listed = known.defaults
    others = {"self", "params", "foreach", "fused", "capturable", "differentiable", "maximize", "decoupled_weight_decay"}

    assert {n: parameters[n].default for n in listed} == listed
    assert parameters.keys() - listed.keys() - others <= {"initial_accumulator_value"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("known", NAMED_OPTIMIZERS.values(), ids=NAMED_OPTIMIZERS)
def test_what_a_class_keeps_for_a_parameter_is_what_is_listed(known: NamedOptimizer, dtype: torch.dtype) -> None:
    """Matrices, vectors, filters and single numbers, in two formats, in each implementation that torch has."""
    for shape in MATRIX if known.name == "muon" else SHAPES:
        for way in ({}, *({w: True} for w in known.ways)):
            state_bytes = kept(built(known, [nn.Parameter(torch.rand(shape).to(dtype))], **way))

            text = known.vectors if known.vectors and len(shape) < 2 else known.state
            r, c = shape[-2:] if len(shape) > 1 else (1, 1)
            assert evaluate_text(text, {"n": math.prod(shape), "s": dtype.itemsize, "r": r, "c": c}) == state_bytes, (shape, way)


@pytest.mark.parametrize(("name", "way"), [(k.name, w) for k in NAMED_OPTIMIZERS.values() for w in ("foreach", "fused") if w not in k.ways])
def test_an_implementation_that_is_not_listed_is_none_of_torchs(name: str, way: str) -> None:
    """Asking for it is refused in one line."""
    refusal = rf"^torch has no {way} implementation of {NAMED_OPTIMIZERS[name].kind}: use loop$"
    module = nn.Linear(3, 2)
    with pytest.raises(BadInputError, match=refusal):
        optimizers.build(Options(optimizer=name, implementation=way), tiny(), module, [*module.parameters()])


def test_every_name_is_listed_once_with_its_class_defaults_and_state() -> None:
    """Those that are refused too, with the reason."""
    rows = {row[0]: row for row in listing.rows("optimizers")}

    assert [*OPTIMIZERS, *REFUSED] == list(rows)
    assert rows["nesterov"][1:] == (
        "SGD(lr=0.001, momentum=0.9, dampening=0, weight_decay=0, nesterov=True); also foreach and fused",
        "s·n bytes",
    )
    assert rows["adafactor"][2] == "s·(n/c + n/r) + 4 bytes, s·n + 4 where it has fewer than two dimensions"
    assert rows["lbfgs"][1].startswith("refused: it repeats forward and backward up to 20 times a step")


def test_the_history_of_lbfgs_takes_what_is_listed() -> None:
    """A history of 3, once it is full: 2·3 + 2 vectors of all elements, and 2·3 + 1 numbers."""
    parameters = [nn.Parameter(torch.rand(5, 7)), nn.Parameter(torch.rand(11))]
    optimizer = torch.optim.LBFGS(parameters, lr=0.01, max_iter=8, history_size=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = sum(((p - 0.3) ** 4).sum() for p in parameters)
        assert isinstance(loss, Tensor)
        loss.backward()
        return loss

    optimizer.step(closure)
    total = sum(t.untyped_storage().nbytes() for t in tensors_in(dict(optimizer.state)))
    assert evaluate_text(LBFGS_STATE, {"m": 3, "s": 4, "N": 46}) == total == 4 * (8 * 46 + 7)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lbfgs", r"^optimizer 'lbfgs' is refused: it repeats forward and backward up to 20 times a step, until .*$"),
        ("sparse-adam", r"^optimizer 'sparse-adam' is refused: torch's SparseAdam takes sparse gradients only, .*$"),
        ("lion", rf"^unknown optimizer 'lion': use one of {re.escape(', '.join(OPTIMIZERS))}$"),
    ],
)
def test_an_optimizer_that_cannot_be_is_refused_by_name(name: str, message: str) -> None:
    """With the reason, or with those that there are."""
    with pytest.raises(BadInputError, match=message):
        Options(optimizer=name)


# -- hidden matrices -------------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """An embedding, two matrices and a vector inside, the output layer tied or not."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.inner = nn.Linear(5, 7)
        self.free = nn.Parameter(torch.rand(7, 5))
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 11, bias=False)
        if tied:
            self.head.weight = self.words.weight


@pytest.mark.parametrize("tied", [True, False])
def test_muon_takes_matrices_that_are_neither_embedding_nor_output(tied: bool) -> None:
    """AdamW steps every other parameter."""
    module = Tied(tied)
    names = {id(p): name for name, p in module.named_parameters()}
    options = Options(optimizer="muon")
    optimizer = optimizers.build(options, tiny(), module, [*module.parameters()])

    muon, adamw = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert {"inner.weight", "free"} == {*muon}
    assert {*names.values()} == {*muon, *adamw}


def test_a_model_without_hidden_matrices_is_trained_by_adamw_alone() -> None:
    """The one layer is the output layer."""
    spec = own(None, lambda n: nn.Linear(n.a, n.b))
    muon, adamw = (calc.derive(spec, cache=False, optimizer=name) for name in ("muon", "adamw"))

    assert muon["flops.step.total"].at() == adamw["flops.step.total"].at()
    assert calc.check(muon).ok


def test_orthogonalising_a_matrix_takes_five_rounds_of_three_products() -> None:
    """r x c with r < c: 2 r²c for the Gram matrix, 2 r³ for its square, 2 r²c for the product with the matrix, five times."""
    derivation = calc.derive(own(None, lambda n: nn.Sequential(nn.Linear(n.b, n.a), nn.Linear(n.a, n.b))), cache=False, optimizer="muon")
    r, c = 5, 7

    assert 5 * (2 * r * r * c + 2 * r**3 + 2 * r * r * c) == derivation["flops.optimizer.matmul"].at()


# -- a user's own -----------------------------------------------------------------------------------------------------------------

Make = Callable[[Any], torch.optim.Optimizer]


def tiny() -> Spec:
    return own(None)


def own(optimizer: Any, build: Callable[[Any], nn.Module] | None = None) -> Spec:
    """A net of two layers whose first bias is frozen, trained by ``optimizer``."""

    def frozen(n: Sizes) -> nn.Module:
        module = nn.Sequential(nn.Linear(n.b, n.a), nn.ReLU(), nn.Linear(n.a, n.b))
        module[0].bias.requires_grad_(False)
        return module

    def inputs(n: Sizes) -> tuple[Tensor, ...]:
        return (torch.rand(n.B, n.a if build is not None and isinstance(build(n), nn.Linear) else n.b),)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return F.mse_loss(module(x), torch.zeros(()).expand(x.shape[0], module(x).shape[1]))

    return Spec("own", {"B": 3, "a": 5, "b": 7}, build or frozen, inputs, loss, optimizer=optimizer)


class Own(torch.optim.Optimizer):
    """One that a user writes: ``update`` changes a parameter, given its state."""

    def __init__(self, parameters: Any, update: Callable[[nn.Parameter, Tensor, dict[str, Any]], None]) -> None:
        super().__init__(parameters, {})
        self.update = update

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, self.state[p])


def adagrad(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    """As the lecture's deep linear network is trained."""
    g2 = state.get("g2", torch.zeros_like(grad))
    g2 += torch.square(grad)
    state["g2"] = g2
    p.data -= 0.01 * grad / torch.sqrt(g2 + 1e-5)


def with_history(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    """A list of tensors, of which the last two stay."""
    state.setdefault("old", []).append(grad.clone())
    del state["old"][:-2]
    p.sub_(state["old"][0], alpha=0.1)


def scaled_by_norm(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    """A number that is read and only calculated with; its bound is no special number."""
    p.sub_(grad, alpha=0.1 / max(0.5, grad.norm().item()))


def two_groups(parameters: Any) -> torch.optim.Optimizer:
    """Decay for matrices alone."""
    matrices, vectors = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}])


@pytest.mark.parametrize("optimizer", few([adagrad, with_history, scaled_by_norm, two_groups], 2, lambda f: f.__name__))
def test_a_user_s_own_optimizer_is_exact(optimizer: Any) -> None:
    """State in lists, groups of parameters, and a frozen one among them."""
    make: Make = two_groups if optimizer is two_groups else lambda parameters: Own(parameters, optimizer)
    derivation = calc.derive(own(make), cache=False, optimizer="spec")
    report = calc.check(derivation)

    assert [] == failures(report)
    assert report["optimizer_state.bytes"].derived == {"adagrad": 4 * 77, "with_history": 8 * 77, "scaled_by_norm": 0}.get(
        optimizer.__name__, 8 * 77 + 4 * 3
    )
    read = [a.expr for a in derivation.assumptions if "only in arithmetic" in a.expr]
    assert read == (["Own uses numbers read out of tensors only in arithmetic"] if optimizer is scaled_by_norm else [])


def test_a_step_that_leaves_the_spec_s_own_optimizer_out_says_so() -> None:
    """And names the way to take it."""
    left_out = "The spec brings its own optimizer, and this step takes sgd: choose optimizer=spec for the spec's own."
    of_its_own = own(lambda parameters: Own(parameters, adagrad))

    assert left_out in calc.derive(of_its_own, cache=False, optimizer="sgd").notes
    for derivation in (calc.derive(of_its_own, cache=False, optimizer="spec"), calc.derive(of_its_own, cache=False, mode="eval")):
        assert not [note for note in derivation.notes if "optimizer" in note]
    assert left_out not in calc.derive(tiny(), cache=False, optimizer="sgd").notes


def branches(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    if grad.norm().item() > 1:
        p.sub_(grad)


def is_asked(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    if grad.norm().item():
        p.sub_(grad)


def becomes_a_count(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    for _ in range(round(grad.norm().item())):
        p.sub_(grad)


@pytest.mark.parametrize("update", [branches, is_asked, becomes_a_count], ids=lambda f: f.__name__)
def test_a_number_that_determines_a_branch_is_refused(update: Any) -> None:
    """With the line that asks."""
    with pytest.raises(DataDependentError, match=r"^the optimizer branches on a value that it reads out of a tensor, at test_optimizers"):
        calc.derive(own(lambda parameters: Own(parameters, update)), cache=False, optimizer="spec")


def clipped_to_one(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    """A product by 1 is none, so whether the bound is met is a difference of one product per element."""
    p.sub_(grad, alpha=min(1.0, 2 / grad.norm().item()))


def escaping(p: nn.Parameter, grad: Tensor, state: dict[str, Any]) -> None:
    """Python's own function gives a plain number."""
    if math.sqrt(grad.norm().item()) > 5:
        grad.mul_(2)
    p.sub_(grad)


@pytest.mark.parametrize("update", [clipped_to_one, escaping], ids=lambda f: f.__name__)
def test_a_number_with_an_unseen_effect_fails_the_certificate(update: Any) -> None:
    """Traces that certify read another number, and take the bound."""
    with pytest.raises(CertificateError, match=r"^the closed form of flops\.optimizer\.elementwise gives "):
        calc.derive(own(lambda parameters: Own(parameters, update)), cache=False, optimizer="spec")


def test_what_is_no_optimizer_is_refused() -> None:
    """By tracing as by measuring."""
    with pytest.raises(SpecError, match=r"^own: optimizer must return a torch\.optim\.Optimizer, not int$"):
        calc.derive(own(lambda parameters: 3), cache=False, optimizer="spec")


def test_a_spec_without_an_optimizer_has_none_of_its_own() -> None:
    """The refusal names the others."""
    refusal = r"^own brings no optimizer of its own: give its spec optimizer=… or choose one of sgd, .*, muon$"
    with pytest.raises(NapkinError, match=refusal):
        calc.derive(tiny(), cache=False, optimizer="spec")


def test_the_report_says_which_implementation_runs() -> None:
    """Exactly one of the conventions is about it."""
    for way in ("loop", "foreach", "fused"):
        stated = conventions({"mode": "train", "implementation": way})
        said = [claim for claim, _, _ in stated if claim.startswith("The optimizer runs its")]
        assert len(said) == 1
        assert ("per-tensor" if way == "loop" else way) in said[0]
    assert not [claim for claim, _, _ in conventions({"mode": "infer"}) if "optimizer runs its" in claim]
