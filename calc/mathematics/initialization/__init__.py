"""The values of a model before the first step: second moments through the graph, from the distributions of its parameters.

A program of the forward (``calc.trace.forward``) is evaluated in order; the distributions are those of the model's own initializers.
Sampling real modules (``calc.measure.sampling``) shares no code with it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calc.graph.basis import basis_of
from calc.graph.forward import Program
from calc.graph.step import LOSS, TOP
from calc.mathematics.autodiff.sizes import in_dimensions, size
from calc.mathematics.initialization.fit import Build, Fans, expressions, fans_of
from calc.mathematics.initialization.state import Moments, Unknown, moment_of
from calc.mathematics.initialization.walk import Draws, moments_of
from calc.options import Options
from calc.spec import Spec
from calc.symbolic.algebra import SympyFunctions, symbol
from calc.symbolic.expression import Expression, substitute
from calc.symbolic.expression import names as names_in

if TYPE_CHECKING:
    from calc.mathematics.initialization.rules import State
    from calc.symbolic.laws import Law

_ROUNDING = 1e-5  # of the numbers in a closed form, which have six digits

# Where what no submodule runs is recorded.

__all__ = ["Initial", "ModuleVariance", "ParameterVariance", "Unknown", "initial"]


@dataclass(frozen=True, slots=True)
class ParameterVariance:
    """A parameter: its law at these sizes, and E[w²] as an expression in them (a number where no expression fits)."""

    name: str
    law: Law | None
    second: str
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class ModuleVariance:
    """A module's result: E[x²] = ``equation`` = ``second`` at the sizes. ``unknown`` says why there is none. ``reads_inside``: the equation
    reads a value that is not the result of a module but computed inside one."""

    module_path: str
    second: float | None
    mean: float | None
    equation: Expression | None
    closed: str | None
    because: str
    rests: tuple[str, ...]
    unknown: str = ""
    reads_inside: bool = False


@dataclass(frozen=True, slots=True)
class Initial:
    """A freshly initialized model: parameters, and the results of its modules in the order of the forward."""

    model: str
    sizes: Mapping[str, int]
    drawn: tuple[ParameterVariance, ...]
    parts: tuple[ModuleVariance, ...]


def initial(spec: Spec, sizes: Mapping[str, int] | None = None) -> Initial:
    """Moments of every module's result of ``spec`` at ``sizes``, right after initialization.

    Depth and other trip counts are numbers in the traced forward; widths are symbols in the expressions. Raises ``DimensionError`` for
    invalid sizes; a result without moments has the reason in ``unknown``.
    """
    from calc.trace.forward import trace_program
    from calc.trace.initialization import drawn  # needs torch

    values = spec.sizes(dict(sizes or {}))
    symbol_values = basis_of(spec.dimensions).values(values)
    program = trace_program(spec, values, Options())
    parameters, inputs = drawn(spec, _free(spec, values))
    free = [name for name, dim in spec.dimensions.items() if not dim.tied]

    def build(at: Mapping[str, int]) -> Build:
        given = _free(spec, at)
        return Build(spec.sizes(given), {n: d.law for n, d in drawn(spec, given)[0].items()})

    texts = expressions(build, values, free, _fans(program))
    draws = Draws({n: d.law for n, d in parameters.items()}, {n: d.law for n, d in inputs.items()}, texts)
    states = moments_of(program, draws, symbol_values)
    laws = tuple(
        ParameterVariance(n, d.law, texts.get(n, f"{d.law.second:.6g}") if d.law else "", d.made_by) for n, d in parameters.items()
    )
    return Initial(spec.name, values, laws, tuple(_parts(program, states, values)))


def _fans(program: Program) -> dict[str, Fans]:
    """Fan-in and fan-out of every parameter of two or more dimensions, in the model's dimensions."""
    shapes = {leaf.name: program.values[leaf.value].shape for leaf in program.leaves if leaf.role == "parameter"}
    in_sizes = {name: [in_dimensions(size(each), program) for each in shape] for name, shape in shapes.items()}
    return {name: fans_of(shape) for name, shape in in_sizes.items() if len(shape) > 1}


def _free(spec: Spec, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that are not tied to others."""
    dims = spec.dimensions
    return {name: value for name, value in sizes.items() if not dims[name].tied}


def _parts(program: Program, states: list[State], sizes: Mapping[str, int]) -> list[ModuleVariance]:
    """The last value that each module computes, itself or through its children."""
    last: dict[str, int] = {}
    for instruction in program.instructions:
        if not instruction.outputs or instruction.module_path == LOSS:
            continue
        names = [] if instruction.module_path == TOP else instruction.module_path.split(".")
        for path in (*(".".join(names[:end]) for end in range(len(names), 0, -1)), TOP):
            last[path] = instruction.outputs[0]
    inner_first = sorted(last.items(), key=lambda item: (item[1], item[0] == TOP, -item[0].count(".")))
    # What a module's result is called while walking, and what it is called here.
    results = ((path, states[value]) for path, value in reversed(inner_first))
    called = {state.module_path: path for path, state in results if isinstance(state, Moments)}
    leaves = {leaf.value for leaf in program.leaves}
    computed = {state.module_path for value, state in enumerate(states) if isinstance(state, Moments) and value not in leaves}
    inside = {moment_of(path).name for path in computed - called.keys()}
    return [_part(path, states[value], called, inside, sizes) for path, value in inner_first]


def _part(module_path: str, state: State, called: Mapping[str, str], inside: Collection[str], sizes: Mapping[str, int]) -> ModuleVariance:
    """``inside``: names of the second moments that no module's result has."""
    if isinstance(state, Moments):
        closed = _simplified(state.closed, state.second, sizes)
        renamed = {moment_of(name).name: moment_of(path) for name, path in called.items()}
        equation = substitute(state.equation, renamed) if state.equation else None
        reads_inside = equation is not None and not {*names_in(equation)}.isdisjoint(inside)
        return ModuleVariance(
            module_path, state.second, state.mean, equation, closed, state.because, state.rests, reads_inside=reads_inside
        )
    why = state.why if isinstance(state, Unknown) else "its values are not random"
    return ModuleVariance(module_path, None, None, None, None, "", (), why)


def _simplified(closed: Expression | None, second: float, sizes: Mapping[str, int]) -> str | None:
    """A closed form in the sizes, simplified; None where it has another value than the moment."""
    if closed is None:
        return None
    import sympy as sp

    names = {*names_in(closed)} - {"pi"}
    numbers = SympyFunctions({"pi": sp.pi, **{name: symbol(name) for name in names}}, {"sqrt": sp.sqrt, "asin": sp.asin})
    form = sp.cancel(sp.nsimplify(closed.value_in(numbers), rational=True))
    at = {symbol(name): sizes[name] for name in names & sizes.keys()}
    return str(form) if math.isclose(float(form.subs(at)), second, rel_tol=_ROUNDING) else None
