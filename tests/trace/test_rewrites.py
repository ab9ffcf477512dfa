"""Views are made for autograd as those of real tensors where an in-place operator may regenerate them, and only there."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

import calc
from calc.graph.step import Event, Graph, StepTrace
from calc.graph.unbacked_sizes import with_traced_dimensions
from calc.graph.unrolling import frees_in_order
from calc.trace import concrete_trace
from calc.trace.recorder import Recorder
from tests.zoo import ZOO

_IN_PLACE = [name for name in ZOO if name.startswith("in place on a view")]
_SOME = random.Random(7).sample([name for name, e in ZOO.items() if not (e.slow or name in _IN_PLACE)], 12)
_QUICK = {*random.Random(3).sample(_IN_PLACE, 2), *random.Random(3).sample(_SOME, 2)}


def _graph(name: str) -> Graph:
    """The step of a model of the zoo at its sizes."""
    exhibit = ZOO[name]
    return calc.trace(exhibit.kept(), exhibit.sizes, **exhibit.options.to_json())


def _traced(name: str, graph: Graph, rewrites: bool) -> StepTrace:
    """The step at the sizes of a certificate. Some models draw what they do: all draw the same."""
    torch.manual_seed(0)
    return concrete_trace(
        with_traced_dimensions(ZOO[name].make(), graph), replace(graph, mutates_tracked=rewrites), graph.certificates[0].sizes
    )


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in _QUICK else [pytest.mark.slow]) for n in (*_IN_PLACE, *_SOME)])
def test_a_trace_is_the_same_where_nothing_is_mutated(name: str) -> None:
    """Operators, sizes, lives of storages: with views as real ones are made, and as torch makes those of fake tensors."""
    graph = _graph(name)

    assert _traced(name, graph, rewrites=False) == _traced(name, graph, rewrites=True)


def test_a_graph_says_whether_a_step_rewrites() -> None:
    """An activation in place, and none."""
    added, plain = (_graph(name) for name in (_IN_PLACE[0], "first layer frozen"))

    assert added.mutates_tracked
    assert not plain.mutates_tracked


def test_a_step_whose_mutation_is_missed_is_traced_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at what operators change, a gradient is not copied: the test above can fail."""

    def wrong(name: str) -> bool:
        graph = _graph(name)  # made first: without the look it is refused
        with monkeypatch.context() as patch:
            patch.setattr(Recorder, "_mutates_tracked", lambda *_: False)
            return _traced(name, graph, rewrites=False) != _traced(name, graph, rewrites=True)

    assert any(map(wrong, _IN_PLACE))


def test_storages_that_die_together_do_so_in_the_order_in_which_they_were_made() -> None:
    """After one operator, and in one step: where a window ends, an order of its own begins."""
    events = [Event(1, 0, 0), Event(-1, 5, 1), Event(-1, 3, 1), Event(-1, 4, 2), Event(-1, 1, 2), Event(-1, 2, 2)]

    assert [0, 3, 5, 4, 1, 2] == [event.storage for event in frees_in_order(events, [(0, 4)])]
