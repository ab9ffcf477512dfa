"""Every place where another kernel is traced or measured than the one that torch runs by default, as one table.

Reports and checks state in their first lines what was exchanged and by how much the default step differs, from this table alone. The code
that exchanges a kernel is in the files of ``made_in``; a test finds such code independently and compares. Torch-free.

Not in the table, since no counted quantity differs: oneDNN's convolutions and matrix multiplications (the same operators, saved tensors and
results), ``nn.GRU`` and ``nn.RNN`` (torch runs them cell by cell on a CPU), ``max_pool1d`` (with a gradient torch itself runs the operator
with indices), and kernels that an option selects (``attention="math"``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from calc.graph.guards import Assumption

# The quantities in which the default step is measured too, as verbs.
_MEASURED = {"activations.bytes": "saves", "memory.peak": "holds at its peak"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A kernel that torch runs ``by_default`` for some part of a model, and what runs ``instead``. ``traced``: in all derived and measured
    numbers of that part; otherwise only where FLOPs of matrix multiplications are counted. ``made_in`` are the files that exchange it.
    ``unmeasured`` is what to say where no difference from the default step was measured."""

    key: str
    of: str
    by_default: str
    instead: str
    because: str
    traced: bool
    made_in: tuple[str, ...]
    unmeasured: str = "By how much the default step differs is not measured here: napkin check measures it."

    @property
    def assumption(self) -> Assumption:
        """The assumption of a graph with this exchange, by which ``in_force`` detects it."""
        return Assumption(f"{self.of} runs {self.instead}", f"not {self.by_default}: {self.because}")


_ALL = (
    Exchange(
        "lstm",
        "nn.LSTM",
        "oneDNN's one operator for a layer and direction (aten.mkldnn_rnn_layer), as torch does by default on a CPU",
        "cell by cell",
        "that operator allocates a workspace whose size depends on the processor and has no closed form",
        True,
        ("calc/trace/kernels/recurrent.py", "calc/measure/training.py"),
    ),
    Exchange(
        "compile",
        "What the model passes to torch.compile",
        "compiled code",
        "operator by operator",
        "what a compiler fuses, saves and recomputes has no closed form",
        True,
        ("calc/experiment/uncompiled.py",),
        "The compiled step is not derived; napkin measure --compile times it.",
    ),
    Exchange(
        "attention",
        "scaled_dot_product_attention",
        "one fused kernel",
        "as separate matrix multiplications",
        "torch's counters do not see inside the kernel on a CPU",
        False,
        ("calc/measure/run.py", "calc/measure/training.py", "calc/measure/attention.py"),
    ),
    Exchange(
        "fast path",
        "a TransformerEncoder layer in evaluation",
        "torch's fast path, one operator",
        "operator by operator",
        "torch's counters do not see inside it",
        False,
        ("calc/measure/run.py",),
    ),
)
EXCHANGES: Mapping[str, Exchange] = {exchange.key: exchange for exchange in _ALL}


@dataclass(frozen=True, slots=True)
class ExchangeDifference:
    """One quantity in bytes: in the step as torch runs it by default, and in the step with the exchange."""

    quantity: str
    by_default: int
    exchanged: int


# The exchanges that a check met, each with the quantities in which the default step was measured too.
Differences = Mapping[str, tuple[ExchangeDifference, ...]]


def in_force(assumptions: Iterable[Assumption]) -> list[Exchange]:
    """The exchanges that a graph or a derivation assumes."""
    stated = {a.expr for a in assumptions}
    return [exchange for exchange in _ALL if exchange.assumption.expr in stated]


def headlines(assumptions: Iterable[Assumption], difference: Differences | None = None, at: str = "") -> Iterator[str]:
    """One or two sentences for each exchange of a derivation, and for each in ``difference``, which a check at the sizes ``at`` met."""
    met = {exchange.key for exchange in in_force(assumptions)}.union(difference or ())
    for exchange in _ALL:
        if exchange.traced and exchange.key in met:
            yield f"{exchange.of} is derived and measured {exchange.instead}, not as {exchange.by_default}: {exchange.because}. " + (
                _difference(difference.get(exchange.key, ()) if difference else (), exchange, at)
            )


def of_counting(difference: Differences) -> Iterator[str]:
    """A sentence for each exchange that a check met where it counts FLOPs of matrix multiplications alone: no derived number has it."""
    for exchange in _ALL:
        if not exchange.traced and exchange.key in difference:
            yield (
                f"To count FLOPs of matrix multiplications, the check runs {exchange.of} {exchange.instead}, not as {exchange.by_default}:"
                f" {exchange.because}. Everything else is measured as torch runs it by default."
            )


def _difference(differences: tuple[ExchangeDifference, ...], exchange: Exchange, at: str) -> str:
    if not differences:
        return exchange.unmeasured
    parts = [f"{_MEASURED[d.quantity]} {d.by_default:,} bytes ({d.exchanged:,} {exchange.instead})" for d in differences]
    return f"At {at} the default step {' and '.join(parts)}."
