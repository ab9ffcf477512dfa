"""Dimensions that a trace discovers: data-dependent (unbacked) sizes, and sizes that are bounded by a trip count.

Unbacked sizes become dimensions ``n1``, ``n2``, … in the order in which a trace meets them. The default is the expected value, rounded
up, with an assumption that says so; the upper bound where no expected value is known. Users set others (``-d n1=512``). Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from calc.dimensions import Dim, smallest_fitting
from calc.errors import UnbackedSizeError
from calc.graph.basis import Basis, in_dimensions
from calc.graph.guards import divides
from calc.graph.plan import Inferred
from calc.graph.step import Assumption, Graph, TracedDim
from calc.spec import Spec

_NAME = re.compile(r"n[1-9]\d*")


def declared_sizes(spec: Spec, sizes: Mapping[str, int]) -> dict[str, int]:
    """All sizes of ``spec``, where ``sizes`` may also set ``n1``, ``n2``, … that no trace has declared yet. Raises ``DimensionError``."""
    return spec.sizes({name: value for name, value in sizes.items() if name in spec.dims or not _NAME.fullmatch(name)})


def with_size(spec: Spec, undecided: UnbackedSizeError, basis: Basis) -> Inferred:
    """``spec`` with one more dimension for the unbacked size of ``undecided``, whose bound is in the symbols of ``basis``."""
    bound = in_dimensions(_rounded_up(undecided) if undecided.adds_up else _product(undecided.shape), basis)
    expected = in_dimensions(_expected(undecided), basis) if undecided.share else bound
    number = next(i for i in range(1, len(spec.dims) + 2) if f"n{i}" not in spec.dims)
    dim = Dim(expected, f"elements chosen at {undecided.where}", at_most=bound, unbacked_at=undecided.place)
    declared = replace(spec, dims={**spec.dims, f"n{number}": dim})
    return Inferred(declared, f"data-dependent (unbacked) size at {undecided.where}: it is n{number}")


def is_named(spec: Spec, error: str) -> bool:
    """Whether an error names an unbacked size, of ``spec`` or of one that a trace declared since."""
    words = re.findall(r"\w+", error)
    return any(_NAME.fullmatch(word) and (word not in spec.dims or spec.dimensions[word].unbacked_at) for word in words)


def without_named(spec: Spec, error: str) -> Spec:
    """``spec`` without the unbacked sizes that an error names: where other sizes are numbers, the data may be constants that count them."""
    named = {*re.findall(r"\w+", error)} & {name for name, dim in spec.dimensions.items() if dim.unbacked_at}
    return replace(spec, dims={name: dim for name, dim in spec.dims.items() if name not in named}) if named else spec


def with_bound(spec: Spec, name: str, loop: str) -> Inferred:
    """``spec`` with a dimension that is at most a trip count, as experts per token are at most the experts."""
    dim = replace(spec.dimensions[name], at_most=loop)
    return Inferred(replace(spec, dims={**spec.dims, name: dim}), f"{name} is at most {loop}")


def with_traced_dimensions(spec: Spec, graph: Graph) -> Spec:
    """``spec`` with the dimensions and bounds that the trace of ``graph`` discovered; its sizes for checks fit them."""
    declared = spec.dimensions
    added = {
        d.name: replace(declared[d.name], at_most=d.at_most, multiple_of=d.multiple_of) if d.name in declared else _dim(d)
        for d in graph.dims
        if d.name not in declared or (declared[d.name].at_most, declared[d.name].multiple_of) != (d.at_most, d.multiple_of)
    }
    traced = {d.name for d in graph.dims}
    removed = {name for name, dim in declared.items() if dim.tied and dim.because and name not in traced}  # inferred for other sizes
    check_at = {name: smallest_fitting(added.get(name, declared[name]), size) for name, size in spec.check_at.items()}
    if not added and not removed and check_at == spec.check_at:
        return spec
    return replace(spec, dims={n: d for n, d in {**spec.dims, **added}.items() if n not in removed}, check_at=check_at)


def _dim(d: TracedDim) -> Dim:
    return Dim(d.expr or d.value, d.meaning, d.multiple_of, d.tied, d.at_most, d.plus, d.unbacked_at)


def assumptions(spec: Spec) -> list[Assumption]:
    """The assumptions about unbacked sizes and about inferred divisibility."""
    dims = spec.dimensions.items()
    multiples = [Assumption(_in_parts(name, dim), dim.because) for name, dim in dims if dim.because and dim.multiple_of]
    return [*(Assumption(f"Eq({name}, {_whole(dim)})", _because(name, dim)) for name, dim in dims if dim.unbacked_at), *multiples]


def _in_parts(name: str, dim: Dim) -> str:
    return f"{name} >= {dim.plus + 1}" if dim.multiple_of == 1 else divides(name, dim.multiple_of or 1, dim.plus)


def _whole(dim: Dim) -> int | str:
    """The expected value, rounded up where it is a quotient."""
    return f"ceiling({dim.default})" if isinstance(dim.default, str) and "/" in dim.default else dim.default


def _because(name: str, dim: Dim) -> str:
    number = f"number of {dim.meaning}"
    override = f"set another with -d {name}=…"
    if dim.default == dim.at_most:
        return f"upper bound of the {number}, which is data-dependent and has no expected value; {override}"
    return f"expected {number}, if all choices are equally likely; data-dependent, at most {dim.at_most}; {override}"


def _product(sizes: tuple[int | str, ...]) -> str:
    return "*".join(f"({size})" for size in sizes) or "1"


def _rounded_up(undecided: UnbackedSizeError) -> str:
    """A bound of the expected value that is a quotient of polynomials, and less than 1 above it."""
    ways = _product(undecided.ways)
    return f"({_product(undecided.shape)} + {ways} - 1)/({ways})"


def _expected(undecided: UnbackedSizeError) -> str:
    share = f"*{undecided.share.numerator}" if undecided.share.numerator != 1 else ""
    below = "*".join(f"({way})" for way in (*undecided.ways, *((undecided.share.denominator,) if undecided.share.denominator != 1 else ())))
    return f"{_product(undecided.shape)}{share}" + (f"/({below})" if below else "")
