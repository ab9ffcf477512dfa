"""Solves a system of equations for one variable: by evaluation, by rearrangement, else by a certified search.

A value from a rearrangement is substituted into the original equation and rejected if it does not satisfy it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.capacity.questions.question import Equation
from calc.symbolic.arithmetic import Fractions, isolated
from calc.symbolic.expression import substitute
from calc.symbolic.parser import free_names, parse
from calc.symbolic.readable import readable
from calc.symbolic.worked import WorkedStep
from calc.symbolic.writer import as_text

# Roots are truncated to 40 digits; after several roots and a power, this many digits still agree.
_SAME = Fraction(1, 10**30)
_BITS = 128  # of a number that bisection computes
_LARGEST = 10**60


@dataclass(slots=True)
class System:
    """Equations and the values so far. ``rounded`` are variables with a rounded root; ``steps`` pairs each evaluated step
    with the equation of the question."""

    equations: tuple[Equation, ...]
    values: dict[str, Fraction]
    steps: list[tuple[Equation, Equation]]
    rounded: set[str]

    @classmethod
    def of(cls, equations: Iterable[Equation], values: Mapping[str, Fraction]) -> System:
        return cls(tuple(equations), dict(values), [], set())

    def reach(self, target: str) -> bool:
        """Solve equations with one unknown until ``target`` has a value or no such equation is left. Returns whether it has one."""
        waiting = list(self.equations)
        while target not in self.values:
            ready = next((e for e in waiting if self._step(e)), None)
            if ready is None:
                return False
            waiting.remove(ready)
        return True

    def _step(self, equation: Equation) -> bool:
        right = free_names(equation.expr)
        unknown = [name for name in {equation.symbol, *right} if name not in self.values]
        if unknown == [equation.symbol] and equation.symbol not in right:
            return self._take(equation.symbol, equation.expr, equation, "")
        if len(unknown) != 1 or equation.symbol not in self.values:
            return False
        return self._rearranged(equation, unknown[0], f"{_written(equation)}, rearranged for {unknown[0]}")

    def _rearranged(self, equation: Equation, x: str, because: str) -> bool:
        return any(self._take(x, expr, equation, because) for expr in isolated(equation.expr, x, equation.symbol))

    def _take(self, symbol: str, expr: str, equation: Equation, because: str) -> bool:
        """Store the value of ``symbol`` if it is positive and satisfies the equation."""
        at = Fractions(self.values)
        try:
            value = parse(expr).value_in(at)
            if symbol != equation.symbol and (value <= 0 or not self._holds(equation, symbol, value)):
                return False
        except ZeroDivisionError:
            return False
        self.values[symbol] = value
        if at.rounded or free_names(expr) & self.rounded:
            self.rounded.add(symbol)
        self.steps.append((Equation(symbol, expr, because or equation.because), equation))
        return True

    def _holds(self, equation: Equation, symbol: str, value: Fraction) -> bool:
        computed = parse(equation.expr).value_in(Fractions({**self.values, symbol: value}))
        return same(computed, self.values[equation.symbol])

    def through(self, target: str) -> bool:
        """Substitute equations until ``target`` is the only unknown of an equation with a value, then rearrange that. Returns whether it
        worked."""
        for equation in self.equations:
            if equation.symbol in self.values:
                combined = self._inlined(equation, target)
                because = f"{_written(combined)}, substituted into one another and rearranged for {target}"
                unknown = free_names(combined.expr) - self.values.keys()
                if unknown == {target} and self._rearranged(combined, target, because):
                    return True
        return False

    def _inlined(self, equation: Equation, target: str) -> Equation:
        tree = parse(equation.expr)
        for inner in reversed(self.equations):
            if inner.symbol not in self.values and inner.symbol not in (target, equation.symbol):
                tree = substitute(tree, {inner.symbol: parse(inner.expr)})
        return Equation(equation.symbol, as_text(tree), equation.because)

    def lines(self, targets: Iterable[str], meanings: Mapping[str, tuple[str, str]]) -> tuple[WorkedStep, ...]:
        """The steps that the variables ``targets`` depend on, each with unit and meaning."""
        used, steps = set(targets), []
        for equation, _ in reversed(self.steps):
            if equation.symbol in used:
                used |= free_names(equation.expr)
                steps.append(equation)
        return tuple(
            WorkedStep(e.symbol, e.expr, *meanings[e.symbol], e.because, self.values[e.symbol], exact=e.symbol not in self.rounded)
            for e in reversed(steps)
        )


def _written(equation: Equation) -> str:
    return f"{equation.symbol} = {readable(equation.expr)}"


def same(a: Fraction, b: Fraction) -> bool:
    """Whether two numbers are equal up to the precision of truncated roots."""
    return a == b or abs(a - b) <= _SAME * max(abs(a), abs(b))


def value_of(equations: Sequence[Equation], values: Mapping[str, Fraction], target: str) -> Fraction | None:
    """The value of ``target`` by evaluation and rearrangement; None if that does not determine it."""
    system = System.of(equations, values)
    return system.values[target] if system.reach(target) or system.through(target) else None


# -- whole numbers -----------------------------------------------------------------------------------------------------------------


def to_safe_side(value: Fraction, side: str) -> tuple[int, bool]:
    """``value`` rounded to a whole number, and whether a rounding error of a double was corrected: 1023.9999999999999 becomes 1024."""
    near = round(value)
    if near >= 1 and value != near and abs(value - near) <= min(Fraction(1, 10**14) * value, Fraction(1, 10**6)):
        return near, True
    return (math.ceil(value) if side == "up" else math.floor(value)), False


def divisors(number: int) -> list[int]:
    """The divisors of a whole number, ascending."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({1, *low, *(number // n for n in low)})


Goal = Callable[[Fraction], Fraction | None]


# -- searching ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossing:
    """``value`` satisfies the goal, ``beyond`` does not; ``at`` are the values of the goal at both."""

    value: Fraction
    beyond: Fraction
    at: tuple[Fraction, Fraction]


def searched(
    equations: Sequence[Equation],
    values: Mapping[str, Fraction],
    target: str,
    goal: str,
    rounding: str,
    allowed: Callable[[Mapping[str, Fraction]], bool] = lambda _: True,
) -> Crossing | None:
    """``target`` by bisection, for a monotonic ``goal``; None if no crossing exists.

    A whole number is the last one (rounded up: the first one) that satisfies the goal; any other has 128 bits. Equations apply only at
    ``allowed`` values.
    """
    limit = values[goal]
    constants = {name: value for name, value in values.items() if name != goal}

    def at(x: Fraction) -> Fraction | None:
        system = System.of(equations, {**constants, target: x})
        return system.values[goal] if system.reach(goal) and allowed(system.values) else None

    low = Fraction(1) if rounding else Fraction(1, 10**30)
    while (first := at(low)) is None:
        low *= 2
        if low > _LARGEST:
            return None
    high = 2 * low
    if first == limit and (last := at(high)) is not None:
        return Crossing(low, high, (first, last))
    while (last := at(high)) is not None and (first <= limit) == (last <= limit) and last != limit:
        low, high = high, 2 * high
        if high > _LARGEST:
            return None
    return None if last is None else _bisected(at, low, high, limit, last > first, rounding)


def _bisected(at: Goal, low: Fraction, high: Fraction, limit: Fraction, grows: bool, rounding: str) -> Crossing | None:
    """The crossing between ``low`` and ``high``, which lie on opposite sides of the limit."""

    def below(x: Fraction) -> bool:
        value = at(x)
        return value is not None and (value <= limit if grows else value >= limit)

    while (high - low > 1) if rounding else (high - low > high / 2**_BITS):
        middle = (low + high) / 2
        middle = Fraction(math.floor(middle)) if rounding else Fraction(round(middle * 2 ** (_BITS + 90)), 2 ** (_BITS + 90))
        low, high = (middle, high) if below(middle) else (low, middle)
    if below(high):
        low, high = high, high + 1
    # Invariant: ``low`` does not pass the goal.
    if rounding == "up" and at(low) != limit:
        low, high = high, low
    at_low, at_high = at(low), at(high)
    return None if at_low is None or at_high is None else Crossing(low, high, (at_low, at_high))
