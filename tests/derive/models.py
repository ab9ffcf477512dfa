"""The models of these tests, random sizes for them, and exact readings of display trees that share no code with ours."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction as Rational
from typing import Any

from calc.derive.result import Derivation
from calc.symbolic import expression
from calc.symbolic.expression import Expression

# name, optimizer, attention
CASES = [
    ("linear", "adamw", "fused"),
    ("two-layer", "sgd", "fused"),
    ("mlp", "adamw", "fused"),
    ("cruncher", "spec", "fused"),
    ("gpt2", "adamw", "fused"),
    ("gpt2", "sgd", "math"),
]

# Distinct primes where the model allows them.
SMALL: dict[str, dict[str, int]] = {
    "linear": {"B": 3, "D": 7, "K": 5},
    "two-layer": {"B": 3, "D": 7, "K": 5},
    "mlp": {"B": 3, "d": 7, "f": 11, "K": 5},
    "cruncher": {"B": 3, "D": 7, "L": 5},
    "gpt2": {"B": 2, "T": 7, "d": 15, "h": 3, "f": 13, "L": 5, "V": 17, "C": 11},
}


def some_sizes(result: Derivation, seed: int) -> dict[str, int]:
    """Random sizes that the model takes: all at least 2 and none alike, since equal sizes may be a special case."""
    generator = random.Random(seed)
    name = result.model
    sizes = dict(zip(SMALL[name], generator.sample(range(2, 400), len(SMALL[name])), strict=True))
    if name == "gpt2":
        sizes["d"] = sizes["h"] * generator.choice([401, 409, 419])
        sizes["C"] = 1000 + sizes["T"]
    return sizes


def at(result: Derivation, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Every quantity at ``sizes``: integers, and nothing where one is unknown."""
    return {name: None if result[name].text is None else result[name].at(**sizes) for name in result}


def exactly(tree: Expression, sizes: Mapping[str, int]) -> Rational:
    """The tree's value by its definition, in fractions."""
    match tree:
        case expression.Number(number):
            return Rational(number)
        case expression.Name(name):
            return Rational(sizes[name])
        case expression.Sum(terms):
            return sum((exactly(t, sizes) for t in terms), start=Rational(0))
        case expression.Product(factors):
            product = Rational(1)
            for factor in factors:
                product *= exactly(factor, sizes)
            return product
        case expression.Power(base, expression.Number(exponent)):
            return Rational(exactly(base, sizes) ** exponent)
        case expression.Quotient(top, bottom):
            return exactly(top, sizes) / exactly(bottom, sizes)
        case expression.Negative(body):
            return -exactly(body, sizes)
        case expression.OverLayers(_, upper, body):
            return exactly(upper, sizes) * exactly(body, sizes)
        case expression.Labelled(body, _):
            return exactly(body, sizes)
        case expression.FunctionCall("Max", items):
            return max(exactly(item, sizes) for item in items)
    raise AssertionError(tree)
