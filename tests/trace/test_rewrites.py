"""Views are made for autograd as those of real tensors where an operator in place may have them taken again, and only there."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

import calc
from calc.decided import as_recorded
from calc.graph import Event, Graph, Record
from calc.trace import probe
from calc.trace.recorder import Recorder
from tests.zoo import ZOO

_IN_PLACE = [name for name in ZOO if name.startswith("in place on a view")]
_SOME = random.Random(7).sample([name for name, e in ZOO.items() if not (e.slow or name in _IN_PLACE)], 12)


def _graph(name: str) -> Graph:
    """The step of a model of the zoo at its sizes."""
    exhibit = ZOO[name]
    return calc.trace(exhibit.kept(), exhibit.sizes, **exhibit.options.to_json())


def _recorded(name: str, graph: Graph, rewrites: bool) -> Record:
    """The step at the sizes of a certificate. Some models draw what they do: all draw the same."""
    torch.manual_seed(0)
    record = probe(as_recorded(ZOO[name].make(), graph), replace(graph, rewrites=rewrites), graph.certificates[0].sizes)
    return replace(record, events=tuple(_in_one_order(record.events)))


def _in_one_order(events: Sequence[Event]) -> Iterator[Event]:
    """Storages that are freed together, by number: autocast frees its casts in the order of their addresses."""
    for (change, _), events_together in itertools.groupby(events, lambda event: (event.change, event.op)):
        together = [*events_together]
        yield from together if change > 0 else sorted(together, key=lambda event: event.storage)


@pytest.mark.parametrize("name", [*_IN_PLACE, *_SOME])
def test_a_record_is_the_same_where_nothing_is_rewritten(name: str) -> None:
    """Operators, sizes, lives of storages: with views as real ones are made, and as torch makes those of fake tensors."""
    graph = _graph(name)

    assert _recorded(name, graph, rewrites=False) == _recorded(name, graph, rewrites=True)


def test_a_graph_says_whether_a_step_rewrites() -> None:
    """An activation in place, and none."""
    added, plain = (_graph(name) for name in (_IN_PLACE[0], "first layer frozen"))

    assert added.rewrites
    assert not plain.rewrites


def test_a_step_that_is_not_seen_to_rewrite_is_recorded_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at what operators change, a gradient is not copied: the test above can fail."""
    graphs = {name: _graph(name) for name in _IN_PLACE}  # made first: without the look they are refused
    monkeypatch.setattr(Recorder, "_changes_what_is_followed", lambda *_: False)

    assert any(_recorded(name, graph, rewrites=False) != _recorded(name, graph, rewrites=True) for name, graph in graphs.items())
