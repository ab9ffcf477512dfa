"""Walks a program from its draws to its loss and computes the moments of every value.

A value whose operator has no rule is ``Unknown`` with the reason, and so are values that depend on it: never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calc.graph.forward import ComputedNumber, Instruction, Program, Ref
from calc.graph.step import bare_name
from calc.mathematics.autodiff import sizes as expressions
from calc.mathematics.autodiff.sizes import in_dimensions
from calc.mathematics.initialization.operators import OF_UNKNOWN, PARTS, PRODUCTS, SAME, flat, result
from calc.mathematics.initialization.rules import BoundInstruction, State
from calc.mathematics.initialization.state import Fixed, Moments, Unknown, WeightLaw
from calc.symbolic.algebra import symbol
from calc.symbolic.exact import evaluate_text
from calc.symbolic.laws import Law
from calc.symbolic.parser import parse


@dataclass(frozen=True, slots=True)
class Draws:
    """Laws of the parameters by name and of the inputs by position, ``None`` where there is none; and E[w²] of each parameter as
    an expression in the sizes, or as a number."""

    parameters: Mapping[str, Law | None]
    inputs: Mapping[str, Law | None]
    texts: Mapping[str, str]


def moments_of(program: Program, draws: Draws, sizes: Mapping[str, int]) -> list[State]:
    """Each value's state, by index; ``sizes`` are of the basis symbols."""
    walk = _Walk(program, draws, {**sizes, **program.fixed})
    for leaf in program.leaves:
        walk.states[leaf.value] = walk.leaf(leaf.value, leaf.role, leaf.name, leaf.data)
    for instruction in program.instructions:
        walk.take(instruction)
    return [walk.states.get(value.index, Unknown("no operator computes it")) for value in program.values]


class _Walk:
    def __init__(self, program: Program, draws: Draws, sizes: Mapping[str, int]) -> None:
        self.program, self.draws, self.sizes = program, draws, sizes
        self.states: dict[int, State] = {}
        self.used: set[str] = set()
        self.tables: set[str] = set()
        self.calls_of: dict[str, int] = {}
        self._shapes = {v.index: tuple(self.number(s) for s in v.shape) for v in program.values}

    def written(self, size: int | str) -> str:
        """A size in the model's dimensions, in parentheses if it is a sum."""
        expr = in_dimensions(expressions.size(size), self.program)
        return str(expr) if expr.is_Atom else f"({expr})"

    def number(self, size: Any) -> int:
        return size if isinstance(size, int) else int(evaluate_text(size, self.sizes))

    def leaf(self, value: int, role: str, name: str, data: Any) -> State:
        if role == "parameter":
            law = self.draws.parameters.get(name)
            if law is None:
                return Unknown(f"parameter {name} is initialized by operators without a known distribution")
            text = self.draws.texts.get(name)
            closed = None if text is None else parse(text)
            return WeightLaw(name, law.mean, law.second, self._shapes[value], closed or parse(f"{law.second:.6g}"), closed)
        if role == "input":
            law = self.draws.inputs.get(name)
            if law is None:
                return Fixed()  # numbers of tokens and the like
            text = f"drawn from {law.text}"
            moments = Moments(law.mean, law.second, law.mean**2, law.mean == 0, frozenset({value}), text, (), f"input {name}")
            return moments.saying(f"{law.second:.6g}")
        return Fixed(float(data) if isinstance(data, int | float) else None)

    def take(self, instruction: Instruction) -> None:
        step = self._step(instruction)
        unknown = next((a for a in flat(step.args.values()) if isinstance(a, Unknown)), None)
        states = unknown if unknown is not None and step.name not in OF_UNKNOWN else result(step)
        each_one = states if isinstance(states, list) else [states] * len(instruction.outputs)
        self.states.update(zip(instruction.outputs, each_one, strict=False))
        for name, argument in instruction.args:
            if name in instruction.mutates and isinstance(argument, Ref):
                self.states[argument.value] = self.states[instruction.outputs[0]] if instruction.outputs else step.refuse()

    def _step(self, instruction: Instruction) -> BoundInstruction:
        args: dict[str, Any] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        texts: dict[str, tuple[str, ...]] = {}
        for name, argument in instruction.args:
            args[name] = self._looked_up(argument)
            if isinstance(argument, Ref):
                shapes[name] = self._shapes[argument.value]
                texts[name] = tuple(self.written(s) for s in self.program.values[argument.value].shape)
        refs = {name: a.value for name, a in instruction.args if isinstance(a, Ref)}
        args = {k: self._with_uses(v) if isinstance(v, WeightLaw) else v for k, v in args.items()}
        bare = bare_name(instruction.name)
        if bare in PRODUCTS:
            self.used.update(a.name for a in args.values() if isinstance(a, WeightLaw))
        if bare == "embedding":
            self.tables.update(a.name for a in args.values() if isinstance(a, WeightLaw))
        results = tuple(self._shapes[o] for o in instruction.outputs)
        joined = next((a for _, a in instruction.args if isinstance(a, tuple)), ())
        parts = tuple(self._shapes[a.value] for a in joined if isinstance(a, Ref))
        fresh = instruction.outputs[0] if instruction.outputs else -1
        return BoundInstruction(bare, instruction.module_path, args, shapes, texts, results, fresh, refs, self.label(instruction), parts)

    def _with_uses(self, weight: WeightLaw) -> WeightLaw:
        """A parameter, with the uses that earlier instructions made of it."""
        return replace(weight, reused=weight.name in self.used, table=weight.name in self.tables)

    def label(self, instruction: Instruction) -> str:
        """The name of a result: its module, numbered from its second result on."""
        if not instruction.outputs or bare_name(instruction.name) in SAME | PARTS:
            return instruction.module_path
        self.calls_of[instruction.module_path] = self.calls_of.get(instruction.module_path, 0) + 1
        return f"{instruction.module_path} #{self.calls_of[instruction.module_path]}"

    def _looked_up(self, argument: Any) -> Any:
        if isinstance(argument, Ref):
            return self.states.get(argument.value, Unknown("no operator computes it"))
        if isinstance(argument, ComputedNumber):
            return float(expressions.number(argument).subs({symbol(name): size for name, size in self.sizes.items()}))
        if isinstance(argument, tuple):
            return tuple(self._looked_up(a) for a in argument)
        return argument
