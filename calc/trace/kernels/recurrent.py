"""Recurrent layers of torch with symbolic widths, written out operator by operator as torch's C++ runs them.

The C++ reads widths as numbers where it splits the gates, so it cannot run on symbols. On a CPU, torch runs an LSTM by oneDNN, whose
workspace depends on the machine and so has no closed form. Both the traced and the measured step therefore run the LSTM cell by cell,
as torch always runs a GRU, and report that (``calc/graph/exchanges.py``). The tests compare these operators with those of a real run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from calc.platform.replaced import replaced
from calc.platform.torch_private import foreign_functions
from calc.trace.values.sequence_lengths import each_of

Hidden = Any  # the state of a layer: a tensor, or for an LSTM (hidden, cell)


@contextlib.contextmanager
def sized() -> Iterator[None]:
    """Context in which recurrent layers accept symbolic widths. Their initialization takes the root of a width, which is not used."""
    layers = nn.modules.rnn
    with replaced(layers.RNNBase, reset_parameters=_nothing), replaced(layers.RNNCellBase, reset_parameters=_nothing):
        yield


def _nothing(_: nn.Module) -> None:
    pass


# -- cells ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights of one layer in one direction; an LSTM may project its state."""

    of_input: Tensor
    of_hidden: Tensor
    input_bias: Tensor | None = None
    hidden_bias: Tensor | None = None
    projection: Tensor | None = None

    def from_input(self, x: Tensor) -> Tensor:
        return linear(x, self.of_input, self.input_bias)

    def from_hidden(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.of_hidden, self.hidden_bias)


Within = Callable[[str], contextlib.AbstractContextManager[None]]
Part = Callable[[str], contextlib.AbstractContextManager[None]]

# A cell: (the input projection, or a function that computes it; state; weights) → state.
Cell = Callable[[Callable[[], Tensor], Hidden, _Weights], Hidden]


def _cut(gates: Tensor, count: int) -> Sequence[Tensor]:
    """``unsafe_chunk`` into equal parts."""
    parts: Sequence[Tensor] = torch.ops.aten.unsafe_split.Tensor(gates, gates.shape[1] // count, 1)
    return parts


def _lstm_cell(x: Callable[[], Tensor], state: Hidden, weights: _Weights) -> Hidden:
    hidden, cell = state
    gates = weights.from_hidden(hidden).add_(x())
    parts = _cut(gates, 4)
    taken, forget, new, shown = parts[0].sigmoid_(), parts[1].sigmoid_(), parts[2].tanh_(), parts[3].sigmoid_()
    cell = (forget * cell).add_(taken * new)
    hidden = shown * cell.tanh()
    if weights.projection is not None:
        hidden = hidden.matmul(weights.projection.t())
    return hidden, cell


def _gru_cell(x: Callable[[], Tensor], hidden: Hidden, weights: _Weights) -> Hidden:
    of_input = _cut(x(), 3)
    of_hidden = _cut(weights.from_hidden(hidden), 3)
    reset = of_hidden[0].add_(of_input[0]).sigmoid_()
    update = of_hidden[1].add_(of_input[1]).sigmoid_()
    new = of_input[2].add(of_hidden[2].mul_(reset)).tanh_()
    return (hidden - new).mul_(update).add_(new)


def _simple_cell(nonlinearity: Callable[[Tensor], Tensor]) -> Cell:
    return lambda x, hidden, weights: nonlinearity(weights.from_hidden(hidden).add_(x()))


# -- layers --------------------------------------------------------------------------------------------------------------------


def _steps(cell: Cell, inputs: Sequence[Tensor], state: Hidden, weights: _Weights) -> tuple[list[Tensor], Hidden]:
    shown = []
    for x in inputs:
        state = cell(lambda x=x: x, state, weights)  # type: ignore[misc]  # mypy infers no type of a lambda with defaults
        shown.append(state[0] if isinstance(state, tuple) else state)
    return shown, state


def _one_way(part: Part, cell: Cell, x: Tensor, states: Sequence[Hidden], weights: Sequence[_Weights]) -> tuple[Tensor, list[Hidden]]:
    with part(""):
        given = weights[0].from_input(x)
        shown, state = _steps(cell, given.unbind(0), states[0], weights[0])
        return torch.stack(shown, 0), [state]


def _both_ways(part: Part, cell: Cell, x: Tensor, states: Sequence[Hidden], weights: Sequence[_Weights]) -> tuple[Tensor, list[Hidden]]:
    with part(""):
        given = weights[0].from_input(x)
        inputs = given.unbind(0)
        shown, forth = _steps(cell, inputs, states[0], weights[0])
        first = torch.stack(shown, 0)
    with part("_reverse"):
        given = weights[1].from_input(x)
        inputs = given.unbind(0)
        backwards, back = _steps(cell, inputs[::-1], states[1], weights[1])
        second = torch.stack(backwards[::-1], 0)
    return torch.cat([first, second], -1), [forth, back]


def _rows(state: Hidden, start: Any, end: Any) -> Hidden:
    if isinstance(state, tuple):
        return tuple(_rows(part, start, end) for part in state)
    return torch.ops.aten.slice.Tensor(state, 0, start, end)


def _joined(states: Sequence[Hidden]) -> Hidden:
    if isinstance(states[0], tuple):
        return tuple(torch.cat(parts, 0) for parts in zip(*states, strict=True))
    return torch.cat([*states], 0)


def _shown(state: Hidden) -> Tensor:
    shown: Tensor = state[0] if isinstance(state, tuple) else state
    return shown


def _packed_forth(cell: Cell, x: Tensor, batches: Sequence[Any], state: Hidden, weights: _Weights) -> tuple[Tensor, Hidden]:
    """One direction over a packed sequence: each time step has the rows that have not ended."""
    given = weights.from_input(x)
    shown, ended, at, before = [], [], 0, batches[0]
    for rows in batches:
        part = _rows(given, at, at + rows)
        if rows < before:
            ended.append(_rows(state, rows, before))
            state = _rows(state, 0, rows)
        state = cell(lambda part=part: part, state, weights)  # type: ignore[misc]  # as above
        shown.append(_shown(state))
        at, before = at + rows, rows
    return torch.cat(shown, 0), _joined([state, *reversed(ended)])


def _packed_back(cell: Cell, x: Tensor, batches: Sequence[Any], first: Hidden, weights: _Weights) -> tuple[Tensor, Hidden]:
    """The reverse direction over a packed sequence: it starts with the longest rows, and shorter ones join."""
    given = weights.from_input(x)
    shown, at, before = [], x.shape[0], batches[-1]
    state = _rows(first, 0, before)
    for rows in reversed(batches):
        if rows > before:
            state = _joined([state, _rows(first, before, rows)])
        part = _rows(given, at - rows, at)
        state = cell(lambda part=part: part, state, weights)  # type: ignore[misc]  # as above
        shown.append(_shown(state))
        at, before = at - rows, rows
    return torch.cat(shown[::-1], 0), state


def _packed(
    batches: Sequence[Any], part: Part, cell: Cell, x: Tensor, states: Sequence[Hidden], weights: Sequence[_Weights]
) -> tuple[Tensor, list[Hidden]]:
    """A layer over a packed sequence with ``batches`` rows per time step, in one direction or both."""
    with part(""):
        y, forth = _packed_forth(cell, x, batches, states[0], weights[0])
    if len(weights) == 1:
        return y, [forth]
    with part("_reverse"):
        z, back = _packed_back(cell, x, batches, states[1], weights[1])
    return torch.cat([y, z], -1), [forth, back]


def _part(within: Within, number: int, way: str) -> contextlib.AbstractContextManager[None]:
    return within(f"l{number}{way}")


def _stacked(
    within: Within, cell: Cell, x: Tensor, states: Sequence[Hidden], weights: Sequence[_Weights], dropout: float, ways: int, batches: Any
) -> tuple[Tensor, list[Hidden]]:
    """All layers in order, with weights named as in torch: l0, l0_reverse, l1, … ``batches`` has the rows per time step of a packed
    sequence."""
    final = []
    run = functools.partial(_packed, batches) if batches is not None else _both_ways if ways == 2 else _one_way
    for at in range(0, len(weights), ways):
        x, last = run(functools.partial(_part, within, at // ways), cell, x, states[at : at + ways], weights[at : at + ways])
        final += last
        if dropout and at + ways < len(weights):
            x = torch.dropout(x, dropout, True)
    return x, final


def _gathered(flat: Sequence[Tensor], biased: bool, projected: bool = False) -> list[_Weights]:
    each = 2 + 2 * biased + projected
    groups = [flat[i : i + each] for i in range(0, len(flat), each)]
    return [_Weights(g[0], g[1], g[2] if biased else None, g[3] if biased else None, g[-1] if projected else None) for g in groups]


def _unpacked(first: Any, second: Any, options: tuple[Any, ...]) -> tuple[list[Any] | None, Any, Any, tuple[Any, ...]]:
    """Rows per time step, state, weights and options of a call with state and weights, or for a packed sequence with rows, state and
    weights."""
    if isinstance(first, Tensor) and isinstance(options[0], list | tuple):
        return each_of(first), second, options[0], (*options[1:], False)
    return None, first, second, options


def _lstm(within: Within, exchanged: Callable[[str], None]) -> Callable[..., Any]:
    def lstm(x: Tensor, given: Any, flat: Any, *options: Any) -> Any:
        batches, given, flat, options = _unpacked(given, flat, options)
        biased, _, dropout, training, both, batch_first = options
        x = x.transpose(0, 1) if batch_first else x
        hidden, cell = given
        projected = hidden.shape[2] != cell.shape[2]
        if not projected and batches is None:  # oneDNN supports neither projections nor packed sequences
            exchanged("lstm")
        states = list(zip(hidden.unbind(0), cell.unbind(0), strict=True))
        weights = _gathered(flat, biased, projected)
        y, final = _stacked(within, _lstm_cell, x, states, weights, dropout if training else 0.0, 2 if both else 1, batches)
        last_hidden, last_cell = torch.stack([h for h, _ in final], 0), torch.stack([c for _, c in final], 0)
        return y.transpose(0, 1) if batch_first else y, last_hidden, last_cell

    return lstm


def _plain(within: Within, cell: Cell) -> Callable[..., Any]:
    """A layer whose state is one tensor (RNN, GRU)."""

    def layer(x: Tensor, hidden: Any, flat: Any, *options: Any) -> Any:
        batches, hidden, flat, options = _unpacked(hidden, flat, options)
        biased, _, dropout, training, both, batch_first = options
        x = x.transpose(0, 1) if batch_first else x
        weights, ways = _gathered(flat, biased), 2 if both else 1
        y, final = _stacked(within, cell, x, hidden.unbind(0), weights, dropout if training else 0.0, ways, batches)
        last = torch.stack(final, 0)
        return y.transpose_(0, 1) if batch_first else y, last

    return layer


def _alone(cell: Cell) -> Callable[..., Any]:
    """A cell as a module of its own."""

    def alone(x: Tensor, state: Hidden, *given: Any) -> Hidden:
        weights = _Weights(*given)
        return cell(lambda: weights.from_input(x), state, weights)

    return alone


@contextlib.contextmanager
def cell_by_cell(within: Within, exchanged: Callable[[str], None]) -> Iterator[None]:
    """Context in which torch's recurrent layers and cells run as written here. ``within(part)`` names the layers in the trace;
    ``exchanged(key)`` notes that torch would run another kernel."""
    functions: Any = foreign_functions
    kinds: dict[str, Cell] = {"gru": _gru_cell, "rnn_tanh": _simple_cell(torch.tanh), "rnn_relu": _simple_cell(torch.relu)}
    layers = {name: _plain(within, cell) for name, cell in kinds.items()}
    cells = {f"{name}_cell": _alone(cell) for name, cell in kinds.items()}
    with replaced(functions, lstm=_lstm(within, exchanged), lstm_cell=_alone(_lstm_cell), **layers, **cells):
        yield
