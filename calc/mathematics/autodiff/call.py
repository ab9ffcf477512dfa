"""An operator call as passed to its decomposition, and the registry of decompositions, which ``decompositions`` holds by family."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sympy as sp

from calc.errors import NapkinError, UnknownOperatorError
from calc.graph.forward import ComputedNumber, Instruction, Ref
from calc.mathematics.autodiff.ir import Equations
from calc.mathematics.autodiff.sizes import number, size
from calc.mathematics.autodiff.views import NodeView, Views

if TYPE_CHECKING:
    from calc.mathematics.autodiff.converter import Converter

DecompositionResult = NodeView | Sequence[NodeView | None]
Decomposition = Callable[["OperatorCall"], DecompositionResult]
DECOMPOSITIONS: dict[str, Decomposition] = {}


def decomposition(*names: str) -> Callable[[Decomposition], Decomposition]:
    """Register the decomposition of ATen operators: ``"add"`` for every overload and the in-place form, ``"max.dim"`` for one overload."""

    def put(function: Decomposition) -> Decomposition:
        for name in names:
            if name in DECOMPOSITIONS:
                raise NapkinError(f"two decompositions of {name}: {DECOMPOSITIONS[name].__module__} has one already")
            DECOMPOSITIONS[name] = function
        return function

    return put


@functools.cache
def _load() -> None:
    """Import every family, each of which registers its decompositions."""
    families = importlib.import_module("calc.mathematics.autodiff.decompositions")
    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{families.__name__}.{module.name}")


def decomposition_of(operator: str) -> Decomposition | None:
    """The decomposition of ``aten.name.overload``."""
    _load()
    name, _, overload = operator.removeprefix("aten.").partition(".")
    stem = name[:-1] if name.endswith("_") and not name.startswith("__") else name
    return next((DECOMPOSITIONS[n] for n in (f"{name}.{overload}", name, f"{stem}.{overload}", stem) if n in DECOMPOSITIONS), None)


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An instruction as passed to its decomposition."""

    converter: Converter
    instruction: Instruction
    lifted: Mapping[int, NodeView] = field(default_factory=dict)

    @property
    def equations(self) -> Equations:
        return self.converter.equations

    @property
    def views(self) -> Views:
        return self.converter.views

    def has(self, name: str) -> bool:
        return any(n == name and v is not None for n, v in self.instruction.args)

    def raw(self, name: str, default: Any = None) -> Any:
        return next((v for n, v in self.instruction.args if n == name), default)

    def tensor(self, name: str) -> NodeView:
        """The tensor argument ``name``; a number becomes a tensor without axes."""
        return self.as_view(self.raw(name))

    def tensors(self, name: str) -> list[NodeView]:
        return [self.as_view(part) for part in self.raw(name)]

    def tensor_or_tensors(self, name: str) -> list[NodeView]:
        return self.tensors(name) if isinstance(self.raw(name), tuple | list) else [self.tensor(name)]

    def as_view(self, value: Any) -> NodeView:
        if isinstance(value, Ref):
            return self.lifted.get(value.value) or self.converter.view(value.value)
        return NodeView(self.equations.map(number(value), (), ()), ())

    def number(self, name: str, default: Any = None) -> sp.Expr:
        value = self.raw(name, default)
        return number(default if value is None else value)

    def sizes(self, name: str, default: Any = ()) -> list[sp.Expr]:
        """A size or several as expressions."""
        value = self.raw(name, default)
        value = default if value is None else value
        return [size_of(v) for v in (value if isinstance(value, tuple | list) else (value,))]

    def integer(self, name: str, default: int = 0) -> int:
        value = self.raw(name, default)
        if isinstance(value, ComputedNumber):
            raise self.refusal(f"its {name} is {value.text}, which should be a plain number")
        return int(default if value is None else value)

    def axis(self, view: NodeView, name: str = "dim", default: int = -1) -> int:
        return self.integer(name, default) % max(len(view.axes), 1)

    def axes(self, view: NodeView) -> list[int]:
        """Axes given as a list; all axes by default."""
        value = self.raw("dim")
        dims = (value,) if isinstance(value, int) else value
        return sorted(a % len(view.axes) for a in dims) if dims else list(range(len(view.axes)))

    def shape(self, output: int = 0) -> tuple[sp.Expr, ...]:
        """The shape of a result."""
        return tuple(size(s) for s in self.converter.program.values[self.instruction.outputs[output]].shape)

    def dtype(self, output: int = 0) -> str:
        return self.converter.program.values[self.instruction.outputs[output]].dtype

    def refusal(self, why: str) -> UnknownOperatorError:
        return UnknownOperatorError(f"{self.instruction.name} at {self.instruction.module_path}: {why}, which equations cannot express")

    # -- common parts of decompositions -------------------------------------------------------------------------------

    def pointwise(self, expr: sp.Expr, views: Sequence[NodeView], **about: Any) -> NodeView:
        return self.converter.pointwise(expr, views, **about)


def size_of(value: Any) -> sp.Expr:
    """The size as an expression."""
    return size(value.text) if isinstance(value, ComputedNumber) else size(value)
