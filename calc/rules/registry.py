"""What an operator costs: named addends, and the one registry of rules that state them.

A rule is a small function from an operator's shapes to a ``Cost``. Each addend is a product of factors, in the order a
person would write them, so a derivation can show ``2*(B*T)*d*(3*d)`` before it shows ``6*B*T*d**2``. An operator
without a rule is refused; one that costs nothing says why (``free``). Zero is never a default.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calc.errors import DuplicateRuleError, NapkinError, UnknownOperatorError
from calc.experiment.stated import STATED

Factor = Any  # int or polynomial


@dataclass(frozen=True, slots=True)
class Term:
    """One addend: ``name`` says what is computed; the product of ``factors`` is its FLOP count. ``gradient`` is ``dx`` or ``dw`` where a
    matmul computes one. ``attention``: which of attention's two matmuls it is or differentiates, ``scores`` or ``mix``."""

    name: str
    factors: tuple[Factor, ...]
    gradient: str = ""
    is_convolution: bool = False
    attention: str = ""

    @property
    def count(self) -> Factor:
        return math.prod(self.factors)


def term(name: str, *factors: Factor, attention: str = "") -> Term:
    """``term("A B", 2, m, k, n)``: the addend named "A B", 2·m·k·n."""
    return Term(name, factors, attention=attention)


@dataclass(frozen=True, slots=True)
class Cost:
    """FLOPs of one operator, and the elements it reads and writes.

    ``matmul``       matrix multiplications, 2 FLOP per multiply-add.
    ``elementwise``  result elements of the arithmetic in torch's own reference decomposition.
    ``recompute``    the part of ``matmul`` that recomputes forward work.
    ``causal``       (query, key): lengths of a declared causal mask, when every matmul term spans query x key.
    ``reads``/``writes``  ((elements, dtype), …); ``None`` means every tensor argument read, every result written.
    """

    matmul: tuple[Term, ...] = ()
    elementwise: tuple[Term, ...] = ()
    recompute: tuple[Term, ...] = ()
    causal: tuple[Factor, Factor] | None = None
    reads: tuple[tuple[Factor, str], ...] | None = None
    writes: tuple[tuple[Factor, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A tensor argument or result as a rule sees it: its shape in polynomials (or ints), and its dtype."""

    shape: tuple[Factor, ...]
    dtype: str
    distinct: Factor

    @property
    def numel(self) -> Factor:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Operator:
    """One traced operator, with sizes as ints or polynomials. ``args`` are named as in its schema (``mat1``)."""

    name: str
    args: Mapping[str, Any]
    outputs: tuple[View, ...]
    mutates: tuple[str, ...] = ()

    def shape(self, name: str) -> tuple[Factor, ...]:
        return self.tensor(name).shape

    def tensor(self, name: str) -> View:
        view = self.args.get(name)
        if not isinstance(view, View):
            raise NapkinError(f"{self.name} was traced without the tensor argument {name!r}: the rule does not fit this call")
        return view

    def has(self, name: str) -> bool:
        """Whether the optional tensor argument ``name`` was given."""
        return isinstance(self.args.get(name), View)

    def value(self, name: str, default: Any = None) -> Any:
        return self.args.get(name, default)

    @property
    def out(self) -> View:
        return self.outputs[0]

    def tensors(self) -> list[tuple[str, View]]:
        """All tensor arguments, including those in lists, each with its schema name; but not those given for the results."""
        given = self.mutates if writes_into_given(self.name) else ()
        tensors: list[tuple[str, View]] = []
        for name, value in ((name, value) for name, value in self.args.items() if name not in given):
            items = value if isinstance(value, tuple) else (value,)
            tensors += [(name, item) for item in items if isinstance(item, View)]
        return tensors


RuleFunction = Callable[[Operator], Cost]

# Where torch's references are.
REFS, FUNCTIONAL, DECOMPOSITION = "torch._refs.", "torch._refs.nn.functional.", "torch._decomp.decompositions."


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of an operator. ``statement`` is its definition, ``shapes`` are the shapes of its arguments and results, ``source`` is the
    origin of the count. Reports print all of them, so none is a docstring, which ``python -OO`` drops. ``reference`` is the function of
    torch whose operations count, one FLOP for each result element; ``source`` then says what it adds to that. ``elementwise`` is the origin
    of the count of elementwise work where neither is. ``module`` is where the rule is registered."""

    op: str
    function: RuleFunction
    statement: str
    source: str = ""
    convention: str = ""
    shapes: str = ""
    module: str = ""
    elementwise: str = ""
    reference: str = ""

    @property
    def origin(self) -> str:
        """The origin of every count."""
        return "; ".join(filter(None, (self.reference, self.source, self.elementwise)))


@dataclass(frozen=True, slots=True)
class Free:
    """An operator that costs nothing. ``moves`` is true where it still reads and writes memory (a copy)."""

    op: str
    because: str
    moves: bool = False
    module: str = ""


# Overloads whose entry another overload may use: in place, with a number instead of a tensor, or with the same arguments.
_LIKE = {"Scalar": ("Tensor", "default"), "Tensor": ("default", "Tensor_Tensor"), "default": ("Tensor",)}
_BY_NUMBER = ("Scalar", "Scalar_Tensor", "Tensor_Scalar", "Scalar_Self", "Scalar_Other", "self_scalar", "other_scalar")
_LIKE |= dict.fromkeys(_BY_NUMBER, ("Tensor", "default", "Tensor_Tensor"))

# Overloads that write their result into given tensors, where the overload that returns it is called otherwise than without ``_out``.
_GIVEN = {"IntList_out": "dim_IntList", "values": "default", "values_stable": "stable", "dim_max": "dim", "dim_min": "dim"}


@dataclass
class Registry:
    """All operators with a rule, and those that are free. ``REGISTRY`` is the only one; tests make altered copies."""

    rules: dict[str, Rule] = field(default_factory=dict)
    frees: dict[str, Free] = field(default_factory=dict)

    def add(self, entry: Rule | Free) -> None:
        registered = self.rules.get(entry.op) or self.frees.get(entry.op)
        if registered is not None:
            owner = registered.function.__qualname__ if isinstance(registered, Rule) else f"free: {registered.because}"
            raise DuplicateRuleError(f"operator {entry.op} already has a rule ({owner}): keep one of them")
        if not entry.op.startswith("aten."):
            STATED.add(entry.op)
        if isinstance(entry, Rule):
            self.rules[entry.op] = entry
        else:
            self.frees[entry.op] = entry

    def find(self, op: str) -> Rule | Free | None:
        """The entry of ``op``, or None. Without its own entry, an in-place operator (``aten.erf_.default``) costs what the out-of-place one
        does: it reads its argument and writes as many elements (one that touches fewer has its own entry). One with a number argument
        (``aten.xlogy.Scalar_Other``) costs what it does with a tensor, but does not read it. One that writes its result into a given tensor
        (``aten.mm.out``) costs what it does without, if it is one that users call: of those that torch calls, some differ."""
        return self.rules.get(op) or self.frees.get(op) or self._alike(op)

    def _alike(self, op: str) -> Rule | Free | None:
        library, _, qualified = op.partition(".")
        name, _, overload = qualified.partition(".")
        in_place = name.endswith("_") and not name.endswith("__")
        if writes_into_given(op):
            if name.startswith(("_", "native_")):
                return None
            without = _GIVEN.get(overload) or overload.removesuffix("out").removesuffix("_") or "default"
            return self.find(f"{library}.{name}.{without}") or (self.find(f"{library}.{name}.Tensor") if without == "default" else None)
        if not in_place and overload not in _BY_NUMBER:
            return None
        names = [f"{library}.{name[:-1] if in_place else name}.{like}" for like in (overload, *_LIKE.get(overload, ()))]
        return next((entry for alias in names if (entry := self.rules.get(alias) or self.frees.get(alias))), None)


def writes_into_given(op: str) -> bool:
    """Whether the operator of that name writes its result into tensors that are given (``out=``)."""
    overload = op.rpartition(".")[2]
    return overload.endswith("out") or overload in _GIVEN


REGISTRY = Registry()


def rule(
    *ops: str, statement: str, source: str = "", reference: str = "", convention: str = "", shapes: str = "", elementwise: str = ""
) -> Callable[[RuleFunction], RuleFunction]:
    """Register a function as the rule of the named ATen operators, e.g. ``"aten.mm.default"``."""

    module = _calling()

    def register(function: RuleFunction) -> RuleFunction:
        for op in ops:
            REGISTRY.add(Rule(op, function, statement, source, convention, shapes, module, elementwise, reference))
        return function

    return register


def free(*ops: str, because: str, moves: bool = False) -> None:
    """Register the named operators as costing no FLOP, and why. ``moves``: they still read and write elements."""
    module = _calling()
    for op in ops:
        REGISTRY.add(Free(op, because, moves, module))


def _calling() -> str:
    """The module in which ``rule`` or ``free`` is called."""
    return str(sys._getframe(2).f_globals["__name__"])


def cost_of(operator: Operator, module_path: str, registry: Registry) -> Cost:
    """The cost of ``operator``. Raises UnknownOperatorError if it has no rule."""
    entry = registry.find(operator.name)
    if entry is None:
        raise UnknownOperatorError(_refusal(operator, module_path, registry))
    if isinstance(entry, Free):
        return Cost() if entry.moves else Cost(reads=(), writes=())
    return entry.function(operator)


def _refusal(operator: Operator, module_path: str, registry: Registry) -> str:
    names: Sequence[str] = [*registry.rules, *registry.frees]
    inputs = ", ".join(f"{name} ({', '.join(str(s) for s in view.shape)}) {view.dtype}" for name, view in operator.tensors())
    near = difflib.get_close_matches(operator.name, names, n=2)
    hint = f" Nearest known: {', '.join(near)}." if near else ""
    return (
        f"no cost rule for operator {operator.name} at {module_path or 'the top level'}, inputs: {inputs or 'none'}."
        f"{hint} An operator without a rule is never counted as zero: state its cost with @calc.rules.rule({operator.name!r}, …),"
        f" or, if it truly costs nothing, state the reason with calc.rules.free({operator.name!r}, because=…)."
    )
