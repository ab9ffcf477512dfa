"""What a real run gave: one reading a quantity, each with the instrument that took it. Torch-free plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from calc.errors import UnknownQuantityError
from calc.graph.exchanges import Found


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured number. ``value`` is ``None`` where nothing could be measured, and ``because`` then says why.

    For a number that was measured, ``because`` holds what a reader must know of it, or nothing. ``proxy``: it was taken
    on other operators that do the same work, so it proves a derived number but does not measure it.
    """

    value: int | None
    instrument: str
    because: str = ""
    proxy: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """The readings of real training steps at one set of sizes.

    ``operators``  every operator that the step executed, by the name torch gives it (``aten.mm.default``).
    ``decided``    sizes that data decided in the second step: place in the model's code → the sizes in order, one each time it was
                   passed. ``decided_first`` are those of the first step.
    ``again``      FLOPs that the backward ran again in the run whose matrix products were counted: on the math backend, where
                   attention is fused.
    ``exchanged``  kernels that torch runs otherwise by default, by their keys in ``calc.graph.exchanges``, with what the default step is.
    """

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    readings: Mapping[str, Reading]
    operators: tuple[str, ...]
    provenance: Mapping[str, str]
    unbacked_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unbacked_first_step: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    recompute: int = 0
    exchanged: Found = field(default_factory=dict)

    def __getitem__(self, quantity: str) -> Reading:
        try:
            return self.readings[quantity]
        except KeyError:
            raise UnknownQuantityError(f"{quantity!r} was not measured: there are {', '.join(self.readings)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.readings)

    def __len__(self) -> int:
        return len(self.readings)

    def to_json(self) -> dict[str, Any]:
        """The measurement as plain data; a number that was not measured is ``null`` with its reason."""
        return {
            "model": self.model,
            "sizes": dict(self.sizes),
            "options": dict(self.options),
            "readings": {
                name: {"value": r.value, "instrument": r.instrument, "because": r.because, "proxy": r.proxy}
                for name, r in self.readings.items()
            },
            "operators": list(self.operators),
            "provenance": dict(self.provenance),
            "decided": {place: list(sizes) for place, sizes in self.unbacked_sizes.items()},
            "decided_first": {place: list(sizes) for place, sizes in self.unbacked_first_step.items()},
            "again": self.recompute,
            "exchanged": {key: [asdict(d) for d in differences] for key, differences in self.exchanged.items()},
        }
