"""What the tensors of a derivation are called where an equation reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.derived import Derived
from calc.mathematics.autodiff.ir import Operand


class TensorNames:
    """Names relative to ``layer``. Where ``unnamed``, tensors of other layers have none and are listed in ``outside``; where ``raw``, every
    step of the chain rule has one. ``gradients``: steps that are the gradient of a tensor."""

    def __init__(self, derived: Derived, layer: str = "", unnamed: bool = False, raw: bool = False) -> None:
        self.derived = derived
        self._layer = layer
        self._unnamed = unnamed
        self._names = derived.names_of_every_step if raw else derived.names
        self.all = frozenset(self._names.of.values())
        self._of_layer = {relative(name, layer) for name in self.all if layer and name.startswith(f"{layer}.")}
        self.gradients = {node: target for target, node in sorted(derived.gradients.of.items())} if raw else _by_node(derived)
        self.outside: list[str] = []

    def has(self, node: int) -> bool:
        return node in self._names.of

    def is_view(self, node: int) -> bool:
        """Whether a node of the forward is only another view of a tensor."""
        return node in self._names.through and node < self.derived.forward

    def is_inside(self, node: int) -> bool:
        """Whether a node stands inside the equation that reads it."""
        return node not in self._names.of and node not in self._names.through and node not in self.gradients

    def called(self, node: int) -> str:
        while node in self._names.through:
            node = ir.sources(self.derived.equations[node].op)[0]
        written = self._names.of.get(node, f"#{node}")
        shown = self._within_layer(node, written)
        if self._unnamed and shown == written:
            self.outside.append(self._of_model(written))
            return "…"
        return shown

    def _within_layer(self, node: int, written: str) -> str:
        """The name of a tensor in its layer, unless that is the name of a size or of an index: W is the width of the image, b a row."""
        shown, op = relative(written, self._layer), self.derived.equations[node].op
        if shown == written and not self._unnamed and self._of_model(shown) != shown:
            return self._of_model(shown)
        if shown == written or (len(shown) > 1 and shown not in self.derived.program.define):
            return shown
        if shown.isascii() and shown.islower() and isinstance(op, ir.Leaf) and op.role == "parameter":
            shown = op.name.rpartition(".")[2]
        return written if len(shown) == 1 and (shown.islower() or shown in self.derived.program.define) else shown

    def _of_model(self, name: str) -> str:
        """X of the model as ``model.X`` where the layer has an X too; another name as it is."""
        return f"model.{name}" if name in self._of_layer else name

    def seen(self, node: int, letters: Sequence[str]) -> list[str]:
        """The letters of what ``node`` is only another view of."""
        seen = self._resolved(Operand(node, tuple(range(len(letters)))), self._names.through)
        return [letters[label] for label in seen.at]

    def plain(self, operand: Operand) -> Operand:
        """An operand of the forward without the views before it."""
        return self._resolved(operand, self._names.through if operand.node < self.derived.forward else ())

    def _resolved(self, operand: Operand, through: Collection[int]) -> Operand:
        """The tensor that an operand is only another view of, and the labels of its axes."""
        while operand.node in through:
            op = self.derived.equations[operand.node].op
            source = op.operands[0] if isinstance(op, ir.Map) else Operand(ir.sources(op)[0], tuple(range(len(operand.at))))
            operand = Operand(source.node, tuple(operand.at[label] for label in source.at))
        return operand


def relative(name: str, layer: str) -> str:
    """A name as seen from within a layer."""
    return name.removeprefix(f"{layer}.") if layer else name


def _by_node(derived: Derived) -> Mapping[int, int]:
    """Gradient nodes that have a name: the tensor nearest to the loss whose gradient they are."""
    nearest: dict[int, int] = {}
    for step in derived.steps:  # from the loss back
        if step.node is not None and step.target in derived.names.of:
            nearest.setdefault(step.node, step.target)
    return nearest
