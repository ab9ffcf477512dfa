"""Sizes where Python code expects integers: they are ``int``, can be looked up, named and divided, and stay symbols."""

from __future__ import annotations

import copy
import functools
import json
import math
import numbers
import operator
from collections.abc import Callable
from math import gcd, isqrt
from math import sqrt as root_of
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calc
from calc import Spec
from calc.errors import MeasurementError
from tests.checks import failures
from tests.quick import few


class _Meta(type):
    def __hash__(cls) -> int:
        return type.__hash__(cls)

    def __call__(cls, d: Any) -> Any:
        return type.__call__(cls, d)


class _Width(metaclass=_Meta):
    def __init__(self, d: Any) -> None:
        self.of = 2 * d


def _dispatched(d: Any) -> Any:
    @functools.singledispatch
    def width(_: Any) -> Any:
        return None

    @width.register
    def _(d: int) -> Any:
        return 2 * d

    return width(d)


def _matched(d: Any) -> Any:
    match d:
        case int():
            return 2 * d
    return None


def _named(d: Any) -> Any:
    return 2 * d if f"width {d}" and f"{d:04d} of {d}" else None


WIDTHS: dict[str, Callable[[Any], Any]] = {
    "an int": lambda d: 2 * d if isinstance(d, int) else d[0],
    "an int or a list": lambda d: 2 * d if isinstance(d, (int, list)) else None,
    "an int or a float": lambda d: 2 * d if isinstance(d, int | float) else None,
    "in JSON": lambda d: 2 * d if [json.dumps({"width": d}, indent=1), json.dumps([d, 1, True])] else None,
    "of type int": lambda d: 2 * d if type(d) is int else None,
    "of type int, as a number is": lambda d: 2 * d if type(len("d")) is type(d) is int else None,
    "of a type in a tuple": lambda d: 2 * d if type(d) in (int, float) else None,
    "of a class that a metaclass makes": lambda d: _Width(d).of if {_Width} and type(_Meta) is type else None,
    "of a subclass": lambda d: 2 * d if issubclass(type(d), int) else None,
    "a number": lambda d: 2 * d if isinstance(d, numbers.Number) else None,
    "integral": lambda d: 2 * d if isinstance(d, numbers.Integral) else None,
    "an index": lambda d: 2 * operator.index(d),
    "dispatched": _dispatched,
    "matched": _matched,
    "named": _named,
    "rounded to ones": lambda d: round(d) + round(d, 1),
    "divided with rest": lambda d: divmod(4 * d, 2)[0] + divmod(d, 3)[1],
    "a power": lambda d: pow(d, 2),
    "true": lambda d: 2 * d if d else None,
    "the least": lambda d: min(d, 5 * d),
    "a product": lambda d: math.prod([d, 2]),
    "a sum": lambda d: sum([d, d]),
    "a product of NumPy's": lambda d: int(np.prod((d, 2))),
    "a common divisor": lambda d: math.gcd(4 * d, 6 * d),
    "a common divisor by its own name": lambda d: gcd(4 * d, 6 * d),
    "a root": lambda d: isqrt(d * d),
    "a root as a power": lambda d: int((4 * d * d) ** 0.5),
    "a root by a name given to it": lambda d: int(root_of(d * d)),
    "shifted": lambda d: (d << 2) >> 1,
    "masked": lambda d: (d & 7) + 5,
    "a numerator": lambda d: d.numerator + d.real,
    "rounded already": lambda d: math.floor(d) + math.ceil(d),
    "inverted": lambda d: -(~d),
}


def _spec(width: Callable[[Any], Any], **dims: int) -> Spec:
    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(n.d, width(n.d)), nn.ReLU(), nn.Linear(width(n.d), n.d))

    return Spec("sized", {"B": 3, "d": 31, **dims}, build, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())


@pytest.mark.parametrize("name", few(WIDTHS, 8))
def test_a_size_is_an_integer_and_stays_a_symbol(name: str) -> None:
    """f of d: 2·d·f + f + d parameters, whatever the width's function reads of d, and no assumption."""
    derivation = calc.derive(_spec(WIDTHS[name]), cache=False, mode="infer")

    assert ({}, ()) == (derivation.specialized, derivation.assumptions)
    for d in (32, 35, 64):
        f = WIDTHS[name](d)
        assert 2 * d * f + f + d == derivation["parameters"].at(d=d), d


def _doubled_above_40(d: Any) -> Any:
    return 2 * d if copy.deepcopy({"d": d})["d"] > 40 else d


def test_a_comparison_of_a_copied_size_is_a_guard_of_the_step() -> None:
    """Libraries copy a config with the sizes in it; 2·d·f + f + d parameters, with f = 2·d above 40."""
    derivation = calc.derive(_spec(_doubled_above_40), cache=False, mode="infer")

    for d in (32, 64):
        f = _doubled_above_40(d)
        assert 2 * d * f + f + d == derivation["parameters"].at(d=d), d


_WIDTHS_OF = {64: 5, 96: 7}


@pytest.mark.parametrize("d", [31, 64])
def test_what_a_table_has_for_a_size_is_read_at_that_size(d: int) -> None:
    """A table may have a number for one width and none for another: the step is traced at each requested width."""
    width = functools.partial(_looked_up, _WIDTHS_OF)
    derivation = calc.derive(_spec(width), {"d": d}, cache=False, mode="infer")

    for at in (d, 96, 97):
        assert 2 * at * width(at) + width(at) + at == derivation["parameters"].at(d=at)


def _looked_up(table: dict[Any, Any], d: Any) -> Any:
    return table.get(d, 2 * d)


BY_NUMBER: dict[str, Callable[[Any], Any]] = {
    "digits": lambda d: len(str(d)) + 2,
    "a text that is compared": lambda d: 5 if f"{d}" == "64" else d,
    "JSON that is compared": lambda d: 5 if json.dumps(d) == "64" else d,
    "a text that is a number": lambda d: int(f"{d}") + 1,
    "rounded to tens": lambda d: round(d, -1) + 10,
    "rounded to tenths": lambda d: int(round(d / 3, 1) * 10),
    "an exponential": lambda d: int(math.exp(1 / d) * 8),
    "a table of doubles": lambda d: {16.0: 5}.get(d / 4, 7),
}


@pytest.mark.parametrize("name", few(BY_NUMBER, 2))
def test_what_goes_by_the_number_that_a_size_is_is_right_at_every_size(name: str) -> None:
    """Of a text, of a function of Python's that takes a double, of a table: there is a closed form where it holds, and else a trace."""
    derivation = calc.derive(_spec(BY_NUMBER[name]), cache=False, mode="infer")

    for at in (31, 2, 64):
        f = BY_NUMBER[name](at)
        assert 2 * at * f + f + at == derivation["parameters"].at(d=at), at


def test_different_sizes_are_different_in_a_set() -> None:
    """d and f are two widths, and one where they are equal."""

    def build(n: Any) -> nn.Module:
        return nn.ModuleList(nn.Linear(n.d, width) for width in {n.d, n.f, n.d})

    s = Spec("set", {"B": 3, "d": 31, "f": 37}, build, lambda n: (torch.randn(n.B, n.d),), lambda m, x: sum(a(x).sum() for a in m))
    two, one = (calc.derive(s, {"f": f}, cache=False, mode="infer")["parameters"].value for f in (37, 31))

    assert (31 * 31 + 31 + 31 * 37 + 37, 31 * 31 + 31) == (two, one)


# -- functions that remember their results --------------------------------------------------------------------------------


@functools.lru_cache
def _twice(d: Any) -> Any:
    return 2 * d


@functools.cache
def _positions(rows: Any) -> Tensor:
    return torch.arange(rows).float()


class _Table:
    @staticmethod
    @functools.cache
    def of(rows: Any) -> Tensor:
        return torch.arange(rows).float()

    @functools.lru_cache(maxsize=8)  # noqa: B019  # as models write it
    def made(self, rows: Any) -> Tensor:
        return torch.arange(rows).float()


def _added(positions: Callable[[Any], Tensor]) -> Spec:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        rows = positions(x.shape[0])
        return (module(x) + rows[:, None] + positions(x.shape[0])[:, None]).sum()

    return Spec("remembered", {"B": 3, "d": 31}, lambda n: nn.Linear(n.d, n.d), lambda n: (torch.randn(n.B, n.d),), loss)


def test_a_cached_function_is_called_with_a_symbol() -> None:
    derivation = calc.derive(_spec(lambda d: _twice(d)), cache=False, mode="infer")

    assert ((), "4*d**2 + 3*d") == (derivation.assumptions, derivation["parameters"].text)


def _copying(function: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
    """A decorator that remembers, and gives copies."""
    remembering = functools.lru_cache(function)
    return lambda rows: remembering(rows).clone()


@_copying
def _copied(rows: Any) -> Tensor:
    return torch.arange(rows).float()


@functools.lru_cache(maxsize=1)
def _places_of(x: Tensor) -> Tensor:
    """Of the last tensor only, as of a mask in a detector: each step has a new one."""
    return torch.arange(x.numel()).float()


def test_what_a_cache_evicts_is_freed_in_the_second_step() -> None:
    """A cache of one entry keeps what the last step made, not what each step made."""

    def loss(module: nn.Linear, x: Tensor) -> Tensor:
        return (module(x).sum() * _places_of(x > 0)).sum()

    made = Spec("evicting", {"B": 3}, lambda n: nn.Linear(40, 40), lambda n: (torch.randn(n.B, 40),), loss)
    derivation = calc.derive(made, cache=False, optimizer="adamw")

    assert [] == failures(calc.check(derivation))


@functools.lru_cache(maxsize=1)
def _masked_places(shape: tuple[Any, ...], mask: Tensor) -> Tensor:
    return torch.arange(shape[0]).float()[:, None] * mask


def test_tensors_are_one_key_of_a_cache_only_where_they_are_one_tensor() -> None:
    """Beside a size, too, as in the positions of a detector: each step has a mask of its own, and calls with one mask share a result."""

    def loss(module: nn.Linear, x: Tensor) -> Tensor:
        mask = x > 0
        return (module(x) * _masked_places(x.shape, mask) + _masked_places(x.shape, mask)).sum()

    made = Spec("masked", {"B": 3, "d": 7}, lambda n: nn.Linear(n.d, n.d), lambda n: (torch.randn(n.B, n.d),), loss)
    derivation = calc.derive(made, cache=False, optimizer="adamw")

    assert {} == dict(derivation.specialized)
    assert [] == failures(calc.check(derivation))


def test_what_a_module_makes_without_memory_is_not_remembered() -> None:
    """Whether a real run fits is computed from a module without memory: the run after it has its constants all the same."""

    class Weighted(nn.Linear):
        def __init__(self, d: Any) -> None:
            super().__init__(d, d)
            self.register_buffer("weights", _copied(9))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.weights.sum()

    made = Spec("weighted", {"B": 3}, lambda n: Weighted(4), lambda n: (torch.randn(n.B, 4),), lambda m, x: m(x).sum())
    derivation = calc.derive(made, cache=False, optimizer="sgd")

    assert [] == failures(calc.check(derivation))
    assert torch.equal(torch.arange(9).float(), _copied(9))


_ONES: Tensor | None = None


def test_a_global_that_a_model_sets_keeps_none_of_a_trace() -> None:
    def rows(count: Any) -> Tensor:
        global _ONES
        if _ONES is None:
            _ONES = torch.ones(9)
        return torch.arange(count) * _ONES.sum()

    derivation = calc.derive(_added(rows), cache=False, optimizer="sgd")

    assert _ONES is None
    assert [] == failures(calc.check(derivation))


def test_a_real_run_that_meets_a_tensor_of_the_trace_is_refused() -> None:
    """A list outside the module keeps what its forward made: no kernel may write where there is no memory."""
    made: list[Tensor] = []

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        made.append(made[0] if made else torch.arange(9.0))
        return (module(x).sum() * made[0]).sum()

    derivation = calc.derive(
        Spec("kept", {"B": 3}, lambda n: nn.Linear(4, 4), lambda n: (torch.randn(n.B, 4),), loss), cache=False, optimizer="sgd"
    )

    with pytest.raises(MeasurementError, match="meets a tensor of the trace"):
        calc.check(derivation)


_TABLE = _Table()
_MADE: dict[Any, Tensor] = {}


def _of_a_table(rows: Any) -> Tensor:
    if rows not in _MADE:
        _MADE[rows] = torch.arange(rows).float()
    return _MADE[rows]


def test_a_table_of_tensors_keeps_none_of_a_trace() -> None:
    """A real run at sizes that were traced makes its own."""
    derivation = calc.derive(_added(_of_a_table), cache=False, optimizer="sgd")

    assert {} == _MADE
    assert [] == [text for at in ({}, {"B": 5}) for text in failures(calc.check(derivation, **at))]
    assert {Tensor} == {*map(type, _MADE.values())}


@pytest.mark.parametrize(
    "positions",
    [lambda b: _positions(b), lambda b: _TABLE.made(b), lambda b: _Table.of(b), lambda b: _copied(b)],
    ids=["function", "method", "static", "decorated"],
)
def test_a_remembered_tensor_is_that_of_its_own_trace(positions: Callable[[Any], Tensor]) -> None:
    """A table is made once in a step, whatever was traced before it or run for real; what a trace remembered, no real run meets."""
    before = positions(3)
    derivation = calc.derive(_added(positions), cache=False, optimizer="sgd")

    assert () == derivation.assumptions
    assert [] == [text for at in ({}, {"B": 5}) for text in failures(calc.check(derivation, **at))]
    assert torch.equal(before, positions(3))
    assert type(positions(11)) is Tensor


def test_a_size_that_is_read_as_a_number_says_so() -> None:
    """Of a width that is put into a text, in no words about sizes below 1."""
    derivation = calc.derive(_spec(lambda d: len(operator.mod("%d", d)) + 2), cache=False, mode="infer")

    assert "d" in derivation.specialized
    assert "< 1" not in derivation.specialization_reasons["d"]
    assert "test_integers.py:" in derivation.specialization_reasons["d"]


_LAYERS: dict[str, tuple[Callable[[Any], nn.Module], Callable[[nn.Module, Tensor], Tensor]]] = {
    "bilinear": (lambda n: nn.Bilinear(n.d, n.d, 3), lambda m, x: m(x, x)),
    "attention that returns its weights": (
        lambda n: nn.MultiheadAttention(2 * n.d, 2),
        lambda m, x: m(*[torch.cat([x, x], -1)] * 3, need_weights=True)[0],
    ),
}


@pytest.mark.parametrize("name", [*_LAYERS])
def test_what_torchs_own_layers_calculate_with_a_width_leaves_it_a_symbol(name: str) -> None:
    """The bound of a bilinear map's weights and the scale of attention: the width is no loop count."""
    build, run = _LAYERS[name]
    spec = Spec(
        name="m",
        dims={"B": 4, "T": 6, "d": 8},
        build=build,
        inputs=lambda n: (torch.randn(n.T, n.B, n.d),),
        loss=lambda m, x: (run(m, x) ** 2).mean(),
    )
    graph, derivation = calc.trace(spec, optimizer="sgd"), calc.derive(spec, optimizer="sgd")

    assert ((), {}) == (graph.loops, graph.specialized)
    assert calc.check(derivation, d=12).ok
