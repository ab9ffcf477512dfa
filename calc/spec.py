"""What Napkin needs to know of a model: how to build it from named sizes, feed it, and take its loss. Torch-free."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from calc import dims as dims_
from calc.dims import Dim
from calc.errors import SpecError


class Sizes(SimpleNamespace):
    """Sizes by name: ``n.B``, ``n.d``. Integers in a real run, symbolic integers while tracing."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A model as Napkin sees it.

    ``name``      how reports call it (untrusted text).
    ``dims``      name → default (an integer, an expression such as ``"4*d"``, or a ``Dim``).
    ``build``     sizes → ``nn.Module``. Runs under symbolic execution: sizes may be symbolic integers.
    ``inputs``    sizes → tuple of input tensors, made with torch factory functions.
    ``loss``      (module, *inputs) → scalar loss tensor.
    ``predict``   (module, *inputs) → whatever the model gives when it is used; what mode ``infer`` runs in place of the loss.
    ``check_at``  the small sizes at which the real checks of a report run; other dimensions keep their value.
    ``reduced``   why Napkin made ``check_at`` small, where no author of the spec chose it.
    ``source``    where the model comes from, for provenance (``built-in``, a file and its hash, …).
    ``optimizer`` parameters → optimizer, when the model brings its own; else chosen by name at ``trace``.
    ``pinned``    dimensions known to be Python loop counts (depth), which spares the tracer finding out.
    ``gives_way`` sets of dimensions to leave as numbers, tried in order, where the step cannot be recorded with them symbolic;
                  empty: such a model is refused.
    ``walked``    those of ``gives_way`` that a step may walk turn by turn (time): read as a number, they are loop counts first.
    ``unknown``   quantities that were found to have no closed form, and why: they are derived as unknown.
    ``notes``     what a reader of the report should know of the model, each a short text in Markdown (untrusted text).
    """

    name: str
    dims: Mapping[str, int | str | Dim]
    build: Callable[[Any], Any]
    inputs: Callable[[Any], tuple[Any, ...]]
    loss: Callable[..., Any]
    check_at: Mapping[str, int] = field(default_factory=dict)
    source: str = "user"
    optimizer: Callable[[Any], Any] | None = None
    pinned: tuple[str, ...] = ()
    key: str = ""
    notes: tuple[str, ...] = ()
    predict: Callable[..., Any] | None = None
    gives_way: tuple[tuple[str, ...], ...] = ()
    walked: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    reduced: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.dims, Mapping) or not self.dims:
            raise SpecError(f"spec {self.name!r} names no dimension: give dims={{'B': 8, ...}}")
        for part in ("build", "inputs", "loss"):
            if not callable(getattr(self, part)):
                raise SpecError(f"spec {self.name!r}: {part} must be a function")
        if self.predict is not None and not callable(self.predict):
            raise SpecError(f"spec {self.name!r}: predict must be a function, or left out")
        for part in ("pinned", "notes", "walked"):
            if isinstance(getattr(self, part), str):
                raise SpecError(f"spec {self.name!r}: {part} must be a tuple of texts, as ({getattr(self, part)[:40]!r},)")
        for name in self.dims:
            if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
                raise SpecError(f"spec {self.name!r}: {name!r} cannot name a dimension: use letters, digits and _")

    @property
    def dimensions(self) -> dict[str, Dim]:
        """The dimensions, each as a ``Dim``."""
        return {name: d if isinstance(d, Dim) else Dim(d) for name, d in self.dims.items()}

    def sizes(self, given: Mapping[str, int] | None = None) -> dict[str, int]:
        """Values of all dimensions at the given ones."""
        return dims_.resolve(self.dimensions, given or {})

    def sizes_from(self, values: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
        """Values of all dimensions at the given ones, the others as in ``values``, where a size that follows from others moves along."""
        own = {name: size for name, size in values.items() if name in self.dims}
        free = {name: size for name, size in own.items() if not dims_.follows(self.dimensions[name], size, own)}
        return self.sizes({**free, **given})
