"""What is known of positions at all sizes is what they are at each: compared, element by element, with the same operators run for real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import sympy as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import calc
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.spec import Spec
from calc.trace.kernels.result_cache import Repeats
from calc.trace.recorder import Recorder
from calc.trace.symbolic_sizes import SizeEnv
from calc.trace.values.elements import ELEMENT_RULES, RELATIONS, ComparedElements, Elements, Triangle, elements_of
from tests.quick import few
from tests.trace.modules import function

Made = Callable[[Any], Tensor]
HINT, TRIED = 13, (1, 2, 3, 7, 31)

# What makes a tensor of n whole numbers, by the operator that each is about.
MADE: dict[str, Made] = {
    "arange": lambda n: torch.arange(n),
    "arange from": lambda n: torch.arange(3, n + 3),
    "arange by": lambda n: torch.arange(5 * n, 2 * n, -3),
    "zeros": lambda n: torch.zeros(n, dtype=torch.int64),
    "ones": lambda n: torch.arange(n).new_ones(n),
    "ones of floats": lambda n: torch.ones(n),
    "eq of floats": lambda n: torch.ones(n, 3) == 1.0,
    "full": lambda n: torch.full((n,), 7),
    "full of truths": lambda n: torch.full((n,), True),
    "full of truths by a number": lambda n: torch.full((n,), float("-inf"), dtype=torch.bool),
    "full of a size": lambda n: torch.full((n,), n + 1),
    "clone": lambda n: torch.arange(n).clone(),
    "expand": lambda n: torch.arange(n)[:, None].expand(n, 5),
    "_to_copy": lambda n: torch.arange(n, dtype=torch.int32).to(torch.int64),
    "_to_copy of truths": lambda n: torch.full((n,), True).to(torch.int32),
    "unsqueeze": lambda n: torch.arange(n)[None, :, None],
    "view": lambda n: torch.arange(n)[None, :, None].view(1, n),
    "view of truths": lambda n: (torch.arange(n)[None] > 4).view(n, 1),
    "repeat": lambda n: torch.arange(n).repeat(n, 1),
    "repeat of a number": lambda n: torch.full((n,), 7).repeat(2 * n),
    "slice": lambda n: torch.arange(n + 9)[4:],
    "slice of another axis": lambda n: torch.arange(n)[:, None].expand(n, 5)[:, 2:],
    "select": lambda n: torch.arange(n)[-1],
    "select of another axis": lambda n: torch.arange(n)[:, None].expand(n, 5)[:, 3],
    "select before the axis": lambda n: torch.arange(n).expand(5, n)[3],
    "cat": lambda n: torch.cat([torch.arange(n)[:1] - 1, torch.arange(n)]),
    "cat of numbers": lambda n: torch.cat([torch.full((n,), 7), torch.full((3,), 7)]),
    "stack": lambda n: torch.stack((torch.full((n,), 7), torch.full((n,), 7)), 1),
    "stack of different numbers": lambda n: torch.stack((torch.full((n,), 7), torch.full((n,), 8))),
    "stack of a range": lambda n: torch.stack((torch.arange(n), torch.arange(n))),
    "add": lambda n: torch.arange(n) + 5,
    "add of two": lambda n: torch.arange(n) + torch.arange(3, n + 3)[None],
    "add to one number": lambda n: torch.full((1, 1), 4) + torch.arange(n)[:, None],
    "sub": lambda n: torch.arange(n) - n,
    "sub from a number": lambda n: torch.full((1,), 4) - torch.arange(n),
    "mul": lambda n: torch.arange(n) * 3,
    "mul of numbers": lambda n: torch.ones(3, dtype=torch.int64) * n,
    "mul, a length by a number": lambda n: torch.full((3,), n, dtype=torch.int32) * torch.full((3,), 5, dtype=torch.int32),
    "floor_divide": lambda n: (torch.full((3,), n) - 1) // 2 + 1,
    "div": lambda n: torch.div(torch.full((3,), n), 2, rounding_mode="floor"),
    "div, towards zero": lambda n: torch.div(torch.full((3,), n), 2, rounding_mode="trunc"),
    "div of a negative number": lambda n: torch.div(torch.full((3,), -n), 2, rounding_mode="trunc"),
    "div by a tensor": lambda n: torch.div(torch.full((3,), 7 * n), torch.full((3,), 3), rounding_mode="floor"),
    "permute": lambda n: torch.full((3, n), n).permute(1, 0),
    "transpose": lambda n: torch.full((3, n), n).transpose(0, 1),
    "t": lambda n: torch.full((3, n), n).t(),
    "flip": lambda n: torch.full((3,), n).flip(0),
    "roll": lambda n: torch.full((3,), n).roll(1),
    "index_select": lambda n: torch.full((3,), n).index_select(0, torch.tensor([2, 0])),
    "index": lambda n: torch.full((3,), n)[torch.tensor([2, 0])],
    "gather": lambda n: torch.full((3,), n).gather(0, torch.tensor([2, 0])),
    "_to_copy to shorter numbers": lambda n: torch.full((3,), n).to(torch.int32),
    "logical_not of a comparison": lambda n: torch.logical_not(torch.arange(n) < 4),
    "bitwise_not of a comparison": lambda n: ~(torch.arange(n)[None] >= torch.full((3, 1), n - 2)),
    "cumsum": lambda n: torch.full((n,), 7).cumsum(0),
    "sum": lambda n: torch.full((n, 3), True).sum(),
    "sum of truths, as truths": lambda n: torch.full((3,), True).sum(dtype=torch.bool),
    "full of a byte": lambda n: torch.full((n,), -1, dtype=torch.uint8),
    "sum of small numbers": lambda n: torch.full((3,), 100, dtype=torch.int8).sum(dtype=torch.int8),
    "sum of an axis": lambda n: torch.full((5, n, 3), 2).sum(1, keepdim=True),
    "diff": lambda n: torch.diff(torch.arange(n), prepend=torch.arange(n)[:1] - 1),
    "triu": lambda n: torch.full((n, n), float("-inf")).triu(1),
    "tril": lambda n: torch.ones(3, n, n, dtype=torch.int64).tril(-2),
    "tril of truths": lambda n: torch.ones(n, n).tril().to(torch.bool),
    "clone of a triangle": lambda n: torch.ones(n, n).tril().expand(5, n, n).clone(),
    "logical_not": lambda n: torch.ones(n, n).tril().bool().logical_not(),
    "bitwise_not": lambda n: ~torch.ones(n, n).triu(1).bool(),
    "masked_fill": lambda n: torch.zeros(n, n).masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf")),
    "masked_fill_": lambda n: torch.zeros(n, n).masked_fill_(torch.ones(n, n).triu(1).bool(), float("-inf")),
    "eq of triangles": lambda n: torch.full((n, n), float("-inf")).triu(1) == torch.full((n, n), float("-inf")).triu(1),
    "ne of a triangle": lambda n: torch.ones(n, n).triu(1) != 0,
    "max": lambda n: torch.arange(n).max(),
    "max, falling": lambda n: torch.arange(5 * n, 2 * n, -3).max(),
    "min": lambda n: torch.arange(5 * n, 2 * n, -3).min(),
    "gt": lambda n: torch.arange(n) > 4,
    "ge": lambda n: torch.arange(n) >= 4,
    "lt": lambda n: torch.arange(n) < 4,
    "le": lambda n: torch.arange(n) <= 4,
    "eq": lambda n: torch.arange(n) == 4,
    "ne": lambda n: torch.diff(torch.arange(n), prepend=torch.arange(n)[:1] - 1) != 1,
    "lt of two": lambda n: torch.arange(n) < torch.arange(3, n + 3),
    "lt, the other way": lambda n: torch.arange(n)[3:] < torch.arange(n).flip(0)[3:],
    "any": lambda n: (torch.arange(n) > 4).any(),
    "any, less": lambda n: (torch.arange(5 * n, 2 * n, -3) <= 10).any(),
    "all": lambda n: (torch.arange(n) > 0).all(),
    "all, less": lambda n: (torch.arange(n) < 4).all(),
    "all of the same": lambda n: (torch.full((n,), 7) == 7).all(),
}
# Of what no rule follows: an axis turned around, and numbers in formats that do not hold them.
UNKNOWN = {
    "stack of different numbers",
    "stack of a range",
    "div of a negative number",
    "lt, the other way",
    "full of a byte",
    "sum of truths, as truths",
    "sum of small numbers",
}


def known(make: Made) -> tuple[Elements | None, SizeEnv]:
    """What is known of ``make(n)`` for a symbolic n."""
    env = SizeEnv({"n": HINT})
    with FakeTensorMode(shape_env=env), Recorder(Repeats(env), {}):
        return elements_of(make(env.symbols["n"])), env


def at(number: Any, env: SizeEnv, n: int) -> int:
    expr = number.node.expr if isinstance(number, torch.SymInt) else sp.Integer(number)
    return int(expr.subs(dict.fromkeys(env.names, n)))


def written_out(fact: Elements, env: SizeEnv, n: int, like: Tensor) -> Tensor:
    """The elements that a tensor of the shape of ``like`` has at n, by what is known of it."""
    if isinstance(fact, Triangle):
        rows, columns = (torch.arange(like.shape[axis]) for axis in (-2, -1))
        above = columns - rows[:, None] >= fact.diagonal
        return torch.where(above, fact.above, fact.below).to(like.dtype).expand_as(like)
    if isinstance(fact, ComparedElements):
        numbers = written_out(fact.index, env, n, like.to(torch.int64))
        truths: Tensor = RELATIONS[fact.relation](numbers, at(fact.bound, env, n))
        return truths
    places = torch.zeros_like(like, dtype=torch.int64)
    if fact.step:
        assert at(fact.length, env, n) == like.shape[fact.axis]
        places = places + torch.arange(like.shape[fact.axis]).view(-1, *[1] * (-1 - fact.axis))
    return (places * fact.step + at(fact.first, env, n)).to(like.dtype)


def assert_known(make: Made, sizes: Sequence[int] = TRIED) -> None:
    fact, env = known(make)
    assert fact is not None
    for n in sizes:
        real = make(n)
        assert torch.equal(written_out(fact, env, n, real), real), (fact, n)


@pytest.mark.parametrize("name", few(sorted(MADE.keys() - UNKNOWN), 40))
def test_facts_about_a_tensor_hold_at_each_size(name: str) -> None:
    assert_known(MADE[name])


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_without_a_rule_there_is_no_fact(name: str) -> None:
    """``full((3,), True).sum()`` is 3, but not as a truth."""
    assert known(MADE[name])[0] is None


def test_each_rule_is_compared_so() -> None:
    """And a planted error in it, one more than there is, is seen."""
    about = {name.split(",")[0].split()[0] for name in MADE}
    copies = {"zeros_like", "new_zeros", "ones_like", "new_ones", "full_like", "new_full", "scalar_tensor", "detach", "alias", "lift_fresh"}
    shapes = {"squeeze", "_unsafe_view", "_reshape_alias", "amax", "amin"}

    assert set(ELEMENT_RULES) - copies - shapes <= about


@pytest.mark.parametrize("name", few(sorted(MADE.keys() - UNKNOWN - {"diff"}), 40))  # of which any constant cancels
def test_a_planted_error_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = {"ones": "new_ones"}.get(name, name.split(",")[0].split()[0])
    right = ELEMENT_RULES[rule]

    def wrong(given: Any, out: Tensor) -> Any:
        fact = right(given, out)
        if isinstance(fact, ComparedElements):
            return replace(fact, bound=fact.bound + 1)
        if isinstance(fact, Triangle):
            return (
                replace(fact, above=fact.below, below=fact.above)
                if out.dtype is torch.bool
                else replace(fact, diagonal=fact.diagonal + 1)
            )
        return None if fact is None else replace(fact, first=1 - fact.first if out.dtype is torch.bool else fact.first + 1)

    monkeypatch.setitem(ELEMENT_RULES, rule, wrong)
    with pytest.raises(AssertionError):
        assert_known(MADE[name], range(1, 17))


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "later": lambda t: t + 3,
    "back": lambda t: t - t[..., :1],
    "in front": lambda t: t[None],
    "behind": lambda t: t[..., None],
    "repeated": lambda t: t.expand(4, *t.shape),
    "rows": lambda t: t.reshape(-1, t.shape[-1]),
    "columns": lambda t: t.view(t.shape[-1], -1) if t.dim() < 3 else t,
    "the rest": lambda t: t[..., 1:],
    "from the third": lambda t: t[2:] if t.dim() else t,
    "the last": lambda t: t[..., -1],
    "the first row": lambda t: t[0] if t.dim() else t,
    "squeezed": lambda t: t.squeeze(0) if t.dim() else t,
    "twice": lambda t: torch.cat([t, t], -1),
    "thrice": lambda t: t.repeat(*[1] * (t.dim() - 1), 3) if t.dim() else t,
    "differences": lambda t: torch.diff(t, dim=-1),
    "sums": lambda t: t.cumsum(-1),
    "across": lambda t: t - t.mT if t.dim() > 1 else t,
    "more than 4": lambda t: (t > 4).to(torch.int64),
    "no more than the last": lambda t: (t <= t[..., -1:]).to(torch.int64),
}


@settings(max_examples=40)
@given(st.lists(st.sampled_from(sorted(CHANGES)), max_size=6), st.sampled_from(["gt", "le", "eq", "any", "all", "max", "min", ""]))
@pytest.mark.slow
def test_so_it_is_of_any_operators_one_after_the_other(names: list[str], last: str) -> None:
    """Where something is known after all of them."""

    def make(n: Any) -> Tensor:
        t = torch.arange(n)
        for name in names:
            t = CHANGES[name](t) if t.dim() or name in ("later", "in front") else t
        match last:
            case "any" | "all":
                truth: Tensor = getattr(t > 9, last)()
                return truth
            case "max" | "min":
                end: Tensor = getattr(t, last)()
                return end
            case "":
                return t
        compared: Tensor = getattr(t, last)(9)
        return compared

    try:
        fact, env = known(make)
        real = [(n, make(n)) for n in (11, 17, 29)]
    except (RuntimeError, IndexError, ValueError):  # no such axis, or no such view
        return
    for n, tensor in real if fact is not None else ():
        assert torch.equal(written_out(fact, env, n, tensor), tensor)


# -- in a step ------------------------------------------------------------------------------------------------------------


def derived(of: Callable[[Tensor], Tensor], **sizes: int) -> Derivation:
    return calc.derive(function(of), sizes, cache=False, optimizer="sgd")


def stretched(x: Tensor) -> Tensor:
    """Dynamic rotary embeddings do so: beyond some length something else is worked out."""
    positions = torch.arange(x.shape[0])[None]
    return x @ x.T @ x if positions.max() + 1 > 100 else x


@pytest.mark.parametrize(("rows", "flops"), [(3, 0), (100, 0), (101, 4 * 101 * 101 * 7), (300, 4 * 300 * 300 * 7)])
def test_a_branch_on_positions_is_one_on_sizes(rows: int, flops: int) -> None:
    """Taken as at exactly the requested sizes, however small those were that the step was traced with."""
    assert flops == derived(stretched, B=rows)["flops.forward.matmul"].value


def test_what_is_so_at_all_sizes_is_no_assumption() -> None:
    """As that no position restarts, which tells sequences packed into one."""

    def packed(x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[0])[None]
        restarts = (torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)
        return x if (restarts[:, -1] == 0).all() else x @ x.T @ x

    derivation = derived(packed, B=29)

    assert () == derivation.assumptions
    assert 0 == derivation["flops.forward.matmul"].value


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(nn.Transformer.generate_square_subsequent_mask, marks=pytest.mark.slow, id="of numbers"),
        pytest.param(lambda n: torch.ones(n, n, dtype=torch.bool).triu(1), id="of truths"),
    ],
)
def test_a_causal_mask_is_one_at_all_sizes(mask: Made) -> None:
    """Torch compares it with its own, and leaves it out of the attention; no certificate is needed for another length."""

    class Encoder(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(n.d, n.h, n.f, batch_first=True), 1)

        def forward(self, x: Tensor) -> Any:
            return self.layers(x, mask(x.shape[1])).sum()

    dims: dict[str, Any] = {"B": 2, "T": 5, "d": Dim(12, multiple_of="h"), "h": 2, "f": 17}
    s = Spec("encoder", dims, Encoder, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x))
    graph = calc.trace(s, cache=False, optimizer="sgd")

    assert [] == [a.expr for a in graph.assumptions if "value read" in a.expr]
    assert (
        calc.derive(s, {"T": 23}, cache=False, optimizer="sgd")["memory.peak"].value == calc.derive(graph, {"T": 23})["memory.peak"].value
    )


def test_overwritten_positions_have_no_facts() -> None:
    """Through another view as well."""
    assert known(lambda n: torch.arange(n).add_(3))[0] is None

    def changed(n: Any) -> Tensor:
        positions = torch.arange(n)
        positions[2:] += 3
        return positions

    assert known(changed)[0] is None


class Truthful(nn.Module):
    """Asks whether a length, computed from positions, is one: ``if length:`` makes a truth value of a tensor."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        length = torch.arange(x.shape[1]).max() + 1
        y: Tensor = self.layer(x) if length else x
        return y


def test_the_truth_value_of_a_length_in_a_tensor_is_a_guard_and_no_number() -> None:
    """The length stays a symbol, and no loop count."""
    s = Spec("truthful", {"B": 2, "T": 11, "d": 7}, Truthful, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert derivation["flops.forward.matmul"].text == "2*B*T*d**2"
    assert not any("polynomial" in a.expr for a in derivation.assumptions)
