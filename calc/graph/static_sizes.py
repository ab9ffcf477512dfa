"""Sizes that are numbers in a traced forward (197 tokens of an image), each with the input, parameter or operator that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calc.graph.forward import Instruction, Program, ProgramLeaf, Ref
from calc.graph.step import Size

Shape = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class StaticSize:
    """A size that is a number in the trace.

    ``leaf`` is the first input, parameter or buffer with it, of shape ``shape``. ``computed_by`` is the first operator that computes a
    tensor with it, of shape ``result``, from tensors without it, of shapes ``sources``. At least one of the two is there.
    """

    number: int
    leaf: ProgramLeaf | None
    shape: Shape
    computed_by: Instruction | None
    sources: tuple[Shape, ...]
    result: Shape


def static_sizes(program: Program) -> tuple[StaticSize, ...]:
    """The static sizes above 1 of a forward, in order of appearance, without trip counts that are numbers in it only."""
    leaves, made = _leaves(program), _made(program)
    return tuple(
        StaticSize(number, *leaves.get(number, (None, ())), *made.get(number, (None, (), ())))
        for number in dict.fromkeys([*leaves, *made])
        if number in leaves or number not in program.fixed.values()
    )


def _leaves(program: Program) -> dict[int, tuple[ProgramLeaf, Shape]]:
    """{size: (first leaf that has it, its shape)}; inputs first, since they are given and parameters follow from the model."""
    first: dict[int, tuple[ProgramLeaf, Shape]] = {}
    for leaf in sorted(program.leaves, key=lambda leaf: leaf.role != "input"):
        shape = program.values[leaf.value].shape
        for number in _numbers(shape):
            first.setdefault(number, (leaf, shape))
    return first


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
