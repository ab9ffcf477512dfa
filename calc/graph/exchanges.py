"""Every place where another kernel is traced or measured than the one that torch runs by default, as one table.

Reports and checks say in their first lines what was exchanged and by how much the default step differs, from this table alone. What
changes which kernel runs stands in the files of ``made_in``; a test finds such places by themselves and compares. Torch-free.

Not in the table, since nothing that is counted differs: oneDNN's convolutions and matrix products (the same operators, saved tensors and
results), ``nn.GRU`` and ``nn.RNN`` (torch runs them cell by cell on a CPU), ``max_pool1d`` (with a gradient torch runs the operator with
positions itself), and kernels that an option asks for (``attention="math"``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from calc.graph.step import Assumption

# What the default step is measured for beside, in words.
_MEASURED = {"activations.bytes": "saves", "memory.peak": "holds at its peak"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """What torch runs ``by_default`` for some part of a model, and what runs ``instead``. ``traced``: in every number of that part, derived
    and measured; otherwise in the one run that counts FLOPs of matrix products. ``made_in`` are the files that make the exchange."""

    key: str
    of: str
    by_default: str
    instead: str
    because: str
    traced: bool
    made_in: tuple[str, ...]

    @property
    def assumption(self) -> Assumption:
        """What a graph says of it; ``in_force`` finds it there."""
        return Assumption(f"{self.of} runs {self.instead}", f"not {self.by_default}: {self.because}")


_ALL = (
    Exchange(
        "lstm",
        "nn.LSTM",
        "oneDNN's one operator for a layer and direction (aten.mkldnn_rnn_layer), as torch does by default on a CPU",
        "cell by cell",
        "that keeps a workspace of as many bytes as suit the processor, which have no closed form",
        True,
        ("calc/trace/kernels/recurrent.py", "calc/measure/recurrent.py"),
    ),
    Exchange(
        "attention",
        "scaled_dot_product_attention",
        "one fused kernel",
        "as separate matrix products",
        "no counter of torch sees into the kernel on a CPU",
        False,
        ("calc/measure/run.py", "calc/measure/training.py", "calc/measure/all_gradients.py"),
    ),
    Exchange(
        "fast path",
        "a TransformerEncoder layer in evaluation",
        "torch's fast path, one operator",
        "operator by operator",
        "no counter of torch sees into it",
        False,
        ("calc/measure/run.py",),
    ),
)
EXCHANGES: Mapping[str, Exchange] = {exchange.key: exchange for exchange in _ALL}


@dataclass(frozen=True, slots=True)
class ExchangeDifference:
    """What one quantity is in the step as torch runs it by default, and in the step with the exchange, in bytes."""

    quantity: str
    by_default: int
    here: int


# What a check found: each exchange that it met, with the quantities in which the default step was measured beside.
Found = Mapping[str, tuple[ExchangeDifference, ...]]


def in_force(assumptions: Iterable[Assumption]) -> list[Exchange]:
    """The exchanges that a graph or a derivation rests on."""
    stated = {a.expr for a in assumptions}
    return [exchange for exchange in _ALL if exchange.assumption.expr in stated]


def headlines(assumptions: Iterable[Assumption], difference: Found | None = None, at: str = "") -> Iterator[str]:
    """A sentence or two for each exchange of a derivation, and for each that its check ``found``, at the sizes ``at``."""
    derived = {exchange.key for exchange in in_force(assumptions)}
    for exchange in _ALL:
        if exchange.traced and (exchange.key in derived or exchange.key in (difference or {})):
            yield f"{exchange.of} is derived and measured {exchange.instead}, not as {exchange.by_default}: {exchange.because}. " + (
                _difference(difference.get(exchange.key, ()) if difference else (), exchange, at)
            )
        elif exchange.key in (difference or {}):
            yield (
                f"In the run that counts FLOPs of matrix products, and in no other, {exchange.of} runs {exchange.instead} and not as"
                f" {exchange.by_default}: {exchange.because}. All else is measured as torch runs it by default."
            )


def _difference(differences: tuple[ExchangeDifference, ...], exchange: Exchange, at: str) -> str:
    if not differences:
        return "By how much the default step differs is not measured here: napkin check measures it."
    parts = [f"{_MEASURED[d.quantity]} {d.by_default:,} bytes ({d.here:,} {exchange.instead})" for d in differences]
    return f"At {at} the default step {' and '.join(parts)}."
