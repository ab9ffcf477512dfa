"""What Napkin needs to know of a model: how to build it from named sizes, feed it, and take its loss. Torch-free."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from calc import dimensions as dims_
from calc.dimensions import Dim
from calc.errors import SpecError


class Sizes(SimpleNamespace):
    """Sizes by name: ``n.B``, ``n.d``. Integers in a real run, symbolic integers while tracing."""


@dataclass(frozen=True, slots=True, repr=False)
class Spec:
    """A model as Napkin sees it.

    ``name``           how reports call it (untrusted text).
    ``dims``           name → default (an integer, an expression such as ``"4*d"``, or a ``Dim``).
    ``build``          sizes → ``nn.Module``. Runs under symbolic execution: sizes may be symbolic integers.
    ``inputs``         sizes → tuple of what ``loss`` takes after the module: tensors, made with torch factory functions, also in tuples,
                       lists and dictionaries, and numbers.
    ``loss``           (module, *inputs) → scalar loss tensor.
    ``predict``        (module, *inputs) → the model's prediction, which mode ``infer`` runs in place of the loss. It may take fewer inputs
                       than the loss, the first ones; mode ``infer`` has no others.
    ``check_at``       small sizes for the real runs that check a report; other dimensions keep their values.
    ``reduced``        why Napkin made ``check_at`` small, where no author of the spec chose it.
    ``source``         where the model comes from, for provenance (``built-in``, a file and its hash, …).
    ``optimizer``      parameters → optimizer, when the model brings its own; else chosen by name at ``trace``.
    ``trip_counts``    dimensions known to be trip counts of Python loops (depth), so that the tracer need not infer it.
    ``may_specialize`` sets of dimensions to specialize, tried in order, if the step cannot be traced with them symbolic;
                       empty: such a model is refused.
    ``may_unroll``     those of ``may_specialize`` that a step may loop over (time): if read as numbers, first tried as trip counts.
    ``unknown``        quantities without a closed form, each with the reason: they are derived as unknown.
    ``digest``         SHA-256 of the config that a class of transformers is made from; empty for other models.
    ``notes``          what a reader of the report should know of the model, each a short text in Markdown (untrusted text).
    """

    name: str
    dims: Mapping[str, int | str | Dim]
    build: Callable[[Any], Any]
    inputs: Callable[[Any], tuple[Any, ...]]
    loss: Callable[..., Any]
    check_at: Mapping[str, int] = field(default_factory=dict)
    source: str = "user"
    optimizer: Callable[[Any], Any] | None = None
    trip_counts: tuple[str, ...] = ()
    key: str = ""
    notes: tuple[str, ...] = ()
    predict: Callable[..., Any] | None = None
    may_specialize: tuple[tuple[str, ...], ...] = ()
    may_unroll: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    reduced: str = ""
    digest: str = ""

    def predict_in(self, mode: str) -> Callable[..., Any] | None:
        """The prediction that a step in ``mode`` runs in place of the loss; None where it runs the loss."""
        return self.predict if mode == "infer" else None

    def __repr__(self) -> str:
        """The name and the default sizes."""
        sizes = ", ".join(f"{name} = {dim.default if isinstance(dim, Dim) else dim}" for name, dim in self.dims.items())
        return f"<Spec {self.name!r}: {sizes}>"

    def __post_init__(self) -> None:
        """Raise SpecError, with the field's name, for a value of the wrong type: all later code relies on the types above."""
        if not _is(self.name, str):
            raise SpecError(f"a spec's name must be a text, not {_kind(self.name)}")
        if not _is(self.dims, Mapping) or not self.dims:
            raise SpecError(f"spec {self.name!r} names no dimension: give dims={{'B': 8, ...}}")
        if len(self.dims) > _MOST_DIMENSIONS:
            raise SpecError(f"spec {self.name!r} names {len(self.dims)} dimensions: give at most {_MOST_DIMENSIONS}")
        for part in ("build", "inputs", "loss"):
            if not callable(getattr(self, part)):
                raise SpecError(f"spec {self.name!r}: {part} must be a function")
        if hasattr(type(self.build), "named_parameters"):
            raise SpecError(f"spec {self.name!r}: build must be a function of the sizes, not a module: build=lambda n: module")
        for part in ("predict", "optimizer"):
            if getattr(self, part) is not None and not callable(getattr(self, part)):
                raise SpecError(f"spec {self.name!r}: {part} must be a function, or left out")
        for part in ("source", "key", "reduced", "digest"):
            if not _is(getattr(self, part), str):
                raise SpecError(f"spec {self.name!r}: {part} must be a text, not {_kind(getattr(self, part))}")
        for part in ("trip_counts", "notes", "may_unroll"):
            self._require_texts(part, getattr(self, part))
        self._require_groups()
        self._require_mapping("check_at", int, "an integer")
        self._require_mapping("unknown", str, "a text")
        for name, value in self.dims.items():
            if not _is(name, str) or not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
                raise SpecError(f"spec {self.name!r}: {_shown(name)} cannot name a dimension: use letters, digits and _")
            self._require_dimension(name, value)
        foreign = next((name for name in self.trip_counts if name not in self.dims), None)
        if foreign is not None:
            own = ", ".join(self.dims)[:200]
            raise SpecError(f"spec {self.name!r}: trip_counts names {foreign[:40]!r}, which is no dimension: use one of {own}")

    def _require_texts(self, part: str, value: Any) -> None:
        if _is(value, str):
            raise SpecError(f"spec {self.name!r}: {part} must be a tuple of texts, as ({str(value)[:40]!r},)")
        wrong = value if not _is(value, (tuple, list, set, frozenset)) else next((v for v in value if not _is(v, str)), "")
        if not _is(wrong, str):
            raise SpecError(f"spec {self.name!r}: {part} must be a tuple of texts, with no {_kind(wrong)} in its place or in it")

    def _require_groups(self) -> None:
        if not _is(self.may_specialize, (tuple, list)):
            raise SpecError(f"spec {self.name!r}: may_specialize must be a tuple of tuples of names, as (('T',),)")
        for group in self.may_specialize:
            self._require_texts("each of may_specialize", group)

    def _require_mapping(self, part: str, kind: type, kinds: str) -> None:
        value = getattr(self, part)
        if not _is(value, Mapping):
            raise SpecError(f"spec {self.name!r}: {part} must be a dict, not {_kind(value)}")
        for key, item in value.items():
            if not _is(key, str) or not _is(item, kind):
                raise SpecError(f"spec {self.name!r}: {part} must give {kinds} to each name, not {_kind(item)} to {_shown(key)}")

    def _require_dimension(self, name: str, value: Any) -> None:
        dim = value if _is(value, Dim) else Dim(value)
        for part, kinds, expected in _PARTS:
            item = getattr(dim, part)
            if not _is(item, kinds):
                label = f"dims[{name!r}]" if part == "default" else f"{part} of dims[{name!r}]"
                raise SpecError(f"spec {self.name!r}: {label} must be {expected}, not {_kind(item)}")

    @property
    def of_library(self) -> bool:
        """Whether the model is a class of transformers, made from a config."""
        return bool(self.digest)

    @property
    def dimensions(self) -> dict[str, Dim]:
        """The dimensions, each as a ``Dim``."""
        return {name: d if isinstance(d, Dim) else Dim(d) for name, d in self.dims.items()}

    def sizes(self, values: Mapping[str, int] | None = None) -> dict[str, int]:
        """Values of all dimensions, with defaults evaluated at ``values``."""
        return dims_.resolve(self.dimensions, values or {})

    def sizes_from(self, values: Mapping[str, int], overrides: Mapping[str, int]) -> dict[str, int]:
        """Values of all dimensions: ``overrides``, else those of ``values``; sizes equal to their default expression follow."""
        own = {name: size for name, size in values.items() if name in self.dims}
        free = {name: size for name, size in own.items() if not dims_.follows(self.dimensions[name], size, own)}
        return self.sizes({**free, **overrides})


_MOST_DIMENSIONS = 500  # their defaults may form a chain, which ``resolve`` follows recursively
_NONE = type(None)
_PARTS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("default", (int, float, str), 'an integer, an expression such as "4*d", or a Dim'),
    ("meaning", (str,), "a text"),
    ("multiple_of", (int, str, _NONE), "an integer or the name of a dimension"),
    ("tied", (bool,), "True or False"),
    ("at_most", (str, _NONE), "the name of a dimension, or an expression"),
    ("plus", (int,), "an integer"),
    ("unbacked_at", (str,), "a text"),
    ("because", (str,), "a text"),
)


def _is(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Whether ``type(value)`` is one of these types; unlike isinstance, ignores the value's own ``__class__``."""
    return issubclass(type(value), kinds)


def _kind(value: object) -> str:
    return type(value).__name__[:60]


def _shown(key: object) -> str:
    return repr(key)[:60] if type(key) in (str, int, float, _NONE) else _kind(key)
