"""Published rules of thumb beside the exact count of this model: how far off, because of which terms, and where not.

A rule is an expression in the model's own dimensions. What separates it from the exact count is their difference as
polynomials, monomial by monomial, so the differences listed add up to the error without a rest.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc import branches
from calc import dims as dims_
from calc.algebra import Algebra, Poly
from calc.basis import Folding, basis_of
from calc.derivation import Derivation, QuantityTerm
from calc.dims import Dim
from calc.errors import NapkinError
from calc.units import Unit

NEAR = Fraction(1, 20)  # "within 5 %"
LISTED = 8
FARTHEST = 2**20


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of thumb. ``{N}`` in ``expr`` is the parameter count, ``{D}`` the tokens (or points) of a step.

    ``exact`` lists the derived quantities it stands for, each with its sign; ``outside`` those it leaves out by intent.
    """

    name: str
    statement: str
    letters: str
    source: str
    link: str
    unit: Unit
    expr: str
    needs: tuple[str, ...]
    exact: tuple[tuple[int, str], ...]
    stands_for: str
    assumes: str
    outside: tuple[str, ...] = ()


RULES: tuple[Rule, ...] = (
    Rule(
        name="6ND",
        statement="6 FLOP per parameter and token for forward and backward",
        letters="N = all parameters (the paper leaves embeddings out), D = tokens (or data points) of the step",
        source="Kaplan et al. 2020, Scaling Laws for Neural Language Models, section 2.1",
        link="https://arxiv.org/abs/2001.08361",
        unit=Unit.FLOP,
        expr="6*({N})*{D}",
        needs=("B",),
        exact=((1, "flops.forward.matmul"), (1, "flops.backward.matmul"), (-1, "flops.backward.recompute")),
        stands_for="model FLOPs of matrix products, forward and backward, without recomputation",
        assumes="every parameter multiplies every token once; attention products are small",
        outside=("flops.backward.recompute", "flops.forward.elementwise", "flops.backward.elementwise", "flops.optimizer.total"),
    ),
    Rule(
        name="2ND",
        statement="2 FLOP per parameter and token for the forward",
        letters="N = all parameters (the paper leaves embeddings out), D = tokens (or data points) of the step",
        source="Kaplan et al. 2020, Scaling Laws for Neural Language Models, section 2.1",
        link="https://arxiv.org/abs/2001.08361",
        unit=Unit.FLOP,
        expr="2*({N})*{D}",
        needs=("B",),
        exact=((1, "flops.forward.matmul"),),
        stands_for="FLOPs of matrix products in the forward",
        assumes="every parameter multiplies every token once; attention products are small",
        outside=("flops.forward.elementwise",),
    ),
    Rule(
        name="34sbh + 5as²b",
        statement="34·s·b·h + 5·a·s²·b bytes of activations in each layer",
        letters="s = T, b = B, h = d, a = h in the letters of this report",
        source="Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, equation 1",
        link="https://arxiv.org/abs/2205.05198",
        unit=Unit.BYTE,
        expr="L*(34*T*B*d + 5*h*T**2*B)",
        needs=("B", "T", "d", "h", "L"),
        exact=((1, "activations.bytes"),),
        stands_for="bytes that autograd saves for the backward",
        assumes="2 bytes an element, dropout in three places, f = 4·d, attention scores stored; embedding, head and loss left out",
    ),
    Rule(
        name="16 bytes per parameter",
        statement="2 + 2 + 12 bytes per parameter: weights, gradients, Adam's state with fp32 master weights",
        letters="N = parameters",
        source="Rajbhandari et al. 2019, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, section 3.1",
        link="https://arxiv.org/abs/1910.02054",
        unit=Unit.BYTE,
        expr="16*({N})",
        needs=(),
        exact=((1, "parameters.bytes"), (1, "gradients.bytes"), (1, "optimizer_state.bytes")),
        stands_for="bytes of parameters, gradients and optimizer state",
        assumes="mixed precision with Adam; fp32 with Adam is 4 + 4 + 8 = 16 too",
        outside=("activations.bytes",),
    ),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A monomial on which rule and exact count disagree. ``value`` is what it adds to rule − exact."""

    expr: str
    value: int
    kind: str
    sites: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Within:
    """Where along one dimension the rule is within 5 %, the other dimensions held. ``ranges`` may be empty."""

    dim: str
    ranges: tuple[tuple[int, int], ...]
    searched: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One rule of thumb against this model; where it does not apply, ``reason`` says why and nothing else is known."""

    rule: Rule
    applies: bool
    reason: str
    expr: str | None = None
    value: int | None = None
    exact: int | None = None
    differences: tuple[Difference, ...] = ()
    outside: tuple[tuple[str, int], ...] = ()
    within: tuple[Within, ...] = ()

    @property
    def ratio(self) -> Fraction | None:
        """Rule over exact count: 1 is right."""
        return Fraction(self.value, self.exact) if self.value is not None and self.exact else None


def compare(derivation: Derivation, rules: Sequence[Rule] = RULES) -> tuple[Comparison, ...]:
    """Every rule of thumb against the exact count of ``derivation``."""
    return tuple(_compare(rule, derivation) for rule in rules)


def _compare(rule: Rule, derivation: Derivation) -> Comparison:
    missing = _missing(rule, derivation)
    if missing:
        return Comparison(rule, False, missing)
    exact = _Exact(rule, derivation)
    expr = _written(rule, derivation)
    value = int(branches.value(expr, derivation.sizes))
    return Comparison(
        rule,
        True,
        "",
        expr=expr,
        value=value,
        exact=exact.at({}),
        differences=_differences(rule, expr, exact, derivation),
        outside=tuple((name, derivation[name].value or 0) for name in rule.outside if _known(derivation, name)),
        within=tuple(_within(dim, expr, exact, derivation) for dim in _scanned(expr, exact, derivation)),
    )


def _missing(rule: Rule, derivation: Derivation) -> str:
    absent = [name for name in rule.needs if name not in derivation.sizes]
    if absent:
        return f"does not apply: it is stated in {', '.join(rule.needs)}, and this model has no {', '.join(absent)}"
    for _, name in rule.exact:
        if name == "parameters.bytes" and name not in derivation.quantities:
            if not _parameter_bytes(derivation):
                return "cannot be compared: the derivation does not state the bytes of the parameters"
        elif name not in derivation.quantities:
            return f"cannot be compared: the derivation has no {name}"
        elif derivation[name].text is None:
            return f"cannot be compared: {name} is unknown, {derivation[name].unknown}"
    if "{N}" in rule.expr and not _known(derivation, "parameters"):
        return "cannot be compared: the derivation does not state the number of parameters"
    return ""


def _known(derivation: Derivation, name: str) -> bool:
    return name in derivation.quantities and derivation[name].text is not None


def _written(rule: Rule, derivation: Derivation) -> str:
    tokens = "B*T" if "T" in derivation.sizes else "B"
    parameters = (derivation["parameters"].text if "{N}" in rule.expr else "") or ""
    return rule.expr.replace("{N}", parameters).replace("{D}", tokens)


def _parameter_bytes(derivation: Derivation) -> str:
    """Bytes of the parameters as the peak counts them: every candidate holds them whole."""
    candidates = derivation["memory.peak"].candidates if "memory.peak" in derivation.quantities else ()
    return candidates[0].parts.get("parameter", "") if candidates else ""


class _Exact:
    """The signed sum of derived quantities that a rule stands for."""

    def __init__(self, rule: Rule, derivation: Derivation) -> None:
        self._derivation = derivation
        self._parts = [(sign, name) for sign, name in rule.exact if name in derivation.quantities]
        self._text = _parameter_bytes(derivation) if len(self._parts) < len(rule.exact) else ""

    def at(self, sizes: Mapping[str, int]) -> int:
        total = sum(sign * self._derivation[name].at(**sizes) for sign, name in self._parts)
        return total + (int(branches.value(self._text, {**self._derivation.sizes, **sizes})) if self._text else 0)

    def terms(self) -> Iterable[tuple[int, QuantityTerm]]:
        """The addends with their sign. A quantity that lists none is one addend of its own."""
        for sign, name in self._parts:
            quantity = self._derivation[name]
            whole = QuantityTerm(name, quantity.text or "0", quantity.value or 0, quantity.meaning)
            for term in quantity.terms or (whole,):
                yield sign, term
        if self._text:
            value = int(branches.value(self._text, self._derivation.sizes))
            yield 1, QuantityTerm("parameters", self._text, value, "storages of the parameters")


# -- which terms -----------------------------------------------------------------------------------------------------


class _Common:
    """Rewrites expression texts to polynomials that can be subtracted: ties and kept defaults (``f = 4*d``) put in."""

    def __init__(self, derivation: Derivation) -> None:
        dims = _dims(derivation)
        basis = basis_of(dims)
        self._define = dict(basis.define)
        for dim in derivation.dims:
            if dim.expr is not None and not dim.tied and _keeps_default(dim.expr, dim.value, derivation.sizes):
                self._define[dim.name] = _substitute(dim.expr, basis.define)
        self._basis = basis
        self._sizes = derivation.sizes

    def polynomials(self, texts: Sequence[str]) -> tuple[list[Poly], Algebra]:
        written = [_substitute(branches.at_hand(text, self._sizes), self._define) for text in texts]
        inner = Algebra(self._basis.symbols, written)
        fold = Folding(self._basis, inner)
        return [fold(inner.parse(text)) for text in written], fold.outer


def _dims(derivation: Derivation) -> dict[str, Dim]:
    """The model's dimensions again, with each value as default where it is no longer its default expression."""
    found: dict[str, Dim] = {}
    for dim in derivation.dims:
        follows = dim.expr is not None and (dim.tied or _keeps_default(dim.expr, dim.value, derivation.sizes))
        default: int | str = dim.expr if follows and dim.expr is not None else dim.value
        found[dim.name] = Dim(default, dim.meaning, dim.multiple_of, dim.tied)
    return found


def _keeps_default(expr: str, value: int, sizes: Mapping[str, int]) -> bool:
    return dims_.evaluate(expr, sizes) == value


def _substitute(text: str, known: Mapping[str, str]) -> str:
    class Names(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(f"({known.get(node.id, node.id)})", mode="eval").body

        def visit_Call(self, node: ast.Call) -> ast.expr:
            node.args = [self.visit(a) for a in node.args]
            return node

    return ast.unparse(Names().visit(ast.parse(text, mode="eval").body))


@dataclass
class _Monomial:
    exact: Fraction = Fraction(0)
    rule: Fraction = Fraction(0)
    exact_terms: list[QuantityTerm] | None = None


Key = tuple[tuple[str, int], ...]


def _differences(rule: Rule, expr: str, exact: _Exact, derivation: Derivation) -> tuple[Difference, ...]:
    """Monomials on which the two disagree, largest first; they add up to rule − exact."""
    try:
        monomials, algebra, owners = _monomials(rule, expr, exact, derivation)
    except NapkinError:
        # A term that is no polynomial even with ties put in: the error stands, its split does not.
        return ()
    found = [
        _difference(key, m, owners.get(key, []), algebra, derivation) for key, m in monomials.items() if m.exact != m.rule
    ]
    found.sort(key=lambda d: (-abs(d.value), d.expr))
    if len(found) <= LISTED:
        return tuple(found)
    rest = found[LISTED - 1 :]
    expr = " + ".join(f"({d.expr})" for d in rest)
    lumped = Difference(expr, sum(d.value for d in rest), "smaller terms", (), f"{len(rest)} smaller terms together")
    return (*found[: LISTED - 1], lumped)


def _monomials(
    rule: Rule, expr: str, exact: _Exact, derivation: Derivation
) -> tuple[dict[Key, _Monomial], Algebra, dict[Key, list[str]]]:
    signed = list(exact.terms())
    parameters = derivation["parameters"].terms if "{N}" in rule.expr else ()
    scaled = [_written_for(rule, term.expr, derivation) for term in parameters]
    polys, algebra = _Common(derivation).polynomials([expr, *(term.expr for _, term in signed), *scaled])
    found: dict[Key, _Monomial] = {}
    for coefficient, powers in algebra.terms(polys[0]):
        found.setdefault(_key(powers), _Monomial()).rule += coefficient
    for (sign, term), poly in zip(signed, polys[1 : 1 + len(signed)], strict=True):
        for coefficient, powers in algebra.terms(poly):
            monomial = found.setdefault(_key(powers), _Monomial())
            monomial.exact += sign * coefficient
            monomial.exact_terms = [*(monomial.exact_terms or []), term]
    owners: dict[Key, list[str]] = {}
    for term, poly in zip(parameters, polys[1 + len(signed) :], strict=True):
        for _, powers in algebra.terms(poly):
            owners.setdefault(_key(powers), []).append(term.site)
    return found, algebra, owners


def _written_for(rule: Rule, parameters: str, derivation: Derivation) -> str:
    tokens = "B*T" if "T" in derivation.sizes else "B"
    return rule.expr.replace("{N}", parameters).replace("{D}", tokens)


def _key(powers: Mapping[str, int]) -> Key:
    return tuple(sorted(powers.items()))


def _difference(key: Key, monomial: _Monomial, owners: Sequence[str], algebra: Algebra, derivation: Derivation) -> Difference:
    unit = algebra.constant(1)
    for name, power in key:
        unit *= algebra.gen(name) ** power
    off = unit * algebra.constant(monomial.rule - monomial.exact)
    terms = sorted(monomial.exact_terms or [], key=lambda t: (-abs(t.value), t.site))
    sites = tuple(dict.fromkeys(t.site for t in terms)) or tuple(dict.fromkeys(owners))
    kind, because = _reason(monomial, terms, owners)
    return Difference(algebra.text(off), algebra.value(off, derivation.sizes), kind, sites[:3], because)


def _reason(monomial: _Monomial, terms: Sequence[QuantityTerm], owners: Sequence[str]) -> tuple[str, str]:
    said = f": {_short(terms[0].because)}" if terms and terms[0].because else ""
    if not monomial.rule and monomial.exact < 0:
        return "added", f"the exact count is smaller by it: something is not done everywhere that the rule counts everywhere{said}"
    if not monomial.rule:
        return "dropped", f"the rule has no such term{said}"
    if not monomial.exact:
        what = f"for {_some(owners)}, which enter no matrix product" if owners else "the exact count has no such term"
        return "added", f"the rule counts it {what}" if owners else f"the rule counts it; {what}"
    return "counted differently", f"the coefficient is {monomial.rule} in the rule and {monomial.exact} in the exact count{said}"


def _short(because: str) -> str:
    """The first reasons of a list of them."""
    parts = because.split(", ")
    return because if len(parts) <= 2 else f"{', '.join(parts[:2])}, …"


def _some(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:3]) + (f" and {len(distinct) - 3} more" if len(distinct) > 3 else "")


# -- where it is near -------------------------------------------------------------------------------------------------


def _scanned(expr: str, exact: _Exact, derivation: Derivation) -> list[str]:
    """Dimensions worth moving: those that occur, are free, and that no other dimension must be divisible by."""
    texts = [expr, *(term.expr for _, term in exact.terms())]
    occur = {node.id for text in texts for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
    divisors = {dim.multiple_of for dim in derivation.dims}
    return [dim.name for dim in derivation.dims if dim.name in occur and dim.expr is None and dim.name not in divisors]


def _within(name: str, expr: str, exact: _Exact, derivation: Derivation) -> Within:
    """Ranges of ``name`` where rule and exact differ by at most 5 %: powers of two, then bisection between them."""
    dims = _dims(derivation)
    unit = dims[name].multiple_of
    step = derivation.sizes[unit] if isinstance(unit, str) else unit or 1
    near = _Memo(lambda i: _is_near(_moved(dims, name, i * step, derivation), expr, exact))
    low, high = _accepted(near, derivation.sizes[name] // step, *_limits(name, step, derivation))
    points = sorted({low, high, derivation.sizes[name] // step, *(2**i for i in range(64) if low <= 2**i <= high)})
    ranges: list[tuple[int, int]] = []
    start = points[0] if near(points[0]) else None
    for a, b in itertools.pairwise(points):
        if near(a) == near(b):
            continue
        edge = _bisect(near, a, b)
        if start is None:
            start = edge + 1
        else:
            ranges.append((start, edge))
            start = None
    if start is not None:
        ranges.append((start, points[-1]))
    return Within(name, tuple((a * step, b * step) for a, b in ranges), (low * step, high * step))


def _accepted(near: _Memo, here: int, low: int, high: int) -> tuple[int, int]:
    """The part of ``low … high`` around ``here`` at which the derivation stands; at its ends the step may be another one."""
    ends = []
    for end in (min(low, here), max(high, here)):
        good, bad = here, end
        if near.accepts(end):
            good = end
        while abs(good - bad) > 1 and good != end:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if near.accepts(middle) else (good, middle)
        ends.append(good)
    return ends[0], ends[1]


def _limits(name: str, step: int, derivation: Derivation) -> tuple[int, int]:
    """In multiples of ``step``. Positions are not exceeded: T stays at most C."""
    sizes = derivation.sizes
    if name == "T" and "C" in sizes:
        return 1, sizes["C"]
    if name == "C" and "T" in sizes:
        return sizes["T"], max(FARTHEST, sizes["T"])
    return 1, max(FARTHEST // step, sizes[name] // step, 1)


def _moved(dims: Mapping[str, Dim], name: str, size: int, derivation: Derivation) -> dict[str, int]:
    """All sizes with ``name`` moved and the rest held, except what follows it (``f = 4*d``)."""
    held = {d.name: d.value for d in derivation.dims if isinstance(dims[d.name].default, int)}
    sizes = dims_.resolve(dims, {**held, name: size})
    return {d: value for d, value in sizes.items() if not dims[d].tied}


def _is_near(sizes: Mapping[str, int], expr: str, exact: _Exact) -> bool:
    true = exact.at(sizes)
    return abs(int(branches.value(expr, sizes)) - true) <= NEAR * true


def _bisect(near: Callable[[int], bool], a: int, b: int) -> int:
    """The last point from ``a`` on that agrees with ``a``; ``b`` does not."""
    while b - a > 1:
        middle = (a + b) // 2
        a, b = (middle, b) if near(middle) == near(a) else (a, middle)
    return a


class _Memo:
    """A predicate on sizes, asked once per size. A size that the derivation refuses (B = 1, where the step is another one)
    says nothing; between sizes that are accepted, its neighbour answers for it."""

    def __init__(self, ask: Callable[[int], bool]) -> None:
        self._ask = ask
        self._known: dict[int, bool | None] = {}

    def accepts(self, size: int) -> bool:
        return self._answer(size) is not None

    def __call__(self, size: int) -> bool:
        answer = self._answer(size)
        return bool(self._answer(size + 1) if answer is None else answer)

    def _answer(self, size: int) -> bool | None:
        if size not in self._known:
            try:
                self._known[size] = self._ask(size)
            except NapkinError:
                self._known[size] = None
        return self._known[size]
