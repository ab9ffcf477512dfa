"""The forward of a training step as a program: its values, and the operator that computes each from others.

The trace of a step (``Graph``) has storages, for memory. Equations need more: which elements of a storage a value is, and in which version.
Plain data, without torch. Sizes are an ``int`` or the text of an expression in the basis symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calc.graph.step import Guard, Size


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor: where its elements are in its storage, and how often that had been written when the value was computed."""

    index: int
    shape: tuple[Size, ...]
    dtype: str
    storage: int
    offset: Size
    stride: tuple[Size, ...]
    version: int
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a value of the program."""

    value: int


@dataclass(frozen=True, slots=True)
class ComputedNumber:
    """An argument that is a number computed from sizes: ``"B*T"``, ``"k**(-1/2)"``."""

    text: str


@dataclass(frozen=True, slots=True)
class ProgramLeaf:
    """A value that no operator computes. ``data`` are the numbers of a literal, ``below`` is an exclusive upper bound of an input's
    integers."""

    value: int
    role: str
    name: str
    data: Any = None
    below: Size | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One executed ATen operator. ``args`` contain ``Ref``, ``ComputedNumber``, numbers, text, ``None`` and tuples of these.

    ``outputs`` has the index of each result, in order. ``graded`` is false where the model disabled gradients (``no_grad``). ``function``
    is the class of a hand-written autograd function that runs it.
    """

    index: int
    name: str
    args: tuple[tuple[str, Any], ...]
    outputs: tuple[int, ...]
    mutates: tuple[str, ...]
    module_path: str
    graded: bool = True
    function: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A forward to its ``result``: the loss or, where it ``predicts``, the model's prediction. ``define`` writes the model's dimensions in
    the basis symbols, ``fixed`` are those that are numbers in it, ``hints`` values of the others at which every guard had the traced
    outcome. ``folds`` are (whole, part, quotient): whole = part·quotient."""

    model: str
    symbols: tuple[str, ...]
    define: Mapping[str, str]
    folds: tuple[tuple[str, int | str, str], ...]
    fixed: Mapping[str, int]
    hints: Mapping[str, int]
    values: tuple[Value, ...]
    leaves: tuple[ProgramLeaf, ...]
    instructions: tuple[Instruction, ...]
    result: int
    guards: tuple[Guard, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    # Other names of a parameter's storage in the module: tied weights.
    tied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Bytes of every storage with a value.
    nbytes: Mapping[int, Size] = field(default_factory=dict)
    predicts: bool = False
