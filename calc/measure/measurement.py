"""The result of a real run: one reading per quantity, each with its instrument. Torch-free plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from calc.errors import UnknownQuantityError, suggestion
from calc.graph.exchanges import Differences


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured number. ``value`` is ``None`` if nothing could be measured; ``because`` then gives the reason.

    For a measured number, ``because`` is a note for the reader or empty. ``proxy``: it was measured on other operators that do
    the same work, so it confirms a derived number but does not measure the step itself.
    """

    value: int | None
    instrument: str
    because: str = ""
    proxy: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """The readings of real training steps at one set of sizes.

    ``operators``            every operator that the step executed, by torch's name (``aten.mm.default``).
    ``unbacked_sizes``       data-dependent sizes of the second step: place in the model's code → the sizes, one per execution, in order.
    ``unbacked_first_step``  those of the first step.
    ``recompute``            FLOPs that the backward recomputed in the run that counted matmuls (on the math backend if attention is fused).
    ``exchanged``            kernels measured in place of torch's defaults, by their keys in ``calc.graph.exchanges``, with the readings
                             of the default step that differ.
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
    exchanged: Differences = field(default_factory=dict)

    def __getitem__(self, quantity: str) -> Reading:
        try:
            return self.readings[quantity]
        except KeyError:
            raise UnknownQuantityError(f"{quantity!r} was not measured: {suggestion(quantity, self.readings)}") from None

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
            "unbacked_sizes": {place: list(sizes) for place, sizes in self.unbacked_sizes.items()},
            "unbacked_first_step": {place: list(sizes) for place, sizes in self.unbacked_first_step.items()},
            "recompute": self.recompute,
            "exchanged": {key: [asdict(d) for d in differences] for key, differences in self.exchanged.items()},
        }
