"""Live bytes over one step at given sizes: after each operator, and the storages that are live at the peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.derive.cuda_allocator import Simulated
from calc.derive.names import TensorName


@dataclass(frozen=True, slots=True)
class Instant:
    """Live bytes by role after an operator; ``op`` counts the operators of the step from 0.

    Before the first operator ``op`` is −1, and the phase is empty.
    """

    op: int
    phase: str
    operator: str
    module_path: str
    live: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.live.values())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the figure: operators ``first`` to ``last`` of one phase, and the instant among them with the most bytes."""

    first: int
    last: int
    phase: str
    high: Instant


@dataclass(frozen=True, slots=True)
class Alive:
    """Equal storages that are live at the peak: ``number`` of ``each`` bytes, ``total`` bytes together."""

    role: str
    name: TensorName
    each: int
    number: int

    @property
    def total(self) -> int:
        return self.each * self.number


@dataclass(frozen=True, slots=True)
class WithoutLargest:
    """The highest instant of the step if no activation or temporary of ``each`` bytes were live: a bound on what shrinking them can do."""

    each: int
    highest: Instant


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steady step at ``sizes``. Where that depth was not traced, ``fewer`` has the trip counts of the trace that is replayed.

    ``landmarks`` are named instants in order; ``columns`` cover all ``operators`` of the step; ``alive`` are the storages of ``peak``, the
    largest first. ``without_largest``: ``None`` if the largest one is permanent. ``allocated`` are the peaks of the first step and of the
    second as the CUDA allocator would round them; none where the depth is not the requested one.
    """

    sizes: Mapping[str, int]
    fewer: Mapping[str, int]
    operators: int
    peak: Instant
    alive: tuple[Alive, ...]
    landmarks: tuple[tuple[str, Instant], ...]
    columns: tuple[Column, ...]
    phases: tuple[tuple[str, int, int], ...]
    allocated: tuple[Simulated, ...] = ()
    without_largest: WithoutLargest | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles that have live bytes at some time, in the order of their bytes at the start: persistent ones are below temporary ones."""
        instants = [i for _, i in self.landmarks] + [c.high for c in self.columns]
        roles = dict.fromkeys(role for instant in instants for role, value in instant.live.items() if value)
        return tuple(sorted(roles, key=lambda role: (_ORDER.index(role) if role in _ORDER else len(_ORDER), role)))


_ORDER = ("parameter", "master weight", "optimizer state", "buffer", "input", "gradient", "activation", "temporary")
