"""Saved graphs that somebody damaged or forged: each loads and derives, or is refused in one line, and none takes long.

Half of them have the digest of what they are, so that whatever is wrong with them is found by what reads and derives them.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

import calc
from calc.errors import NapkinError
from calc.graph import serialize

MODELS = ("linear", "two-layer")
INPUTS, QUICK = 2600, 50  # of each model
SECONDS = 20  # a guard against what hangs, on a machine that has other things to do

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10**50, 10**4000, 2**63, 1.5, float("inf"), "", "x", "junk", "B", "D", "B*D", "B/0", "T/0", "B**",
    "B**2", "9**9**9", "(B + D)**64", "floor(B/2)", "Max()", "Mod(B, 0)", "-B", "B//(B - 1)", "B < 2", "not B", "sin(B)", "B.real", "B[0]",
    "__import__('os')", "lambda: 0", "(" * 200, "x" * 5000, "backward", "optimizer", "aten.mm.default", "aten.view.default", "no.such.op",
    "\ud800", [], {}, [7], [[]], {"t": 0}, {"t": 10**6}, {"t": "x"}, ["a", "b", "c", "d"],
]  # fmt: skip
PIECES = ("", '"', "{", "]", ",", "0", "null", "9" * 5000, "\\u0000", "[" * 2000, "NaN", "1e999", "-")


@functools.cache
def saved(model: str) -> str:
    return serialize.dumps(calc.trace(calc.load(model), optimizer="sgd"))


def places(node: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of every value in a tree but its root."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield (*place, key)
        yield from places(node[key], (*place, key))


@functools.cache
def all_places(model: str) -> list[tuple[str | int, ...]]:
    return list(places(json.loads(saved(model))))


def at(tree: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def mutated(model: str, draw: random.Random) -> str:
    """The text of a graph with a few values replaced, removed or moved, or with its text damaged."""
    if draw.random() < 0.2:
        return damaged(saved(model), draw)
    tree = json.loads(saved(model))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place = draw.choice(all_places(model))
        try:
            parent = at(tree, place[:-1])
            match draw.randrange(6):
                case 0:
                    del parent[place[-1]]
                case 1:
                    parent[place[-1]] = copy.deepcopy(at(tree, draw.choice(all_places(model))))
                case 2 if isinstance(parent, list):
                    parent.insert(draw.randrange(len(parent) + 1), copy.deepcopy(parent[place[-1]]))
                case _:
                    parent[place[-1]] = copy.deepcopy(draw.choice(VALUES))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return sealed(tree) if draw.random() < 0.6 else json.dumps(tree)


def damaged(text: str, draw: random.Random) -> str:
    start = draw.randrange(len(text))
    end = min(len(text), start + draw.choice((0, 1, 1, 20, 1000)))
    return text[:start] + draw.choice(PIECES) + text[end:] if draw.random() < 0.7 else text[:start]


def sealed(tree: Any) -> str:
    """Data as they would be saved: with the digest of what they are."""
    body = json.dumps({key: value for key, value in tree.items() if key != "sha256"}, separators=(",", ":"))
    return f'{{"sha256":"{hashlib.sha256(body.encode()).hexdigest()}",{body[1:]}'


def outcome(text: str) -> str:
    """What becomes of a graph: derived, and evaluated at other sizes, or the line that refuses it."""
    try:
        derivation = calc.derive(serialize.loads(text))
        for name in derivation:
            if derivation[name].text is not None:
                assert derivation[name].at(**{dim.name: dim.value + 1 for dim in derivation.dims[:1] if not dim.tied}) >= 0
    except NapkinError as error:
        return str(error)
    return ""


def run(model: str, count: int, seed: int) -> int:
    """How many of ``count`` graphs derive."""
    draw, derived = random.Random(seed), 0
    for number in range(count):
        text = mutated(model, draw)
        began = time.monotonic()
        message = outcome(text)
        assert "\n" not in message, (number, message)
        assert time.monotonic() - began < SECONDS, number
        derived += not message
    return derived


@pytest.mark.parametrize("model", MODELS)
def test_a_sample_of_damaged_graphs(model: str) -> None:
    """A result, or one line."""
    assert 0 < run(model, QUICK, 0) < QUICK


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_thousands_of_damaged_graphs(model: str) -> None:
    """The same of many more."""
    assert 0 < run(model, INPUTS, 1) < INPUTS
