"""A forward with the gradients of its loss: equations, what they cost, and their values in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy as sp

from calc.errors import BadInputError, NapkinError, suggestion
from calc.graph.forward import Program
from calc.graph.step import bare_name
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.converter import Converter
from calc.mathematics.autodiff.ir import Equations
from calc.mathematics.autodiff.names import LOSS, NodeNames
from calc.mathematics.autodiff.numeric import NumericRun, needed
from calc.mathematics.autodiff.reverse import Gradients, gradients
from calc.mathematics.autodiff.simplify import Simplified, simplify
from calc.mathematics.autodiff.sizes import in_dimensions
from calc.platform.tables import text_table
from calc.symbolic.assignments import TYPED, sizes_text

Array = Any  # np.ndarray of float64

# Matmuls with vectors: their gradients are products without a sum.
_VECTORS = ("dot", "vdot", "mv", "addmv", "addr")


@dataclass(frozen=True, repr=False)
class Derived:
    """A forward and the gradients of its loss. ``equations[:forward]`` compute ``loss``, or the prediction of a forward without gradients;
    ``gradients`` follow from the chain rule alone; ``steps`` are the same gradients simplified, from the loss backward. ``parameters`` maps
    a parameter's name to its node."""

    program: Program
    equations: Equations
    forward: int
    loss: int
    parameters: Mapping[str, int]
    gradients: Gradients
    steps: tuple[Simplified, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        """The gradient of each parameter with its shape, a line each; ``napkin gradients`` writes their equations."""
        flops = [str(in_dimensions(each, self.program)) for each in (self.forward_flops, self.backward_flops)]
        title = f"{self.program.model}: matmuls of the forward {flops[0]} FLOP, of the gradients {flops[1]} FLOP"
        return text_table(title, [(f"∂{LOSS}/∂{name}", self._described(node)) for name, node in self.parameters.items()])

    def _described(self, node: int) -> str:
        if node not in self.of:
            return "none: the loss does not depend on it"
        if self.of[node].node is None:
            return "zero whatever the values"
        return f"({', '.join(str(in_dimensions(size, self.program)) for size in self.equations[node].shape)})"

    @cached_property
    def names(self) -> NodeNames:
        return self._names(every_step=False)

    @cached_property
    def names_of_every_step(self) -> NodeNames:
        """Names for every step of a definition."""
        return self._names(every_step=True)

    def _names(self, every_step: bool) -> NodeNames:
        loss = None if self.program.predicts else self.loss
        return NodeNames(self.equations, self.forward, loss, self.program.define, every_step)

    @cached_property
    def of(self) -> dict[int, Simplified]:
        """The gradient of each tensor that has one."""
        return {step.target: step for step in self.steps}

    def parameter(self, name: str) -> Simplified | None:
        """The gradient of a parameter; None if the loss does not depend on it."""
        if name not in self.parameters:
            raise BadInputError(f"unknown parameter {name[:60]!r}: {suggestion(name, list(self.parameters)[:12])}")
        return self.of.get(self.parameters[name])

    @property
    def zero(self) -> tuple[str, ...]:
        """Parameters that the loss depends on formally, but whose gradient is zero for all values."""
        return tuple(n for n, node in self.parameters.items() if node in self.of and self.of[node].node is None)

    def flops(self, nodes: Sequence[int]) -> sp.Expr:
        """FLOPs of contractions, 2 for a multiplication and an addition; in the basis symbols."""
        flops = sp.Integer(0)
        for index in nodes:
            node = self.equations[index]
            if isinstance(node.op, ir.Contract) and len(node.op.operands) > 1:
                flops += 2 * (len(node.op.operands) - 1) * node.multiplications
        return sp.expand(flops)

    @cached_property
    def forward_flops(self) -> sp.Expr:
        return self.flops(needed(self.equations, [self.loss]))

    @cached_property
    def backward_flops(self) -> sp.Expr:
        """FLOPs of the contractions that the parameters' gradients need and the forward does not compute."""
        return self._backward(list(self.parameters.values()))

    @cached_property
    def backward_flops_with_inputs(self) -> sp.Expr:
        """The same FLOPs if gradients of floating-point inputs are computed as well."""
        nodes = self.equations.nodes[: self.forward]
        inputs = [n.index for n in nodes if isinstance(n.op, ir.Leaf) and n.op.role == "input" and not n.integral]
        targets = [*self.parameters.values(), *inputs]
        equations = self.equations
        with_inputs = gradients(equations, self.loss, targets)
        indices = needed(equations, [with_inputs.of[w] for w in targets if w in with_inputs.of])
        return self.flops([i for i in indices if i >= self.forward])

    @cached_property
    def outer_flops(self) -> sp.Expr:
        """FLOPs of the backward's products without a sum: of a vector and a number."""
        ends = [step.node for w in self.parameters.values() if (step := self.of.get(w)) is not None and step.node is not None]
        nodes = [self.equations[i] for i in needed(self.equations, ends) if i >= self.forward]
        return self.flops([n.index for n in nodes if not n.inner and bare_name(n.operator) in _VECTORS])

    def _backward(self, targets: Sequence[int]) -> sp.Expr:
        ends = [step.node for w in targets if (step := self.of.get(w)) is not None and step.node is not None]
        return self.flops([i for i in needed(self.equations, ends) if i >= self.forward])

    def values(self, sizes: Mapping[str, int], leaves: Mapping[tuple[str, str], Array]) -> tuple[float, dict[str, Array]]:
        """The loss and every parameter's gradient at ``sizes`` (of the basis symbols), in the parameter's shape; omits zero gradients.

        Raises ``NapkinError`` if the equations do not run at these sizes.
        """
        run = NumericRun(self.equations, {**sizes, **self.program.fixed}, leaves)
        ends = {n: step.node for n, w in self.parameters.items() if (step := self.of.get(w)) is not None and step.node is not None}
        try:
            loss, *arrays = run([self.loss, *ends.values()])
        except (IndexError, TypeError, ValueError) as error:
            at = sizes_text(sizes, TYPED)
            raise NapkinError(f"{self.program.model}: the equations do not run at {at}: {str(error).partition(chr(10))[0]}") from error
        return float(loss), dict(zip(ends, arrays, strict=True))

    def drawn(self) -> list[ir.Leaf]:
        """The random leaves, in the order in which a run draws them."""
        leaves = [n.op for n in self.equations.nodes[: self.forward] if isinstance(n.op, ir.Leaf) and n.op.role == "random"]
        return sorted(leaves, key=lambda leaf: leaf.place)


def derived(program: Program) -> Derived:
    """Convert a program to equations, differentiate it, simplify. Raises ``UnknownOperatorError`` for an operator without an equation."""
    forward = without_gradients(program)
    equations, parameters = forward.equations, forward.parameters.values()
    unsimplified = gradients(equations, forward.loss, parameters)
    steps = simplify(equations, forward.forward, unsimplified, parameters)
    return replace(forward, gradients=unsimplified, steps=tuple(steps))


def without_gradients(program: Program) -> Derived:
    """The equations of a forward alone. Raises ``UnknownOperatorError`` for an operator without an equation."""
    converter = Converter(program)
    result = converter.run()
    equations = converter.equations
    parameters = {
        leaf.name: converter.leaves[leaf.value] for leaf in program.leaves if leaf.role == "parameter" and _trained(program, leaf.value)
    }
    none = Gradients(result, {}, (), frozenset())
    return Derived(program, equations, len(equations.nodes), result, parameters, none, (), tuple(converter.notes))


def _trained(program: Program, value: int) -> bool:
    return program.values[value].requires_grad
