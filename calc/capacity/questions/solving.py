"""From what is given to what is wanted: equations gone through forwards or rearranged, and a certified search where neither will do.

Every value that was found by rearranging is put back into the equation as it stood; what does not come out again is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.capacity.questions.question import Equation
from calc.symbolic.arithmetic import Evaluation, isolated, letters_of, parsed, substituted, written
from calc.symbolic.worked import Line

# A root is cut after 40 digits; after a few of them and a power this many still agree.
_SAME = Fraction(1, 10**30)
_BITS = 128  # of a number that is searched for
_LARGEST = 10**60


@dataclass(slots=True)
class System:
    """Equations and what is known so far. ``rounded`` are letters whose value was cut off at a root; ``steps`` has each step as it
    was taken, with the equation as it stands in the question."""

    equations: tuple[Equation, ...]
    values: dict[str, Fraction]
    steps: list[tuple[Equation, Equation]]
    rounded: set[str]

    @classmethod
    def of(cls, equations: Iterable[Equation], values: Mapping[str, Fraction]) -> System:
        return cls(tuple(equations), dict(values), [], set())

    def reach(self, wanted: str) -> bool:
        """Go through equations with one unknown letter until ``wanted`` is known, or none is left."""
        waiting = list(self.equations)
        while wanted not in self.values:
            ready = next((e for e in waiting if self._step(e)), None)
            if ready is None:
                return False
            waiting.remove(ready)
        return True

    def _step(self, equation: Equation) -> bool:
        right = letters_of(equation.expr)
        unknown = [name for name in {equation.letter, *right} if name not in self.values]
        if unknown == [equation.letter] and equation.letter not in right:
            return self._take(equation.letter, equation.expr, equation, "")
        if len(unknown) != 1 or equation.letter not in self.values:
            return False
        return self._rearranged(equation, unknown[0], f"{equation.letter} = {equation.expr}, rearranged for {unknown[0]}")

    def _rearranged(self, equation: Equation, x: str, because: str) -> bool:
        return any(self._take(x, expr, equation, because) for expr in isolated(equation.expr, x, equation.letter))

    def _take(self, letter: str, expr: str, equation: Equation, because: str) -> bool:
        """The value of ``letter``, if it is positive and the equation holds with it."""
        at = Evaluation(self.values)
        try:
            value = at.of(parsed(expr))
            if letter != equation.letter and (value <= 0 or not self._holds(equation, letter, value)):
                return False
        except ZeroDivisionError:
            return False
        self.values[letter] = value
        if at.rounded or letters_of(expr) & self.rounded:
            self.rounded.add(letter)
        self.steps.append((Equation(letter, expr, because or equation.because), equation))
        return True

    def _holds(self, equation: Equation, letter: str, value: Fraction) -> bool:
        computed = Evaluation({**self.values, letter: value}).of(parsed(equation.expr))
        return same(computed, self.values[equation.letter])

    def through(self, wanted: str) -> bool:
        """Equations put into one another until ``wanted`` is the only unknown of one whose value is known, and that rearranged."""
        for equation in self.equations:
            if equation.letter in self.values:
                whole = self._inlined(equation, wanted)
                because = f"{whole.letter} = {whole.expr}, the lines of the question put together and rearranged for {wanted}"
                unknown = letters_of(whole.expr) - self.values.keys()
                if unknown == {wanted} and self._rearranged(whole, wanted, because):
                    return True
        return False

    def _inlined(self, equation: Equation, wanted: str) -> Equation:
        tree = parsed(equation.expr)
        for inner in reversed(self.equations):
            if inner.letter not in self.values and inner.letter not in (wanted, equation.letter):
                tree = substituted(tree, {inner.letter: parsed(inner.expr)})
        return Equation(equation.letter, written(tree), equation.because)

    def lines(self, wanted: Iterable[str], meanings: Mapping[str, tuple[str, str]]) -> tuple[Line, ...]:
        """The steps that ``wanted`` letters rest on, with unit and meaning of each letter."""
        needed, steps = set(wanted), []
        for equation, _ in reversed(self.steps):
            if equation.letter in needed:
                needed |= letters_of(equation.expr)
                steps.append(equation)
        return tuple(
            Line(e.letter, e.expr, *meanings[e.letter], e.because, self.values[e.letter], e.letter not in self.rounded)
            for e in reversed(steps)
        )


def same(a: Fraction, b: Fraction) -> bool:
    """Equal, up to the digits at which roots are cut off."""
    return a == b or abs(a - b) <= _SAME * max(abs(a), abs(b))


def value_of(equations: Sequence[Equation], values: Mapping[str, Fraction], wanted: str) -> Fraction | None:
    """The value of ``wanted``, if forward steps and rearrangements lead to it."""
    system = System.of(equations, values)
    return system.values[wanted] if system.reach(wanted) or system.through(wanted) else None


# -- whole numbers -----------------------------------------------------------------------------------------------------------------


def to_safe_side(value: Fraction, side: str) -> tuple[int, bool]:
    """A whole number from ``value``, and whether digits of a double were taken for it: 1023.9999999999999 is 1024, read again."""
    near = round(value)
    if near >= 1 and value != near and abs(value - near) <= min(Fraction(1, 10**14) * value, Fraction(1, 10**6)):
        return near, True
    return (math.ceil(value) if side == "up" else math.floor(value)), False


def divisors(number: int) -> list[int]:
    """Of a whole number, from 1 on."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({1, *low, *(number // n for n in low)})


Goal = Callable[[Fraction], Fraction | None]


# -- searching ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossing:
    """``value`` satisfies the goal, and ``beyond`` does not any more; ``at`` are the goal's values at both."""

    value: Fraction
    beyond: Fraction
    at: tuple[Fraction, Fraction]


def searched(
    equations: Sequence[Equation],
    values: Mapping[str, Fraction],
    wanted: str,
    goal: str,
    whole: str,
    allowed: Callable[[Mapping[str, Fraction]], bool] = lambda _: True,
) -> Crossing | None:
    """``wanted`` by bisection, where ``goal`` moves one way as it grows. Nothing where the goal is not met in between.

    A whole number is the last (or, rounded up, the first) that keeps to the goal; another number is found to 128 bits. Only where
    the values are ``allowed`` does an equation mean anything.
    """
    limit = values[goal]
    others = {name: value for name, value in values.items() if name != goal}

    def at(x: Fraction) -> Fraction | None:
        system = System.of(equations, {**others, wanted: x})
        return system.values[goal] if system.reach(goal) and allowed(system.values) else None

    low = Fraction(1) if whole else Fraction(1, 10**30)
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
    return None if last is None else _bisected(at, low, high, limit, last > first, whole)


def _bisected(at: Goal, low: Fraction, high: Fraction, limit: Fraction, grows: bool, whole: str) -> Crossing | None:
    """Between ``low`` and ``high``, on different sides of the limit."""

    def below(x: Fraction) -> bool:
        value = at(x)
        return value is not None and (value <= limit if grows else value >= limit)

    while (high - low > 1) if whole else (high - low > high / 2**_BITS):
        middle = (low + high) / 2
        middle = Fraction(math.floor(middle)) if whole else Fraction(round(middle * 2 ** (_BITS + 90)), 2 ** (_BITS + 90))
        low, high = (middle, high) if below(middle) else (low, middle)
    if below(high):
        low, high = high, high + 1
    # ``low`` is the last at which the goal is not passed.
    if whole == "up" and at(low) != limit:
        low, high = high, low
    here, there = at(low), at(high)
    return None if here is None or there is None else Crossing(low, high, (here, there))
