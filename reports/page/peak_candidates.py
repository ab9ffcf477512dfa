"""Short names (M₁, M₂, …) for peak candidates, and each candidate as its difference from an earlier one.

Thirty candidates in full repeat the same parameters, optimizer state and activations. Two candidates differ in the few storages that
are allocated or freed between them: the difference is short, and it decides which of the two is larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from calc.derive.live_bytes import Instant, Timeline
from calc.derive.result import Step
from calc.graph.step import bare_name
from calc.symbolic.expression import Expression, Labelled, Name, Negative, Number, Product, Quotient, Sum, bare
from calc.symbolic.tree import is_maximum, scaled

_LETTERS = {"memory.peak": "M", "memory.peak.first_step": "F"}
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class PeakCandidateView:
    """A peak candidate and the step that derives it, M₁₂ by its ``letter`` and ``number``. With a ``base``: it is ``base`` plus ``change``,
    by role in ``by_role``."""

    letter: str
    number: int
    step: Step
    base: PeakCandidateView | None = None
    by_role: tuple[Labelled, ...] = ()
    change: tuple[Expression, ...] = ()

    @property
    def name(self) -> Name:
        """The short name in formulas."""
        return Name(f"{self.letter}_{self.number}")

    @property
    def text(self) -> str:
        """The short name as text: ``M₁₂``."""
        return self.letter + str(self.number).translate(_SUBSCRIPTS)

    @property
    def because(self) -> str:
        """Why it is ``base`` plus ``change``."""
        if self.base is not None and not self.by_role:
            if (self.step.quantity, self.base.step.quantity) == ("memory.peak.first_step", "memory.peak"):
                return "the first step has the same storages live here as the second"
            return f"as many bytes of each role are live as at {self.base.text}"
        return "what is live at only one of the two makes the difference"


class PeakCandidates:
    """The peak candidates that a report has named so far, in the order in which it shows them."""

    def __init__(self) -> None:
        self._distinct: list[tuple[PeakCandidateView, _Numbered]] = []
        self._numbers: dict[Expression, int] = {}

    def of(self, steps: Sequence[Step]) -> dict[Expression, PeakCandidateView]:
        """The peak candidates of one quantity by closed form, largest value first."""
        derived = {s.after: s for s in steps if not is_maximum(s.after)}
        candidates: dict[Expression, PeakCandidateView] = {}
        for maximum in (s.after for s in steps if is_maximum(s.after)):
            items = dict.fromkeys(item for item in maximum.arguments if item in derived and item not in candidates)
            for item in sorted(items, key=lambda item: -derived[item].value):
                step = derived[item]
                own = self._numbered(monomials(step.after))
                candidates[item] = self._described(len(candidates) + 1, step, own)
                self._distinct.append((candidates[item], own))
        return candidates

    def _numbered(self, terms: Monomials) -> _Numbered:
        """Products as numbers, which compare faster than trees: every pair of a hundred candidates is compared."""
        return {self._numbers.setdefault(key, len(self._numbers)): coefficient for key, coefficient in terms.items()}

    def _described(self, number: int, step: Step, own: _Numbered) -> PeakCandidateView:
        """As its difference from the nearest earlier candidate, if that is short; else in full."""
        away, base = min(((_apart(own, base_terms), m) for m, base_terms in self._distinct), key=lambda pair: pair[0], default=(0, None))
        candidate = PeakCandidateView(_LETTERS.get(step.quantity, "M"), number, step)
        if base is None or 2 * away > len(own) or not (_has_roles(step) and _has_roles(base.step)):
            return candidate
        change = _difference(monomials(step.after), monomials(base.step.after))
        by_role = _by_role(step, base.step)
        if _total(by_role.values()) != change:
            return candidate  # the roles do not sum to the named form, so there is a step in between
        labelled = tuple(Labelled(_sum(role_change), role) for role, role_change in by_role.items())
        return replace(candidate, base=base, by_role=labelled, change=tuple(_terms(change)))


def letters(names: Iterable[str]) -> dict[str, str]:
    """Quantity → letter of its peak candidates, for those of ``names`` that have some."""
    return {name: _LETTERS[name] for name in names if name in _LETTERS}


Monomials = Mapping[Expression, Fraction]
_Numbered = Mapping[int, Fraction]


def monomials(tree: Expression) -> Monomials:
    """Product → coefficient of a collected sum; ``d·(L − 3)·E`` is two products."""
    terms = tree.terms if isinstance(tree, Sum) else (tree,)
    return _total(dict([product]) for term in terms for product in _products(term))


def _products(term: Expression) -> Iterator[tuple[Expression, Fraction]]:
    """The products of an addend, each with its coefficient, factors in their order."""
    key, coefficient = _monomial(term)
    factors = key.factors if isinstance(key, Product) else (key,)
    place = next((i for i, factor in enumerate(factors) if isinstance(factor, Sum)), None)
    if place is None:
        yield key, coefficient
        return
    total = factors[place]
    for addend in total.terms if isinstance(total, Sum) else ():
        inner, number = _monomial(addend)
        own = inner.factors if isinstance(inner, Product) else (inner,)
        yield Product((*factors[:place], *own, *factors[place + 1 :])), coefficient * number


def _monomial(term: Expression) -> tuple[Expression, Fraction]:
    match bare(term):
        case Negative(body):
            key, coefficient = _monomial(body)
            return key, -coefficient
        case Quotient(top, Number(int() as bottom)):
            key, coefficient = _monomial(top)
            return key, coefficient / bottom
        case Number(int() as value):
            return Product(()), Fraction(value)
        case Product((Number(int() as value), *factors)):
            return Product(tuple(factors)), Fraction(value)
        case Product() as product:
            return product, Fraction(1)
        case node:
            return Product((node,)), Fraction(1)


def _apart(own: _Numbered, base: _Numbered) -> int:
    """The number of products in which two sums differ."""
    return sum(base.get(key) != coefficient for key, coefficient in own.items()) + len(base.keys() - own.keys())


def _difference(own: Monomials, base: Monomials) -> dict[Expression, Fraction]:
    """``own`` − ``base``, in the order of ``own``."""
    keys = dict.fromkeys((*own, *base))
    remaining = {key: own.get(key, Fraction(0)) - base.get(key, Fraction(0)) for key in keys}
    return {key: coefficient for key, coefficient in remaining.items() if coefficient}


def _has_roles(step: Step) -> bool:
    return isinstance(step.before, Sum) and all(isinstance(t, Labelled) for t in step.before.terms)


def _by_role(step: Step, base: Step) -> dict[str, dict[Expression, Fraction]]:
    own, base_roles = _roles(step), _roles(base)
    changes = {role: _difference(own.get(role, {}), base_roles.get(role, {})) for role in dict.fromkeys((*own, *base_roles))}
    return {role: change for role, change in changes.items() if change}


def _roles(step: Step) -> dict[str, Monomials]:
    terms = step.before.terms if isinstance(step.before, Sum) else ()
    return {t.label: monomials(t.body) for t in terms if isinstance(t, Labelled)}


def _total(changes: Iterable[Monomials]) -> dict[Expression, Fraction]:
    coefficients: dict[Expression, Fraction] = {}
    for change in changes:
        for key, coefficient in change.items():
            coefficients[key] = coefficients.get(key, Fraction(0)) + coefficient
    return {key: coefficient for key, coefficient in coefficients.items() if coefficient}


def _sum(change: Monomials) -> Expression:
    terms = tuple(_terms(change))
    return terms[0] if len(terms) == 1 else Sum(terms)


def _terms(change: Monomials) -> Iterator[Expression]:
    for key, coefficient in change.items():
        yield scaled(coefficient, key.factors if isinstance(key, Product) else (key,))


# -- instants of a step in words --------------------------------------------------------------------------------------


def phase_of(timeline: Timeline) -> str:
    """Where in its phase the peak is: ``at the start of the backward``."""
    op = timeline.peak.op
    stretch = next(((phase, first, last) for phase, first, last in timeline.phases if first <= op <= last), None)
    if stretch is None:
        return "before the first operator"
    phase, first, last = stretch
    share = Fraction(op - first, max(last - first, 1))
    where = "at the start of" if share <= Fraction(1, 10) else "at the end of" if share >= Fraction(9, 10) else "during"
    repeats = [p for p, _, _ in timeline.phases].count(phase) > 1
    words = "optimizer step" if phase == "optimizer" else phase.replace("_", " ")
    return f"{where} {'a' if repeats else 'the'} {words}"


def called(instant: Instant) -> str:
    """An instant by its operator: ``mm at lm_head``."""
    if not instant.operator:
        return "no operator has run"
    return f"{bare_name(instant.operator)} at {instant.module_path}"
