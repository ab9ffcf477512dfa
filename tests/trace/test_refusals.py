"""What cannot be traced is refused in one line that names its cause, and the line of the model where that arose."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.errors import BadInputError, DataDependentError, NapkinError, SpecError, TraceError
from calc.spec import Spec
from tests.checks import failures
from tests.trace import modules
from tests.trace.modules import Weighted, function, spec
from tests.trace.refused import assert_names_line, refusal

# -- branches and sizes that depend on data --------------------------------------------------------------------------------


def if_positive(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    return -x


def by_item(x: Tensor) -> Tensor:
    return x if x.sum().item() > 0 else -x


def first_of_list(x: Tensor) -> Tensor:
    return x[: x.argmax(1).tolist()[0]]


def while_large(x: Tensor) -> Tensor:
    while x.abs().max() > 1:
        x = x / 2
    return x


def equal_halves(x: Tensor) -> Tensor:
    return x if torch.equal(x, x + 1) else -x


def as_int(x: Tensor) -> Tensor:
    return x[:, : int(x.argmax())]


@pytest.mark.parametrize("of", [if_positive, by_item, first_of_list, while_large, equal_halves, as_int])
def test_a_value_read_out_of_data_is_refused(of: Callable[[Tensor], Tensor]) -> None:
    """Its line is named, and what to do: no closed form follows from one branch."""
    error = refusal(function(of))

    assert isinstance(error, DataDependentError)
    assert_names_line(error, of)
    assert "depends on the data, so no closed form follows" in str(error)


def test_a_number_read_out_of_data_may_be_calculated_with_and_logged() -> None:
    """No branch and no size depends on it; the assumption names the line."""
    log: list[Any] = []

    def scaled(x: Tensor) -> Tensor:
        log.append(f"{x.sum().item():.3f}")
        return x * float(x.abs().mean())

    derivation = calc.derive(function(scaled), cache=False, optimizer="sgd")

    said = [a.expr for a in derivation.assumptions if "only in arithmetic" in a.expr]
    assert len(said) == 2
    assert all("test_refusals.py" in text for text in said)
    assert [] == failures(calc.check(derivation))


def test_a_parameter_read_as_a_number_is_data() -> None:
    """Weights are not sizes either."""

    def gated(module: Weighted, x: Tensor) -> Tensor:
        return module(x).sum() * (1 if module.w.sum() > 0 else 2)

    error = refusal(spec(lambda n: Weighted(n.d, lambda x: x), loss=gated))

    assert isinstance(error, DataDependentError)
    assert_names_line(error, gated)


# -- sizes read as numbers that are no loop counts ---------------------------------------------------------------------------


def test_a_size_read_as_a_number_whose_powers_grow_stays_a_number() -> None:
    """2 ** int(d) columns are no polynomial in d: (d + 1)·2^d parameters at this d, and the line that reads it is said."""

    def build(n: Any) -> nn.Module:
        return nn.Linear(n.d, 2 ** int(n.d))

    derivation = calc.derive(spec(build), cache=False, optimizer="sgd")
    d = derivation.sizes["d"]

    assert derivation.specialized == {"d": d}
    assert any("test_refusals.py" in a.because and a.expr == f"d = {d} throughout" for a in derivation.assumptions)
    assert derivation["parameters"].value == (d + 1) * 2**d


@pytest.mark.slow
def test_layers_that_double_leave_their_number_a_number() -> None:
    """Widths d, 2d, 4d, …: no polynomial in the depth, so it stays 3, and the line that counts the layers is said."""

    class Doubling(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            layers = [nn.Linear(2**i * n.d, 2 ** (i + 1) * n.d) for i in range(n.L)]
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layers(x)
            return y

    derivation = calc.derive(spec(Doubling, dims={"B": 3, "d": 7, "L": 3}), cache=False, optimizer="sgd")

    assert derivation.specialized == {"L": 3}
    assert any("test_refusals.py" in a.because and a.expr == "L = 3 throughout" for a in derivation.assumptions)
    # 2 d² + 8 d² + 32 d², and biases of 2 d, 4 d and 8 d.
    assert derivation["parameters"].value == 42 * 7**2 + 14 * 7


class Rays(nn.Module):
    """As radiance fields are: the input comes in again at the middle layer, and a product runs along the samples of each ray."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        widths = [3] + [n.w + 3 * (i == n.D // 2) for i in range(1, n.D)]
        self.layers = nn.ModuleList([nn.Linear(width, n.w) for width in widths])
        self.density = nn.Linear(n.w, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i, layer in enumerate(self.layers):
            y = torch.relu(layer(torch.cat([y, x], -1) if i and i == len(self.layers) // 2 else y))
        opaque = torch.sigmoid(self.density(y)).squeeze(-1)
        return (opaque * torch.cumprod(1 - opaque, 1)).sum()


def _rays(**declared: Any) -> Spec:
    sizes = {"R": 3, "S": 5, "w": 7, "D": 4}
    return Spec("rays", sizes, Rays, lambda n: (torch.randn(n.R, n.S, 3),), lambda module, x: module(x), **declared)


@pytest.mark.slow
def test_of_a_declared_depth_that_is_at_fault_peaks_have_a_closed_form_in_the_other_sizes() -> None:
    """The peak has no closed form in the depth D. The samples S are a loop count too, and stay a symbol."""
    derivation = calc.derive(_rays(trip_counts=("D",)), cache=False, optimizer="sgd")

    assert derivation.specialized == {"D": 4}
    # (3 + 1) w + (w + 1) w + (w + 4) w + (w + 1) w, and w + 1 for the density.
    assert derivation["parameters"].at(w=11) == 4 * 11 + 2 * 12 * 11 + 15 * 11 + 12
    assert derivation["parameters"].at(w=11, S=13) == derivation["parameters"].at(w=11)


@pytest.mark.slow
def test_a_peak_without_a_closed_form_in_a_loop_count_leaves_it_a_symbol_of_everything_else() -> None:
    """Peaks are traced at the sizes; what the layers have and do is a polynomial in their number."""
    derivation = calc.derive(_rays(), cache=False, optimizer="sgd")

    assert derivation.specialized == {}
    assert {name for name in ("memory.peak", "activations.bytes", "flops.step.total") if derivation[name].text is None} == {"memory.peak"}
    # 4 w into the first layer, D - 1 layers of (w + 1) w, 3 w more into the middle one, and w + 1 for the density.
    assert derivation["parameters"].at(w=11, D=9) == 4 * 11 + 8 * 12 * 11 + 3 * 11 + 12
    assert failures(calc.check(derivation)) == []


# -- values that are only checked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [modules.asserted, modules.guarded, modules.guarded_where_asked, modules.compared])
def test_a_value_that_is_only_checked_is_the_one_that_raises_nothing(of: Callable[[Tensor], Tensor]) -> None:
    s = Spec("checked", {"B": 3}, lambda n: nn.Linear(4, 4), lambda n: (torch.randn(n.B, 4),), lambda m, x: of(m(x)).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert {"at any other the step raises an error"} == {a.because for a in derivation.assumptions}
    assert [] == failures(calc.check(derivation))


def test_a_check_that_fails_on_the_real_data_is_the_error_of_the_real_run() -> None:
    """The closed forms assume that a check holds; the real run evaluates it."""
    s = function(modules.never_true)
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert ["the value read at modules.py:LINE: assert (x > 0).sum().item() < 0 is True"] == [
        re.sub(r":\d+:", ":LINE:", a.expr) for a in derivation.assumptions
    ]
    with pytest.raises(NapkinError, match="AssertionError"):
        calc.check(derivation)


UNDECIDED = [modules.chosen, modules.chosen_in_assert, modules.compared_with_either, modules.compared_beside, modules.contained_in]


@pytest.mark.parametrize("of", UNDECIDED)
def test_a_value_with_two_branches_is_refused(of: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(DataDependentError, match="reads a value out of a tensor"):
        calc.derive(function(of), cache=False, optimizer="sgd")


def test_a_module_that_is_looked_up_by_a_value_is_refused() -> None:
    """As experts in a ModuleDict; that its name is that of a fake tensor is not said."""
    experts = nn.ModuleDict({f"expert_{i}": nn.Linear(4, 4) for i in range(3)})
    s = Spec("named", {"B": 3}, lambda n: experts, lambda n: (torch.randn(n.B, 4),), modules.by_largest)

    with pytest.raises(
        DataDependentError, match=r"^named looks up a name that it makes of the value in a tensor, at modules\.py:\d+: .*\]"
    ):
        calc.derive(s, cache=False, optimizer="sgd")


# -- models that raise ----------------------------------------------------------------------------------------------------


STORY = "this model\nhas a long story"


def raises(x: Tensor) -> Tensor:
    raise ValueError(STORY)


def wrong_key(x: Tensor) -> Tensor:
    return {}["missing"]


def wrong_shape(x: Tensor) -> Tensor:
    return x @ x


def endless(x: Tensor) -> Tensor:
    return endless(x)


def failed_assert(x: Tensor) -> Tensor:
    assert x.shape[0] < 0, "never"
    return x


@pytest.mark.parametrize(
    ("of", "kind", "said"),
    [
        (raises, "ValueError", "this model"),
        (wrong_key, "KeyError", "'missing'"),
        (wrong_shape, "RuntimeError", ""),
        (endless, "RecursionError", "maximum recursion depth exceeded"),
        (failed_assert, "AssertionError", "never"),
    ],
)
def test_a_model_that_raises_is_reported_with_its_line(of: Callable[[Tensor], Tensor], kind: str, said: str) -> None:
    """Kind, line and first line of what it said."""
    error = refusal(function(of))

    assert isinstance(error, TraceError)
    assert_names_line(error, of)
    assert str(error).startswith(f"small raised {kind} at test_refusals.py:")
    assert said in str(error)
    assert "long story" not in str(error)


def leaves(x: Tensor) -> Tensor:
    raise SystemExit(3)


def test_a_model_that_leaves_python_is_refused() -> None:
    """``exit()`` in a model's code ends neither a command with its own status nor a notebook."""
    assert_names_line(refusal(function(leaves)), leaves)


def test_a_model_that_raises_in_a_library_is_reported_with_its_own_line() -> None:
    """Not torch's, which it did not write."""

    def normalized(x: Tensor) -> Tensor:
        return F.layer_norm(x, (x.shape[1] + 1,))

    assert_names_line(refusal(function(normalized)), normalized)


def test_a_build_that_raises_is_reported_with_its_line() -> None:
    """Before there is a model at all."""

    def build(n: Any) -> nn.Module:
        return nn.Linear(n.d, n.missing)

    error = refusal(spec(build))

    assert_names_line(error, build)
    assert "AttributeError" in str(error)


def test_inputs_that_raise_are_reported_with_their_line() -> None:
    """They are the user's code as well."""

    def inputs(n: Any) -> tuple[Tensor, ...]:
        return (torch.randn(n.B, n.d).reshape(7, 7, 7),)

    assert_names_line(refusal(spec(lambda n: nn.Linear(n.d, n.d), inputs=inputs)), inputs)


def test_an_optimizer_that_raises_is_reported_with_its_line() -> None:
    """Its step is part of the training step."""

    class Broken(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise ValueError("no step today")

    error = refusal(spec(lambda n: nn.Linear(n.d, n.d), optimizer=Broken), optimizer="spec")

    assert_names_line(error, Broken.step)
    assert str(error).endswith("no step today")


def test_sizes_that_do_not_match_are_refused_with_the_line() -> None:
    """d + 1 columns into a layer of d."""
    error = refusal(spec(lambda n: Weighted(n.d, lambda x: x), inputs=lambda n: (torch.randn(n.B, n.d + 1),)))

    assert isinstance(error, TraceError)
    assert "modules.py:" in str(error)
    assert "must match" in str(error)


# -- specs that are not what a spec promises ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"build": lambda n: "hello"}, r"^small: build must return a torch\.nn\.Module, not str$"),
        ({"build": lambda n: None}, r"^small: build must return a torch\.nn\.Module, not NoneType$"),
        ({"build": lambda n: nn.Linear}, r"^small: build must return a torch\.nn\.Module, not type$"),
        (
            {"build": lambda n: nn.ReLU()},
            r"^small: the module has no parameter, so there is nothing to train; derive it in mode eval or infer$",
        ),
        (
            {"build": lambda n: nn.ModuleDict({"*": nn.Linear(n.d, n.d)})},
            r"^small: a part of the model is called '\*', but closed forms write \* for a loop index: rename it$",
        ),
        (
            {"build": lambda n: nn.ParameterDict({"*": nn.Parameter(torch.empty(n.d))})},
            r"^small: a part of the model is called '\*', but closed forms write \* for a loop index: rename it$",
        ),
        ({"inputs": lambda n: torch.randn(n.B, n.d)}, r"^spec 'small': inputs must return a tuple with at least one tensor, not a tensor$"),
        ({"inputs": lambda n: (1, 2)}, r"^spec 'small': inputs must return a tuple with at least one tensor, not tuple of int, int$"),
        ({"inputs": lambda n: ()}, r"^spec 'small': inputs must return a tuple with at least one tensor, not tuple of nothing$"),
        (
            {"inputs": lambda n: ({torch.randn(n.B, n.d)},)},
            r"^spec 'small': inputs returned an object of set, but may return tensors and numbers, also in tuples, lists and dictionaries$",
        ),
        ({"loss": lambda module, x: module(x)}, r"^small: loss must return a scalar tensor, not a tensor of 2 dimensions$"),
        ({"loss": lambda module, x: module(x).sum(0)}, r"^small: loss must return a scalar tensor, not a tensor of 1 dimensions$"),
        ({"loss": lambda module, x: 3.0}, r"^small: loss must return a scalar tensor, not float$"),
        ({"loss": lambda module, x: None}, r"^small: loss must return a scalar tensor, not NoneType$"),
    ],
)
def test_a_malformed_result_of_a_spec_is_named(changes: dict[str, Any], message: str) -> None:
    """What was returned, and what should have been."""
    error = refusal(spec(changes.pop("build", lambda n: nn.Linear(n.d, n.d)), **changes))

    assert isinstance(error, SpecError)
    assert re.search(message, str(error)), str(error)


def test_a_name_of_several_lines_stays_in_one() -> None:
    """A spec's name is the user's text."""
    refusal(spec(lambda n: None, name="first\nsecond"))


def test_a_loss_that_reaches_no_parameter_is_refused() -> None:
    """There is no backward to trace."""
    error = refusal(function(lambda x: x.detach()))

    assert isinstance(error, NapkinError)
    assert "the loss depends on no parameter that requires a gradient" in str(error)


def test_an_optimizer_that_the_model_does_not_bring_is_refused() -> None:
    """With those there are."""
    error = refusal(spec(lambda n: nn.Linear(n.d, n.d)), optimizer="spec")

    assert isinstance(error, BadInputError)
    assert str(error).startswith("small brings no optimizer of its own: give its spec optimizer=… or choose one of sgd, ")


@pytest.mark.parametrize(("option", "value"), [("optimizer", "lion"), ("precision", "fp12"), ("attention", "sparse"), ("mode", "dream")])
def test_an_unknown_option_is_refused_with_those_there_are(option: str, value: str) -> None:
    """Before anything is traced."""
    error = refusal(spec(lambda n: nn.Linear(n.d, n.d)), **{option: value})

    assert isinstance(error, BadInputError)
    assert str(error).startswith(f"unknown {option} {value!r}: {'did you mean fp32?' if value == 'fp12' else 'use one of '}")


def test_sizes_that_torch_itself_reads_as_numbers_are_numbers() -> None:
    """In which order a chain of matrices is multiplied depends on their sizes, and torch reads them outside of what is traced."""
    derived = calc.derive(function(lambda x: torch.linalg.multi_dot([x, x.t(), x])), cache=False)

    assert {"B": 3, "d": 7} == dict(derived.specialized)
    assert "the size d was read as one number at " in derived.specialization_reasons["d"]
    assert [] == failures(calc.check(derived))


def test_the_head_of_a_call_that_raises_is_named_by_its_place() -> None:
    def of(x: Tensor) -> Tensor:
        raise ValueError(
            f"expected 3 channels, got {2 + 2}",
        )

    line = of.__code__.co_firstlineno + 1
    assert f"raised ValueError at test_refusals.py:{line}: expected 3 channels, got 4" in str(refusal(function(of)))


def test_a_long_message_of_the_model_ends_in_an_ellipsis_where_it_is_cut() -> None:
    """Two hundred characters of it stand in the refusal, the ellipsis among them."""
    sevens = "7" * 300

    def of(x: Tensor) -> Tensor:
        raise ValueError(sevens)

    assert re.findall("7{9,}.", str(refusal(function(of)))) == ["7" * 199 + "…"]
