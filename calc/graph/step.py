"""The record of one training step: plain data, JSON in and out, no torch.

A ``Graph`` holds one ``Record`` for each traced combination of loop counts (a depth of 2 and of 3, say). In a record
every size is an ``int`` or the text of an expression in the *basis* symbols, e.g. ``"B*T"`` or ``"4*h*k"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calc.graph.folds import Basis, Fold
from calc.graph.guards import Assumption as Assumption
from calc.graph.guards import Guard as Guard
from calc.graph.guards import TracedDim as TracedDim
from calc.graph.guards import applies, failed_guards

Size = int | str

PHASES = ("forward", "backward", "optimizer", "zero_grad")
# What stands for the autograd node of an operator that the backward runs to have the forward's tensors once more.
RECOMPUTED = "(forward, again)"
ROLES = ("parameter", "buffer", "input", "gradient", "optimizer state", "master weight", "activation", "temporary")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as an operator saw it.

    ``distinct`` is the number of distinct elements it addresses: the product of the sizes whose stride is not 0, and 0 if a size is.
    """

    storage: int
    shape: tuple[Size, ...]
    dtype: str
    distinct: Size


@dataclass(frozen=True, slots=True)
class Storage:
    """One allocation. ``role`` is one of ``ROLES``; ``name`` is the parameter's or buffer's name, else its maker's site."""

    index: int
    nbytes: Size
    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A library call recorded before it was decomposed: what it declares that its operators no longer say."""

    function: str
    causal: bool
    query: Size
    key: Size


@dataclass(frozen=True, slots=True)
class Op:
    """One executed ATen operator.

    ``args``    (schema argument name, value): ``Tensor``, number, text, ``None`` or a tuple of these.
    ``site``    module path in the forward; in the backward that of the forward operator it differentiates;
                in the optimizer the parameter's name.
    ``node``    autograd node that runs it (backward only), or ``AGAIN``. ``call`` indexes ``Record.calls``.
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


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that autograd holds when the forward returns. ``op`` is the operator whose backward needs it."""

    tensor: Tensor
    module_path: str
    op: str


@dataclass(frozen=True, slots=True)
class Event:
    """A storage's birth (+1) or death (-1). ``op`` is the operator that had run last (-1 before the first)."""

    change: int
    storage: int
    op: int


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One run of two training steps.

    ``sizes``      basis symbols that are concrete in it (loop counts; all of them in a certificate).
    ``events``     births and deaths in order, from before the first step on; ``windows`` bounds each step's events.
    ``state``      (parameter, key, tensor) of the optimizer; ``persistent`` are the storages of the state dict.
    ``masters``    (parameter, its copy in fp32), where the optimizer steps such copies.
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
    """The step at sizes where it runs otherwise: ``equal`` says which dimensions are 1, equal or a product of others there."""

    equal: Mapping[str, str]
    graph: Graph

    def applies(self, sizes: Mapping[str, int]) -> bool:
        return applies(self.equal, sizes)


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything a derivation needs. ``basis`` maps each dimension to its expression in the basis symbols.

    ``held`` are dimensions that stayed numbers, and why: the step is that of these values alone. ``rewrites``: whether an operator in
    place changes a tensor that autograd follows, in which case it takes views of that tensor again.
    ``unknown`` are quantities without a closed form, and why: the certificates do not compare them. ``reads_numbers``: whether a trace had
    to make up numbers that a real step reads out of tensors.
    ``loops`` are the basis symbols that are loop counts; ``pins`` says of those found out while tracing which line read
    them as a number.
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
    pins: Mapping[str, str] = field(default_factory=dict)
    specialized: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    rewrites: bool = True
    unknown: Mapping[str, str] = field(default_factory=dict)
    reads_tensor_values: bool = False

    def special_case_at(self, sizes: Mapping[str, int]) -> SpecialCase | None:
        """The special case that applies at ``sizes``, if one was recorded."""
        return next((s for s in self.special_cases if s.applies(sizes)), None)

    def failed_guards(self, sizes: Mapping[str, int]) -> list[Guard]:
        """Conditions that come out otherwise at ``sizes`` (of the dimensions) and at no certificate of this graph."""
        special = self.special_case_at(sizes)
        if special is not None:
            return special.graph.failed_guards(sizes)
        return failed_guards(sizes, self.specialized, self.as_basis(), self.guards, [r.sizes for r in self.certificates])

    def as_basis(self) -> Basis:
        """The basis the records' sizes are written in."""
        return Basis(self.symbols, self.basis, self.folds, tuple(d.name for d in self.dims if d.unbacked_at))
