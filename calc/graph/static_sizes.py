"""Sizes that are numbers in a traced forward (197 tokens of an image), each with the input, parameter or operator that it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.graph.forward import Instruction, Program, ProgramLeaf, Ref
from calc.graph.step import Size

Shape = tuple[Size, ...]


Leaf = tuple[ProgramLeaf, Shape]


@dataclass(frozen=True, slots=True)
class StaticSize:
    """A size that is a number in the trace.

    ``leaves`` are the first input with it and the first parameter or buffer with it at another axis, each with its shape: a channel count
    and the side of a kernel can both be 3. ``computed_by`` is the first operator that computes a tensor with it, of shape ``result``,
    from tensors without it, of shapes ``sources``. At least one of the three is there.
    """

    number: int
    leaves: tuple[Leaf, ...]
    computed_by: Instruction | None
    sources: tuple[Shape, ...]
    result: Shape


def static_sizes(program: Program) -> tuple[StaticSize, ...]:
    """The static sizes above 1 of a forward, in order of appearance, without trip counts that are numbers in it only: such a number of an
    input, as of 64 words that a loop reads one by one, is the count; that of a parameter is not."""
    leaves, made = _leaves(program), _made(program)
    return tuple(
        StaticSize(number, leaves.get(number, ()), *made.get(number, (None, (), ())))
        for number in dict.fromkeys([*leaves, *made])
        if number not in program.fixed.values() or any(leaf.role != "input" for leaf, _ in leaves.get(number, ()))
    )


def _leaves(program: Program) -> dict[int, tuple[Leaf, ...]]:
    """{size: (first input that has it, first parameter or buffer that has it at another axis)}; inputs first, since they are given and
    parameters follow from the model. At the axis of an input the size of a parameter is that of the input: the channels it reads."""
    inputs = _first([leaf for leaf in program.leaves if leaf.role == "input"], program, {})
    parameters = _first([leaf for leaf in program.leaves if leaf.role != "input"], program, inputs)
    numbers = dict.fromkeys([*inputs, *parameters])
    return {number: tuple(of[number] for of in (inputs, parameters) if number in of) for number in numbers}


def _first(leaves: Sequence[ProgramLeaf], program: Program, before: Mapping[int, Leaf]) -> dict[int, Leaf]:
    """{size: (first leaf that has it at an axis where ``before`` does not, its shape)}."""
    first: dict[int, Leaf] = {}
    for leaf in leaves:
        shape = program.values[leaf.value].shape
        for number in _numbers(shape):
            if number not in before or not _axes(shape, number) <= _axes(before[number][1], number):
                first.setdefault(number, (leaf, shape))
    return first


def _axes(shape: Shape, number: int) -> set[int]:
    return {axis for axis, size in enumerate(shape) if size == number}


def _made(program: Program) -> dict[int, tuple[Instruction, tuple[Shape, ...], Shape]]:
    """{size: (first operator that computes it, shapes of what it reads, shape of the result)}."""
    made: dict[int, tuple[Instruction, tuple[Shape, ...], Shape]] = {}
    for instruction in program.instructions:
        sources = tuple(program.values[index].shape for index in dict.fromkeys(_read(instruction.args)))
        read = {number for shape in sources for number in _numbers(shape)}
        for shape in (program.values[index].shape for index in instruction.outputs):
            for number in _numbers(shape):
                if number not in read and sources:
                    made.setdefault(number, (instruction, sources, shape))
    return made


def _numbers(shape: Shape) -> Iterator[int]:
    return (size for size in shape if isinstance(size, int) and size > 1)


def _read(args: Any) -> Iterator[int]:
    """Values that arguments refer to."""
    if isinstance(args, Ref):
        yield args.value
    elif isinstance(args, tuple | list):
        for item in args:
            yield from _read(item)
