"""``TracePlan``: every decision about how a step is traced, as one value. A trace that does not suffice is followed by one with a refined
plan.

Torch-free: the pipeline makes plans, ``calc.trace`` follows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calc.options import Options


@dataclass(frozen=True, slots=True)
class Near:
    """Symbols that are compared with numbers: their hints must lie near the sizes asked for. ``exactly``: at them, primes or not."""

    symbols: frozenset[str]
    exactly: bool = False


@dataclass(frozen=True, slots=True)
class TracePlan:
    """How a step is traced.

    ``sizes`` are the values of all dimensions: they choose the order of the hints. A dimension that is read as a number is a trip count:
    it is traced at several, the more the higher ``attempt`` is. ``equal`` fixes dimensions to 1 or to another one, for a special case.
    ``specialized`` names dimensions that stay numbers, at their sizes, each with the reason. ``near`` are symbols to trace near the sizes.
    """

    sizes: Mapping[str, int]
    options: Options
    attempt: int = 0
    equal: Mapping[str, str] = field(default_factory=dict)
    specialized: Mapping[str, str] = field(default_factory=dict)
    near: Near | None = None

    @property
    def numbers(self) -> dict[str, str]:
        """The specialized dimensions that ``equal`` does not fix anyway, each with the reason."""
        return {name: why for name, why in self.specialized.items() if name not in self.equal}

    @property
    def fixed(self) -> dict[str, str]:
        """What stands for each dimension that has no symbol of its own: a number, or another dimension."""
        return {**{name: str(self.sizes[name]) for name in self.numbers}, **self.equal}
