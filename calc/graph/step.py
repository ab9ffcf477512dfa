"""A traced training step as plain data, without torch.

A ``Graph`` holds one ``StepTrace`` for each traced combination of trip counts (a depth of 3 and of 4, say). In a trace
every size is an ``int`` or the text of an expression in the *basis* symbols, e.g. ``"B*T"`` or ``"4*h*k"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from calc.dimensions import ordered_names
from calc.graph.folds import Basis, Fold
from calc.graph.guards import Assumption as Assumption
from calc.graph.guards import Guard as Guard
from calc.graph.guards import TracedDim as TracedDim
from calc.graph.guards import applies, failed_guards
from calc.symbolic.assignments import sizes_text

Size = int | str

PHASES = ("forward", "backward", "optimizer", "zero_grad")
# The ``node`` of an operator that the backward recomputes (activation checkpointing).
RECOMPUTED = "(recomputed forward)"
# Module paths of what runs in no submodule.
TOP, LOSS, OPTIMIZER, ITERATION = "(model)", "(loss)", "(optimizer)", "(iteration)"
ROLES = ("parameter", "buffer", "input", "gradient", "optimizer state", "master weight", "activation", "temporary")


def bare_name(operator: str) -> str:
    """The name of an operator without the namespace of ATen and without its overload: ``aten.mm.default`` → ``mm``. Functions of torch,
    such as ``torch.utils.checkpoint``, have no overload."""
    return operator if operator.startswith("torch.") else operator.removeprefix("aten.").rsplit(".", 1)[0]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument or result of an operator.

    ``storage`` indexes ``StepTrace.storages``. ``distinct`` is the number of distinct elements that the tensor addresses: the product of
    the sizes whose stride is not 0, and 0 if a size is 0.
    """

    storage: int
    shape: tuple[Size, ...]
    dtype: str
    distinct: Size


def tensors(values: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, in order."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors(value)


@dataclass(frozen=True, slots=True)
class Storage:
    """One allocation of ``nbytes``. ``role`` is one of ``ROLES``; ``name`` is the parameter's or buffer's name, else the module path of the
    operator that allocated it."""

    index: int
    nbytes: Size
    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a composite function (scaled dot product attention), with arguments that its decomposition no longer contains.

    ``query`` and ``key`` are the lengths of the two sequences.
    """

    function: str
    causal: bool
    query: Size
    key: Size


@dataclass(frozen=True, slots=True)
class Op:
    """One executed ATen operator.

    ``args``         (schema argument name, value): ``Tensor``, number, text, ``None`` or a tuple of these.
    ``module_path``  of the module that runs it; in the backward that of the forward operator it differentiates;
                     in the optimizer the parameter's name.
    ``node``         the autograd node that runs it (backward only), or ``RECOMPUTED``.
    ``call``         index in ``StepTrace.calls`` of the composite call that it is part of.
    """

    index: int
    name: str
    phase: str
    step: int
    module_path: str
    args: tuple[tuple[str, Any], ...]
    outputs: tuple[Tensor, ...]
    mutates: tuple[str, ...] = ()
    node: str = ""
    call: int | None = None

    @property
    def returns_views(self) -> bool:
        """Whether every result shares the storage of an argument, and nothing is written."""
        given = {tensor.storage for tensor in tensors(value for _, value in self.args)}
        return not self.mutates and given.issuperset(tensor.storage for tensor in self.outputs)


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor saved for backward: autograd references it when the forward returns. ``op`` is the operator whose backward needs it."""

    tensor: Tensor
    module_path: str
    op: str


@dataclass(frozen=True, slots=True)
class Event:
    """A storage is allocated (+1) or freed (-1). ``op`` is the last operator that ran before (-1 before the first)."""

    change: int
    storage: int
    op: int


@dataclass(frozen=True, slots=True)
class StepTrace:
    """The trace of two training steps; the second, steady one is what a derivation counts.

    ``sizes``       basis symbols that are numbers in it (trip counts; all of them in a certificate).
    ``events``      allocations and frees in order, from before the first step on; ``windows`` bounds each step's events.
    ``state``       (parameter, key, tensor) of the optimizer.
    ``buffers``     with those that the steps register; ``persistent`` are the storages of the state dict after them.
    ``masters``     (parameter, its fp32 copy), where the optimizer steps such copies.
    """

    sizes: Mapping[str, int]
    storages: tuple[Storage, ...]
    ops: tuple[Op, ...]
    events: tuple[Event, ...]
    saved: tuple[Saved, ...]
    calls: tuple[Call, ...]
    parameters: tuple[tuple[str, Tensor], ...]
    gradients: tuple[tuple[str, Tensor], ...]
    buffers: tuple[tuple[str, Tensor], ...]
    state: tuple[tuple[str, str, Tensor], ...]
    persistent: tuple[int, ...]
    windows: tuple[tuple[int, int], ...]
    masters: tuple[tuple[str, Tensor], ...] = ()


@dataclass(frozen=True, slots=True)
class SpecialCase:
    """The step at special sizes, where it runs other operators: ``equal`` says which dimensions are 1, equal or a product of others."""

    equal: Mapping[str, str]
    graph: Graph

    def applies(self, sizes: Mapping[str, int]) -> bool:
        return applies(self.equal, sizes)


@dataclass(frozen=True, slots=True, repr=False)
class Graph:
    """A traced step: everything that a derivation needs. ``basis`` maps each dimension to its expression in the basis symbols.

    ``specialized``        sizes that are numbers in the trace, by dimension, each with the reason: the graph holds at these values alone.
    ``loops``              the basis symbols that are trip counts; ``trip_count_reads`` maps those that the trace discovered to the
                           line that read them as a number.
    ``guards``             comparisons of sizes that the step evaluated; ``certificates`` are concrete traces that verify the closed forms.
    ``mutates_tracked``    whether an in-place operator changes a tensor that requires grad: autograd then regenerates its views.
    ``unknown``            quantities without a closed form, each with the reason: certificates do not compare them.
    ``reads_tensor_values``  whether the step reads numbers out of tensors whose values a trace cannot know.
    """

    model: str
    source: str
    dims: tuple[TracedDim, ...]
    basis: Mapping[str, str]
    symbols: tuple[str, ...]
    folds: tuple[Fold, ...]
    loops: tuple[str, ...]
    options: Mapping[str, str]
    assumptions: tuple[Assumption, ...]
    guards: tuple[Guard, ...]
    traces: tuple[StepTrace, ...]
    certificates: tuple[StepTrace, ...]
    provenance: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    special_cases: tuple[SpecialCase, ...] = ()
    trip_count_reads: Mapping[str, str] = field(default_factory=dict)
    specialized: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    mutates_tracked: bool = True
    unknown: Mapping[str, str] = field(default_factory=dict)
    reads_tensor_values: bool = False

    def __repr__(self) -> str:
        """The model, its default sizes and the number of operators of the first trace."""
        sizes = sizes_text({dim.name: dim.value for dim in self.dims})
        return f"<traced step of {self.model!r}: {sizes}; {len(self.traces[0].ops) if self.traces else 0:,} operators>"

    def special_case_at(self, sizes: Mapping[str, int]) -> SpecialCase | None:
        """The special case that applies at ``sizes``, if one was traced."""
        return next((s for s in self.special_cases if s.applies(sizes)), None)

    def failed_guards(self, sizes: Mapping[str, int]) -> list[Guard]:
        """The guards that fail at ``sizes`` of the dimensions and that no certificate of this graph covers."""
        special = self.special_case_at(sizes)
        if special is not None:
            return special.graph.failed_guards(sizes)
        return failed_guards(sizes, self.specialized, self.as_basis(), self.guards, [r.sizes for r in self.certificates])

    @property
    def trip_counts(self) -> tuple[str, ...]:
        """The dimensions that count iterations of a loop, such as layers, or are a multiple of such a count."""
        return tuple(name for name, text in self.basis.items() if not {*self.loops}.isdisjoint(ordered_names(text)))

    def as_basis(self) -> Basis:
        """The basis in whose symbols the sizes of the traces are written."""
        return Basis(self.symbols, self.basis, self.folds, tuple(d.name for d in self.dims if d.unbacked_at))
