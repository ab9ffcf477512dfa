"""The result of a derivation: quantities with their terms, and the steps that derive them. All output is made from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from calc.derive.names import AddendLabel, PeakPlace, SavedBefore, StepPlace, TensorName
from calc.derive.quantities import absent, require_count
from calc.dimensions import size_steps
from calc.errors import BadInputError, DimensionError, UnknownQuantityError, suggestion
from calc.platform import arguments
from calc.platform.reading import clipped
from calc.platform.tables import text_table
from calc.symbolic import search
from calc.symbolic.assignments import sizes_text
from calc.units import QuantityValue, Unit

if TYPE_CHECKING:
    from fractions import Fraction

    import sympy as sp

    from calc.derive.live_bytes import Timeline
    from calc.derive.peak_crossovers import PeakCrossovers
    from calc.graph.coverage import CoverageRow, Ledger
    from calc.graph.guards import Assumption, TracedDim
    from calc.graph.step import StepTrace
    from calc.symbolic.expression import Expression


_LONGEST_SHOWN = 400  # characters of one quantity
_LARGEST_SIZE = 2**40


@dataclass(frozen=True, slots=True)
class StepCheck:
    """How a step was verified when it was made. ``kind``: "symbolic" or "random points"."""

    kind: str
    result: str


SUBSTITUTION = "substitution"  # the rule of a step that replaces a dimension by its definition
PARTS = "sum over parts"  # the rule of a step that adds the disjoint parts of a module


@dataclass(frozen=True, slots=True)
class StepReason:
    """Why a step holds: the name of its rule, the reason in words, and the ATen operators whose rules it applies."""

    rule: str
    because: str
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a derivation: ``before`` equals ``after`` by ``rule``, ``because`` of one reason.

    ``operators`` names the ATen operators whose rules a step applies; ``value`` is ``after`` at the derivation's sizes. ``case`` has the
    sizes of the special case that the step belongs to.
    """

    id: str
    quantity: str
    place: StepPlace | PeakPlace
    rule: str
    before: Expression
    after: Expression
    because: str
    check: StepCheck
    value: int
    operators: tuple[str, ...] = ()
    case: str = ""

    @property
    def title(self) -> str:
        """The place, with the case: ``h.*.ln_1 (at B = 1)``."""
        place = f"{self.place}: substitute" if self.rule == SUBSTITUTION else str(self.place)
        return f"{place} (at {self.case})" if self.case else place

    def __repr__(self) -> str:
        """A line: its quantity, title and value. ``before`` and ``after`` print their own trees."""
        return f"<{self.quantity}, {self.title}: {self.value:,}>"


@dataclass(frozen=True, slots=True)
class QuantityTerm:
    """One addend of a quantity, by module path. The expressions of a quantity's terms add up to its own.

    ``parts`` are the label and the expression of the term's own addends: they add up to it. ``because`` names them all.
    """

    module_path: str
    expr: str
    value: int
    because: str
    parts: tuple[tuple[AddendLabel, str], ...] = ()

    @property
    def addends(self) -> tuple[tuple[AddendLabel, str], ...]:
        """The term's own addends; a term without any is one."""
        return self.parts or ((AddendLabel(self.because), self.expr),)

    def stands_for(self, name: str) -> bool:
        """Whether the module path, with * for a loop index, matches the parameter ``name``."""
        parts, of = self.module_path.split("."), name.split(".")
        return len(parts) == len(of) and all(a == b or (a == "*" and b.isdecimal()) for a, b in zip(parts, of, strict=True))


class PartAddend(NamedTuple):
    """An addend of a part: where it is counted, what it is, and its closed form."""

    module_path: str
    label: AddendLabel
    expr: str


@dataclass(frozen=True, slots=True)
class QuantityPart:
    """What one part of the model takes of a quantity: query keyᵀ, feed-forward, head, …, or a module path. All parts add up to the
    quantity.

    ``addends`` add up to the part; a stored form has none.
    """

    part: str
    expr: str
    value: int
    addends: tuple[PartAddend, ...] = ()


# The size of an axis along which the saved tensors of a row differ.
SEVERAL = "*"


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor saved for backward, ``times`` of them, one for each layer for example. The bytes of all add up to ``activations.bytes``.

    ``tensor`` names the operator that computes it, ``module_path`` where it is saved, ``operator`` the one whose backward needs it, and
    ``node`` that operator's autograd node. A tensor whose storage is counted already names the first row in ``same_as`` and counts 0. A
    ``part`` of a storage keeps the whole storage alive. An axis is ``SEVERAL`` where it differs between the tensors of a row, for example
    from iteration to iteration; ``expr`` is the sum. ``role`` is its name in the equations of that operator: x, query, mean.
    """

    tensor: TensorName
    module_path: str
    shape: tuple[str, ...]
    dtype: str
    times: str
    number: int
    expr: str
    value: int
    operator: str
    node: str
    because: str
    same_as: SavedBefore | None = None
    part: bool = False
    role: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A peak candidate: bytes live after the operator ``at``. ``parts`` are those by role; they add up to ``expr``."""

    expr: str
    at: PeakPlace
    value: int
    parts: Mapping[str, str]
    part_values: Mapping[str, int]


class Evaluator(Protocol):
    """Computes a quantity at other sizes."""

    @property
    def own(self) -> Evaluator:
        """The evaluator of this closed form alone: it traces nothing, and runs nothing to see whether the closed form still holds."""

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        """All sizes; those not given are the derivation's. Raises for invalid sizes."""

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the closed form holds at all ``sizes``; this never traces the step for another one."""

    def value(self, sizes: Mapping[str, int]) -> int:
        """The quantity at all sizes, by the closed form that holds there; where none does yet, the step is traced there."""

    def expr(self) -> sp.Expr:
        """The closed form in SymPy, without parsing its text."""


class AtOtherSizes(Protocol):
    """The same step at other sizes."""

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        """All sizes; those not given are the derivation's. Raises for invalid sizes."""

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the derivation's closed forms hold at all ``sizes``; this never traces the step for others."""

    def at(self, sizes: Mapping[str, int]) -> Derivation:
        """The derivation at all ``sizes``."""

    def usual(self, sizes: Mapping[str, int], free: Collection[str]) -> dict[str, int]:
        """Of ``free``, the dimensions too small at all ``sizes`` for the step to run as in the derivation, with the smallest sufficient
        values."""


@dataclass(frozen=True, repr=False)
class Quantity:
    """A derived number: exact closed form, unit, terms by module path, parts of the model. Without a closed form, ``unknown`` has the
    reason and ``value`` is that of a trace at the derivation's sizes, or ``None``."""

    name: str
    unit: Unit
    meaning: str
    text: str | None
    value: int | None
    terms: tuple[QuantityTerm, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    unknown: str = ""
    parts: tuple[QuantityPart, ...] = ()
    _evaluator: Evaluator | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """The value is shown with its unit."""
        if self.value is not None:
            object.__setattr__(self, "value", QuantityValue(self.value, self.unit))

    @cached_property
    def expr(self) -> sp.Expr:
        """SymPy expression in positive integer symbols named as the dimensions. ``expr.subs("B", 8)`` replaces by name, and refuses a name
        that the expression does not have; a ``sympy.Symbol`` that it does not have changes nothing, as everywhere in SymPy.

        ``sympy.solve`` finds only integer solutions for such symbols, and few of a maximum: ``Derivation.largest("B", 80 * 10**9)`` solves
        for the largest size within a budget, and so does ``calc.ask("largest-batch", model=…, memory="80GB")``, with its steps.
        """
        if self.text is None:
            raise UnknownQuantityError(f"{self.name} is unknown: {self.unknown}")
        from calc.symbolic.algebra import closed_form, to_sympy  # a number needs no SymPy

        return closed_form(to_sympy(self.text) if self._evaluator is None else self._evaluator.expr())

    @property
    def largest_candidate(self) -> Candidate | None:
        """The peak candidate that is the maximum at the derivation's sizes; None for quantities other than a peak."""
        return next((c for c in self.candidates if c.value == self.value), None)

    def __repr__(self) -> str:
        """Name, value and closed form."""
        value = "unknown" if self.value is None else repr(QuantityValue(self.value, self.unit))
        return clipped(f"{self.name}: {value} = {self.text}" if self.text else f"{self.name}: {self.reason}", _LONGEST_SHOWN)

    def subs(self, *sizes: Any, **named: Any) -> sp.Expr:
        """The closed form with some sizes set: ``subs("B", 8)``, ``subs(sympy.Symbol("B"), 8)``, ``subs(B=8, T=1024)`` or
        ``subs({"B": 8, "T": 1024})``.

        Sizes go by name, whatever SymPy assumes of a symbol. Raises ``BadInputError`` for a name that the closed form does not have.
        Only names are checked, since further sizes may follow: ``subs("d", 769)`` is a form although a model with 12 heads has no such
        width. ``at`` checks that the model can have the sizes.
        """
        if self.text is None:
            raise UnknownQuantityError(f"{self.name} is unknown: {self.unknown}")
        from calc.symbolic.algebra import substituted

        pairs = {**self._pairs(sizes), **named} if sizes or not named else named
        return substituted(self.name, self.text, {str(name): size for name, size in pairs.items()})

    def _pairs(self, sizes: tuple[Any, ...]) -> dict[Any, Any]:
        if len(sizes) == 1 and isinstance(sizes[0], Mapping):
            return dict(sizes[0])
        if len(sizes) != 2:
            raise BadInputError(f'give a name and a size, or a dictionary of them: {self.name}.subs("B", 8)')
        return dict([sizes])

    def at(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> QuantityValue:
        """Exact integer at the given sizes, with its ``unit``: ``at(B=8, T=1024)`` or ``at({"B": 8, "T": 1024})``; dimensions not given
        keep the derivation's values.

        Raises ``DimensionError`` for a name that is no dimension of the model: ``at(Z=8)``.
        Where the step runs other operators (a batch of one, few layers), it is traced there, which takes seconds and torch.
        """
        if self._evaluator is None:
            raise UnknownQuantityError(f"{self.name} is unknown: {self.unknown or 'it was not derived here'}")
        every = self._evaluator.sizes({**arguments.sizes(sizes), **arguments.sizes(named)})
        try:
            return QuantityValue(require_count(self.name, self._evaluator.value(every), every), self.unit)
        except ArithmeticError as error:  # of a hand-written graph: a traced closed form never divides by a size that is 0
            raise BadInputError(f"{self.name} has no value at these sizes ({error}): choose others") from error

    def by_its_form(self, sizes: Mapping[str, int]) -> int:
        """The closed form of this derivation at other sizes, at which ``Derivation.holds_at`` says that it holds. Unlike ``at``, this runs
        nothing, not even a forward with more iterations: what is said about a closed form needs none."""
        assert self._evaluator is not None  # as that function says
        return self._evaluator.own.value(self._evaluator.sizes(sizes))

    @property
    def reason(self) -> str:
        """The text to print in place of a missing closed form; it says whether there is a value."""
        if not self.unknown:
            return ""
        return f"unknown: {self.unknown}" if self.value is None else f"value at these sizes, no closed form: {self.unknown}"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Sizes outside the derivation at which a concrete trace of the same step gives the same integers."""

    sizes: Mapping[str, int]
    quantities: int


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """Every quantity of one concrete trace, by the rules of a derivation, and the place of its peak."""

    quantities: Mapping[str, int]
    peak_at: PeakPlace


@dataclass(frozen=True, repr=False)
class Derivation:
    """Every quantity of one training step with the steps that derive it. Values are at ``sizes``.

    ``specialized``             sizes that are numbers in the closed forms, those of the special case in force included: a check keeps them.
    ``specialization_reasons``  dimensions without a closed form, each with the reason.
    ``trip_counts``             dimensions that count iterations of a loop, or are a multiple of such a count.
    ``count_trace``             counts every quantity of a further concrete trace by the same rules.
    ``replay``                  live bytes over the step, by a concrete trace at these sizes or by the deepest trace of the graph.
    ``other_sizes``             derives the same step at other sizes, for ``at_sizes``.

    Raises ``NegativeCountError`` for a count below 0. General closed forms at the sizes of a special case are exempt (``_in_general``):
    that case replaces them.
    """

    model: str
    source: str
    dims: tuple[TracedDim, ...]
    options: Mapping[str, str]
    assumptions: tuple[Assumption, ...]
    quantities: Mapping[str, Quantity]
    steps: Sequence[Step]
    coverage: tuple[CoverageRow, ...]
    certificates: tuple[Certificate, ...]
    provenance: Mapping[str, str]
    notes: tuple[str, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    specialized: Mapping[str, int] = field(default_factory=dict)
    specialization_reasons: Mapping[str, str] = field(default_factory=dict)
    trip_counts: tuple[str, ...] = ()
    spec: Any = field(default=None, repr=False, compare=False)
    count_trace: Callable[[StepTrace], TraceCounts] | None = field(default=None, repr=False, compare=False)
    replay: Callable[[StepTrace | None], Timeline] | None = field(default=None, repr=False, compare=False)
    other_sizes: AtOtherSizes | None = field(default=None, repr=False, compare=False)
    _in_general: bool = field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ``NegativeCountError`` where a count is below 0."""
        if self._in_general:
            return
        for q in self.quantities.values():
            require_count(q.name, q.value or 0, self.sizes)
        for tensor in self.saved:
            require_count(f"bytes of {tensor.tensor}, saved at {tensor.module_path},", tensor.value, self.sizes)
        for row in self.coverage:
            require_count(f"calls of {row.operator}", row.value, self.sizes)
            require_count(f"FLOPs of {row.operator}", row.flops_value or 0, self.sizes)

    def __repr__(self) -> str:
        """Every quantity of this step with its value and closed form, a line each."""
        shown = [q for q in self.quantities.values() if not absent(q.name, self.options)]
        rows = [
            (q.name, "unknown", q.text or q.unknown)
            if q.value is None
            else (q.name, repr(QuantityValue(q.value, q.unit)), q.text or q.reason)
            for q in shown
        ]
        return text_table(f"{self.model}: {sizes_text(self.sizes)}", rows, frozenset({1}))

    def at_sizes(self, sizes: Mapping[str, int]) -> Derivation:
        """The derivation of the same step at other sizes; those not given are this derivation's, and defaults follow.

        Where the step runs other operators than these closed forms assume, it is traced there (seconds, and torch), each such case once:
        call this instead of evaluating closed forms at sizes at which they may not hold. Raises ``DimensionError`` for invalid sizes, and
        where a case is missing in a graph that was loaded without its spec.
        """
        around = self._elsewhere()
        values = around.sizes(arguments.sizes(sizes))
        return self if values == self.sizes else around.at(values)

    def holds_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether the closed forms of this derivation hold at other sizes too; those not given are this derivation's. Never traces: code
        that evaluates many sizes (a figure, a search) calls this first."""
        evaluator = next((q._evaluator for q in self.quantities.values() if q._evaluator is not None), None)
        values = arguments.sizes(sizes)
        return evaluator is not None and evaluator.holds(evaluator.sizes(values))

    def largest(self, dimension: str, at_most: float | Fraction, quantity: str = "memory.peak") -> int:
        """The largest size of ``dimension`` at which ``quantity`` is at most ``at_most``, in its unit; 0 if there is none.
        ``largest("B", 80 * 10**9)`` is the largest batch whose step fits 80 GB.

        For quantities that grow with the size, as bytes and FLOPs do. Sizes are evaluated as by ``Quantity.at``: defaults follow, and
        other operators are traced. Raises ``DimensionError`` for a dimension that the model does not have, and ``BadInputError`` if it
        follows from others, divides one, or does not make the quantity grow.
        """
        counted = self[quantity]
        arguments.count("at_most", at_most, "a number, e.g. 80 * 10**9")
        first, step = self._settable_sizes(dimension)

        def value(number: int) -> int | None:
            try:
                return counted.at({dimension: first + (number - 1) * step})
            except DimensionError:  # too few for another size, or more than the model has a table for
                return None

        def fits(number: int) -> bool:
            count = value(number)
            return first + (number - 1) * step < self.sizes[dimension] if count is None else count <= at_most

        number = search.largest(fits, _LARGEST_SIZE // step)
        if number == _LARGEST_SIZE // step:
            raise BadInputError(f"{quantity} does not grow with {dimension}")
        return first + (number - 1) * step if number and value(number) is not None else 0

    def _settable_sizes(self, dimension: str) -> tuple[int, int]:
        """The smallest size that ``dimension`` can have and the distance to the next one."""
        by_name = {dim.name: dim for dim in self.dims}
        if dimension not in by_name:
            raise DimensionError(f"{self.model} has no dimension {arguments.shown(dimension)}: {suggestion(dimension, by_name)}")
        dim = by_name[dimension]
        if dim.tied:
            raise BadInputError(f"{dimension} = {dim.expr} cannot be set: choose a size that it follows from")
        divided = next((each.name for each in self.dims if each.multiple_of == dimension), None)
        if divided is not None:
            raise BadInputError(f"{dimension} must divide {divided}: evaluate its divisors with at")
        return size_steps(dim.multiple_of, dim.plus, self.sizes)

    def usual(self, sizes: Mapping[str, int], free: Collection[str]) -> dict[str, int]:
        """Of ``free``, the dimensions too small at all ``sizes`` for the step to run as in the derivation, with the smallest sufficient
        values."""
        values, names = arguments.sizes(sizes), arguments.names("free", free, "B")
        missing = [name for name in self.sizes if name not in values]
        if missing:
            raise BadInputError(f"sizes has no {missing[0]}: give all of {', '.join(self.sizes)}")
        return self._elsewhere().usual(values, names)

    def _elsewhere(self) -> AtOtherSizes:
        if self.other_sizes is None:
            raise BadInputError(f"{self.model} was not derived here: derive it with calc.derive")
        return self.other_sizes

    def __getitem__(self, name: str) -> Quantity:
        try:
            return self.quantities[name]
        except (KeyError, TypeError):
            raise UnknownQuantityError(f"unknown quantity {arguments.shown(name)}: {suggestion(name, self.quantities)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.quantities)

    def __len__(self) -> int:
        return len(self.quantities)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the values, by dimension."""
        return {dim.name: dim.value for dim in self.dims}

    @property
    def ledger(self) -> Ledger:
        """The operators of the step, with their calls and FLOPs."""
        from calc.graph.coverage import Ledger

        return Ledger(self.coverage)

    @cached_property
    def peak_crossovers(self) -> tuple[PeakCrossovers, ...]:
        """Which candidate is the peak, as one size varies and the others are fixed."""
        from calc.derive.peak_crossovers import peak_crossovers

        return peak_crossovers(self)

    def to_json(self) -> dict[str, Any]:
        """The ``"schema": 1`` document, as plain data."""
        from calc.derive.to_json import to_json

        return to_json(self)
