"""The difference between a rule of thumb and the exact count, as steps from the one to the other.

Both are polynomials in the same dimensions, so their difference is split exactly: first the gradients that autograd does not compute, then
monomial by monomial what the rule omits, adds or counts differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from calc.derive.names import AddendLabel, StepPlace
from calc.derive.result import Derivation, Step, StepCheck
from calc.derive.rules_of_thumb.common import Common
from calc.derive.rules_of_thumb.differences import ADDED, DROPPED, NOT_COMPUTED, OTHERWISE, REUSED, Difference
from calc.derive.rules_of_thumb.exact import Addend, ExactCount, written
from calc.errors import NapkinError
from calc.graph.step import TOP
from calc.symbolic import parser
from calc.symbolic.algebra import Poly
from calc.symbolic.expression import Expression, Labelled, Negative, Number, Product, Quotient, Sum
from calc.symbolic.expression import names as names_of
from calc.symbolic.readable import readable
from calc.symbolic.tree import parse
from calc.units import Unit

LISTED = 8
NAMED = 3

_IF_COMPUTED = " if it were computed"
# The gradient that is missing beside the one that is computed.
_MISSING = {frozenset({"dw"}): AddendLabel("dx"), frozenset({"dx"}): AddendLabel("dw")}

Key = tuple[tuple[str, int], ...]


_ALL = "these are all the terms in which the rule and the exact count differ"


@dataclass(frozen=True, slots=True)
class Explained:
    """The differences between a rule and the exact count, the smaller ones merged, and the steps from the one to the other.

    ``all`` has every difference alone; it is ``None`` where the error is exact but is not split.
    """

    differences: tuple[Difference, ...]
    steps: tuple[Step, ...]
    all: tuple[Difference, ...] | None


@dataclass(frozen=True, slots=True)
class _Correction:
    """What must be added to the rule: ``poly``, first shown as ``before``."""

    kind: str
    title: str
    before: Expression
    poly: Poly
    value: int
    module_paths: tuple[str, ...]
    because: str


def explained(expr: str, exact: ExactCount, derivation: Derivation) -> Explained:
    """The differences between a rule, written as ``expr``, and the exact count, and the steps from the one to the other.

    Where a term is not a polynomial even after substituting ties, there are none: the error is exact, but it is not split.
    """
    try:
        bridge = _Bridge(expr, exact, derivation)
    except NapkinError:
        return Explained((), (), None)
    return Explained(bridge.differences(bridge.corrections), tuple(bridge.steps()), bridge.differences(bridge.every))


class _Bridge:
    def __init__(self, expr: str, exact: ExactCount, derivation: Derivation) -> None:
        self._expr, self._exact, self._derivation = expr, exact, derivation
        self._addends = list(exact.addends())
        self._owners = derivation[exact.rule.counted].terms if exact.rule.counted else ()
        constant = written(exact.rule, derivation, "0")
        shares = [f"({written(exact.rule, derivation, term.expr)}) - ({constant})" for term in self._owners]
        quantities = [text for _, _, text in exact.quantities()]
        self._common = Common(derivation, [expr, *shares, *quantities, *(a.expr for a in self._addends)])
        self._shares = [(term.module_path, self._common(share)) for term, share in zip(self._owners, shares, strict=True)]
        self._rule = self._common(expr)
        self._zero = self._common.algebra.constant(0)
        self._polys = [(a, self._common(a.expr)) for a in self._addends]
        self._total = sum((poly for _, poly in self._polys), start=self._zero)
        self.every = list(self._all())
        self.corrections = self._shortened(list(self.every))

    # -- corrections ------------------------------------------------------------------------------------------------

    def differences(self, corrections: Sequence[_Correction]) -> tuple[Difference, ...]:
        return tuple(Difference(self._common.text(-c.poly), -c.value, c.kind, c.module_paths, c.because) for c in corrections)

    def _all(self) -> Iterator[_Correction]:
        skipped = list(self._skipped())
        yield from skipped
        # As if every matrix multiplication had both gradients: the remaining differences have other reasons.
        polynomials = [*self._polys, *((self._not_computed(c.module_paths[0]), -c.poly) for c in skipped)]
        monomials = _by_monomial([(a, p) for a, p in polynomials], self._monomials)
        counted = dict(self._monomials(self._rule))
        dropped: dict[tuple[str, bool], list[tuple[Addend, Poly]]] = {}
        for key in dict.fromkeys((*counted, *monomials)):
            addends, rule = monomials.get(key, []), counted.get(key, Fraction(0))
            exact = sum((c for _, c in addends), start=Fraction(0))
            if rule == exact:
                continue
            if not rule:
                for addend, coefficient in addends:
                    group = self._kind_of(addend), self._applies_weights(addend)
                    dropped.setdefault(group, []).append((addend, self._monomial(key, coefficient)))
            elif not exact:
                yield self._added(key, rule)
            else:
                yield self._otherwise(key, rule, exact, _left(addends))
        for (reason, of_weights), parts in dropped.items():
            total = sum((p for _, p in parts), start=self._zero)
            if of_weights and self._common.value(total) > 0:
                applied = sum((p for a, p in polynomials if a.module_path == reason and self._applies_weights(a)), start=self._zero)
                yield self._dropped(reason, parts, REUSED, self._reused(parts, self._times(reason, applied)))
            elif total != 0:
                yield self._dropped(reason, parts)

    def _kind_of(self, addend: Addend) -> str:
        """The key by which omitted terms are grouped: matrix multiplications by module path, tensors by description."""
        return addend.module_path if self._exact.rule.unit is Unit.FLOP else _label(addend)

    def _skipped(self) -> Iterator[_Correction]:
        """Gradients that autograd does not compute: the backward of a module path is then less than twice its forward.

        A matrix multiplication has one gradient multiplication for each of its two factors, so the missing one is that of a factor whose
        gradient is not needed, such as the model's input.
        """
        forward = self._by_module_path(lambda a: a.quantity == "flops.forward.matmul")
        backward = self._by_module_path(lambda a: a.quantity.startswith("flops.backward"))
        for module_path in forward if backward else ():
            missing = 2 * forward[module_path] - backward.get(module_path, self._zero)
            if missing != 0 and self._common.value(missing) > 0:
                twice = Negative(Product((Number(2), self._common.tree(forward[module_path]))))
                had = Labelled(self._common.tree(backward.get(module_path, self._zero)), "backward")
                because = (
                    f"autograd computes no gradient of an input that is data: at {module_path} the backward is less than twice the forward"
                )
                before = Sum((had, Labelled(twice, "twice the forward")))
                yield self._correction(NOT_COMPUTED, module_path, before, -missing, (module_path,), because)

    def _by_module_path(self, condition: Callable[[Addend], bool]) -> dict[str, Poly]:
        totals: dict[str, Poly] = {}
        for addend, poly in self._polys:
            if condition(addend):
                totals[addend.module_path] = totals.get(addend.module_path, self._zero) + poly
        return totals

    def _not_computed(self, module_path: str) -> Addend:
        """The gradient that autograd does not compute at ``module_path``, as an addend of its own."""
        at_path = [a for a in self._addends if a.module_path == module_path]
        forward = next(a for a in at_path if a.quantity == "flops.forward.matmul")
        computed = {a.label.gradient for a in at_path if a.quantity.startswith("flops.backward")}
        return replace(forward, quantity=NOT_COMPUTED, label=_MISSING.get(frozenset(computed), AddendLabel("the gradient")))

    def _dropped(self, reason: str, parts: Sequence[tuple[Addend, Poly]], kind: str = DROPPED, why: str = "") -> _Correction:
        labels = [_label(a) if self._exact.rule.unit is Unit.FLOP else a.module_path for a, _ in parts]
        sums: dict[str, Poly] = {}
        for label, (_, poly) in zip(labels, parts, strict=True):
            sums[label] = sums.get(label, self._zero) + poly
        shown = {label: poly for label, poly in sums.items() if poly != 0}
        total = sum(shown.values(), start=self._zero)
        addends = [a for label, (a, _) in zip(labels, parts, strict=True) if label in shown]
        module_paths, terms = tuple(dict.fromkeys(a.module_path for a in addends)), _some(list(dict.fromkeys(map(_label, addends))))
        lacking = f"the {self._exact.rule.noun} has no such term: {terms}"
        because = why or (f"the exact count is smaller by it: {terms}" if self._common.value(total) < 0 else lacking)
        return self._correction(kind, reason, self._labelled_sum(shown), total, module_paths, because + _subtracted(addends))

    def _applies_weights(self, addend: Addend) -> bool:
        """Whether the rule counts weights and the addend is a multiplication by one, or its gradient that is missing."""
        if not self._owners or self._exact.rule.unit is not Unit.FLOP:
            return False
        return addend.quantity == NOT_COMPUTED or addend.label.is_convolution or addend.label.of_parameter

    def _parameters_of(self, module_path: str) -> dict[str, Poly]:
        """The parameters of a module by name, each with its share of the rule."""
        module = "" if module_path == TOP else module_path
        paths = ((parameter.rpartition("."), share) for parameter, share in self._shares)
        return {name: share for (parent, _, name), share in paths if parent == module}

    def _reused(self, parts: Sequence[tuple[Addend, Poly]], times: str) -> str:
        """Why the exact count has more of a weight's multiplications than the rule."""
        convolution = any(a.label.is_convolution for a, _ in parts)
        applied = "convolution applies it at every position of its result" if convolution else "layer applies it to each row of its input"
        return f"N counts each weight once per {self._each()}; the {applied}{times}"

    def _times(self, module_path: str, applied: Poly) -> str:
        """How often the module applies its weight to a sample, ``, p² + 1 times``; empty where it has several or that is no polynomial."""
        own = [share for name, share in self._parameters_of(module_path).items() if "bias" not in name]
        largest = max((self._degree(share) for share in own), default=0)
        weights = [share for share in own if self._degree(share) == largest]
        times, rest = divmod(applied, weights[0]) if len(weights) == 1 else (self._zero, applied)
        return f", {readable(self._common.tree(times))} times" if rest == 0 else ""

    def _degree(self, poly: Poly) -> int:
        return max((sum(power for _, power in key) for key, _ in self._monomials(poly)), default=0)

    def _each(self) -> str:
        """The sample that N is counted for."""
        return "token" if "T" in self._exact.rule.needs else "data point"

    def _added(self, key: Key, rule: Fraction) -> _Correction:
        monomials = [
            (module_path, coefficient) for module_path, share in self._shares for k, coefficient in self._monomials(share) if k == key
        ]
        owners: dict[str, Poly] = {}
        for module_path, coefficient in monomials:
            owners[module_path] = owners.get(module_path, self._zero) - self._monomial(key, coefficient)
        total = -self._monomial(key, rule)
        noun = self._exact.rule.noun
        because = f"the {noun} counts it; the exact count has no such term"
        if owners and self._exact.rule.unit is Unit.FLOP:
            because = f"the {noun} counts it for {_some(list(owners))}, which no matrix multiplication uses once per {self._each()}"
        complete = sum(owners.values(), start=self._zero) == total
        before = self._labelled_sum(owners) if complete else self._common.tree(total)
        return self._correction(ADDED, _some(list(owners)) or "the rule alone", before, total, tuple(owners), because)

    def _otherwise(self, key: Key, rule: Fraction, exact: Fraction, addends: Sequence[Addend]) -> _Correction:
        module_paths = tuple(dict.fromkeys(a.module_path for a in addends))
        terms = _some(list(dict.fromkeys(map(_label, addends))))
        owners = list(dict.fromkeys(module_path for module_path, share in self._shares if key in dict(self._monomials(share))))
        counted = f", for {_some(owners)}" if owners else ""
        of = readable(self._common.tree(self._monomial(key, Fraction(1))))
        in_rule, in_count = f"{_grouped(rule)} in the {self._exact.rule.noun}{counted}", f"{_grouped(exact)} in the exact count"
        because = f"the coefficient of {of} is {in_rule}; it is {in_count}, for {terms}{_subtracted(addends)}"
        right = Labelled(self._common.tree(self._monomial(key, exact)), "exact")
        wrong = Labelled(_negative(self._common.tree(self._monomial(key, rule))), "rule")
        total = self._monomial(key, exact - rule)
        return self._correction(OTHERWISE, _some(list(module_paths)), Sum((right, wrong)), total, module_paths, because)

    def _correction(self, kind: str, title: str, before: Expression, poly: Poly, module_paths: Sequence[str], because: str) -> _Correction:
        return _Correction(kind, title, before, poly, self._common.value(poly), tuple(module_paths), because)

    def _shortened(self, corrections: list[_Correction]) -> list[_Correction]:
        """Corrections by decreasing size, with those beyond ``LISTED`` merged into one."""
        corrections.sort(key=lambda c: (-abs(c.value), self._common.text(c.poly)))
        if len(corrections) <= LISTED:
            return corrections
        smaller = corrections[LISTED - 1 :]
        before = Sum(tuple(Labelled(self._common.tree(c.poly), c.title) for c in smaller))
        poly = sum((c.poly for c in smaller), start=self._zero)
        because = f"this is the sum of the {len(smaller)} smallest corrections"
        return [*corrections[: LISTED - 1], self._correction("smaller terms", "smaller terms", before, poly, (), because)]

    # -- steps --------------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """The rule, the exact count, each correction, and the proof that they account for all of it."""
        rule = self._exact.rule
        ones = "".join(f"; here {name} = 1" for name in self._common.fixed_to_one(self._derivation))
        because = f"the rule of thumb is {rule.statement}; {rule.letters}{ones}{self._replaced(self._expr)}"
        yield self._step(1, "the rule", "sizes substituted", parse(self._expr), self._rule, because)
        number, replaced = 2, self._replaced(*(text for _, _, text in self._exact.quantities()))
        if len(self._exact.quantities()) > 1 or self._exact.size != 1:
            yield self._step(number, "the exact count", "exact count", self._quantities(), self._total, self._counted() + replaced)
            number, replaced = 3, ""
        for c in self.corrections:
            yield self._step(number, c.title, "correction", c.before, c.poly, c.because)
            number += 1
        corrected = (Labelled(self._common.tree(self._rule), "rule"), *self._labelled_corrections())
        because = (_ALL if self.corrections else "the rule is the exact count") + replaced
        yield self._step(number, "from the rule to the exact count", "corrected sum", _sum(corrected), self._total, because)

    def _replaced(self, *texts: str) -> str:
        """The sizes in ``texts`` that are replaced by their defaults, in words: ``; with f = 4·d``."""
        ones = self._common.fixed_to_one(self._derivation)
        names = dict.fromkeys(name for text in texts for name in names_of(parser.parse(text)) if name in self._derivation.sizes)
        texts_by_name = {name: self._common.text(self._common(name)) for name in names if name not in ones}
        definitions = [f"{name} = {readable(text)}" for name, text in texts_by_name.items() if text != name]
        return f"; with {', '.join(definitions)}" if definitions else ""

    def _quantities(self) -> Expression:
        trees = []
        for sign, name, text in self._exact.quantities():
            poly = self._common(text)
            if poly != 0:
                shown = self._common.tree(poly)
                trees.append(Labelled(_negative(shown) if sign < 0 else shown, name))
        quantity = _sum(trees)
        return quantity if self._exact.size == 1 else Quotient(quantity, Number(self._exact.size))

    def _counted(self) -> str:
        rule, size = self._exact.rule, self._exact.size
        of = f"this is the exact count of the {rule.stands_for}"
        return of if size == 1 else f"{of}: all of them are {rule.format}, {size} bytes each"

    def _labelled_corrections(self) -> Iterator[Expression]:
        for c in self.corrections:
            yield Labelled(self._common.tree(c.poly), c.title)

    def _step(self, number: int, title: str, name: str, before: Expression, after: Poly, because: str) -> Step:
        rule = self._exact.rule.name
        shown = self._common.tree(after)
        self._common.require_equal(before, shown, f"the step {title!r} of the rule of thumb {rule}")
        check, value = StepCheck("symbolic", "holds"), self._common.value(after)
        return Step(f"{rule}-{number}", rule, StepPlace(title), name, before, shown, because, check, value)

    # -- monomials ------------------------------------------------------------------------------------------------------

    def _monomials(self, poly: Poly) -> list[tuple[Key, Fraction]]:
        return [(tuple(sorted(powers.items())), coefficient) for coefficient, powers in self._common.algebra.terms(poly)]

    def _monomial(self, key: Key, coefficient: Fraction) -> Poly:
        monomial = self._common.algebra.constant(coefficient)
        for name, power in key:
            monomial *= self._common.algebra.gen(name) ** power
        return monomial

    def _labelled_sum(self, parts: Mapping[str, Poly]) -> Expression:
        return _sum([Labelled(self._common.tree(poly), label) for label, poly in parts.items()])


def _by_monomial(
    polys: Sequence[tuple[Addend, Poly]], split: Callable[[Poly], list[tuple[Key, Fraction]]]
) -> dict[Key, list[tuple[Addend, Fraction]]]:
    addends: dict[Key, list[tuple[Addend, Fraction]]] = {}
    for addend, poly in polys:
        for key, coefficient in split(poly):
            addends.setdefault(key, []).append((addend, coefficient))
    return addends


def _left(addends: Sequence[tuple[Addend, Fraction]]) -> list[Addend]:
    """Addends without those whose coefficients cancel, which have no part in a difference."""
    net: dict[tuple[str, AddendLabel], Fraction] = {}
    for a, coefficient in addends:
        net[a.module_path, a.label] = net.get((a.module_path, a.label), Fraction(0)) + coefficient
    return [a for a, _ in addends if net[a.module_path, a.label]]


def _label(addend: Addend) -> str:
    of = " of the optimizer" if addend.quantity == "optimizer_state.bytes" else ""  # float32 step
    return f"{addend.label}{of}{_IF_COMPUTED if addend.quantity == NOT_COMPUTED else ''}"


def _subtracted(addends: Sequence[Addend]) -> str:
    """That an addend which autograd does not compute is subtracted, after a semicolon; empty where there is none."""
    missing = list(dict.fromkeys(str(a.label) for a in addends if a.quantity == NOT_COMPUTED))
    return f"; autograd does not compute {_some(missing)}, so a term of its own subtracts it" if missing else ""


def _sum(trees: Sequence[Expression]) -> Expression:
    return trees[0] if len(trees) == 1 else Sum(tuple(trees)) if trees else Number(0)


def _negative(shown: Expression) -> Expression:
    return shown.body if isinstance(shown, Negative) else Negative(shown)


def _some(names: Sequence[str]) -> str:
    """The first of several names or reasons, and how many more there are."""
    omitted = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {omitted} more" if omitted > 0 else "")


def _grouped(number: Fraction) -> str:
    """Digits in groups of three."""
    return f"{number.numerator:,}" if number.denominator == 1 else f"{number.numerator:,}/{number.denominator:,}"
