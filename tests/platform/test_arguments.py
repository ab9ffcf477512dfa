"""What the functions of ``calc`` say to arguments of the wrong type: which one, what it is, and what to give."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest

import calc
from calc.derive.result import Derivation
from calc.errors import BadInputError, UnknownQuantityError
from calc.graph.step import Graph


class Hostile:
    """Raises on every access."""

    def __repr__(self) -> str:
        raise SystemExit("shown")

    __str__ = __format__ = __eq__ = __hash__ = __len__ = __iter__ = __repr__


@functools.cache
def spec() -> calc.Spec:
    return calc.load("linear")


@functools.cache
def graph() -> Graph:
    return calc.trace(spec(), optimizer="sgd")


@functools.cache
def derivation() -> Derivation:
    return calc.derive(graph())


@functools.cache
def derived() -> Derivation:
    return calc.derive(spec(), optimizer="sgd")


INTEGER = "sizes are integers from 1 to 2**63 - 1"
OF_A_MODULE = (
    ", or of a module calc.Spec('mine', {'B': 8}, lambda n: module, lambda n: (torch.randn(n.B, 512),), lambda module, x: module(x).sum())"
)
SPEC = f"give a spec, e.g. calc.load('gpt2'){OF_A_MODULE}"
MODEL = "give the name of a model, e.g. 'gpt2', 'hf:PATH' or 'FILE.py:NAME'"
SOURCE = f"give a graph or a spec, e.g. calc.load('gpt2'){OF_A_MODULE}"
SIZES = "give a dictionary of integers by dimension, e.g. {'B': 8}"
AXES = "give a dictionary of lists of integers by dimension, e.g. {'B': [1, 2, 4]}"
NAME = "give the name of a model, e.g. 'gpt2' or 'my_model.py:spec'"
NUMBER = "give a number, or a text with a unit, e.g. '80GB'"
PROGRESS = "progress = 5: give a function of one line of text, e.g. print, or leave it out"

REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "load a number": (lambda c: c.load(5), f"name = 5: {MODEL}"),
    "load nothing": (lambda c: c.load(None), f"name = None: {MODEL}"),
    "load bytes": (lambda c: c.load(b"gpt2"), f"name = b'gpt2': {MODEL}"),
    "trace a name": (lambda c: c.trace("linear"), f"spec = 'linear': {SPEC}"),
    "trace a graph": (lambda c: c.trace(graph()), f"spec is of type Graph: {SPEC}"),
    "trace pairs": (lambda c: c.trace(spec(), [("B", 2)]), f"sizes is of type list: {SIZES}"),
    "trace another key": (lambda c: c.trace(spec(), {1: 2}), "a key of sizes = 1: give the name of a dimension, e.g. 'B'"),
    "trace with a word for the cache": (lambda c: c.trace(spec(), cache="no"), "cache = 'no': give True or False"),
    "trace with progress of a number": (lambda c: c.trace(spec(), progress=5), PROGRESS),
    "trace with an option of a number": (lambda c: c.trace(spec(), mode=5), "unknown mode 5: use one of train, eval, infer"),
    "trace with an option of a list": (lambda c: c.trace(spec(), attention=[]), "unknown attention of type list: use one of fused, math"),
    "trace with an option that raises": (
        lambda c: c.trace(spec(), mode=Hostile()), "unknown mode of type Hostile: use one of train, eval, infer"),
    "trace with a count that is none": (lambda c: c.trace(spec(), accumulation=True), "accumulation = True: give an integer from 1 to 64"),
    "trace with a count of digits": (
        lambda c: c.trace(spec(), accumulation=10**5000), "accumulation is of 16,610 bits: give an integer from 1 to 64"),
    "trace with checkpointing of a number": (
        lambda c: c.trace(spec(), checkpointing=7), "unknown checkpointing 7: use none, block, block/2 (every second block) or attention"),
    "derive nothing": (lambda c: c.derive(None), f"source = None: {SOURCE}"),
    "derive a name": (lambda c: c.derive("gpt2", {"B": "8"}), f"source = 'gpt2': {SOURCE}"),
    "derive JSON": (lambda c: c.derive({"kind": "napkin graph"}), f"source is of type dict: {SOURCE}"),
    "derive the class": (lambda c: c.derive(calc.Spec), f"source is of type type: {SOURCE}"),
    "derive a graph with options": (
        lambda c: c.derive(graph(), mode="eval"), "a graph has its own options: leave them out, or derive from a spec"),
    "derive at a text": (lambda c: c.derive(spec(), {"B": "8"}), f"B = '8' is not an integer: {INTEGER}"),
    "derive at true": (lambda c: c.derive(spec(), {"B": True}), f"B = True is not an integer: {INTEGER}"),
    "derive at a double": (lambda c: c.derive(graph(), {"B": 2.0}), f"B = 2.0 is not an integer: {INTEGER}"),
    "derive below zero": (lambda c: c.derive(spec(), {"B": -1}), f"B = -1 is not positive: {INTEGER}"),
    "derive beyond": (lambda c: c.derive(spec(), {"B": 2**63}), f"B is too large (about 10**19): {INTEGER}"),
    "derive at what raises": (lambda c: c.derive(spec(), {"B": Hostile()}), f"B is of type Hostile, not an integer: {INTEGER}"),
    "derive at no key": (lambda c: c.derive(spec(), {None: 1}), "a key of sizes = None: give the name of a dimension, e.g. 'B'"),
    "a value at a text": (lambda c: derivation()["memory.peak"].at(B="x"), f"B = 'x' is not an integer: {INTEGER}"),
    "a value at a double": (lambda c: derivation()["memory.peak"].at(B=1.5), f"B = 1.5 is not an integer: {INTEGER}"),
    "a value at a number": (lambda c: derivation()["memory.peak"].at(8), f"sizes = 8: {SIZES}"),
    "other sizes of a number": (lambda c: derivation().at_sizes(5), f"sizes = 5: {SIZES}"),
    "holding at pairs": (lambda c: derivation().holds_at([("B", 1)]), f"sizes is of type list: {SIZES}"),
    "usual sizes of too few": (lambda c: derivation().usual({"B": 1}, ["B"]), "sizes has no D: give all of B, D, K"),
    "usual sizes of a word": (lambda c: derivation().usual(derivation().sizes, "B"), "free = 'B': give a list of names, e.g. ['B']"),
    "check nothing": (lambda c: c.check(None), "derivation = None: give what calc.derive returns"),
    "check a spec": (lambda c: c.check(spec()), "derivation is of type Spec: give what calc.derive returns"),
    "check on a number": (lambda c: c.check(derived(), device=5), "device = 5: give 'cpu' or 'cuda'"),
    "check from a negative seed": (lambda c: c.check(derived(), seed=-1), "seed = -1: give an integer from 0 to 4294967295"),
    "check from a seed of True": (lambda c: c.check(derived(), seed=True), "seed = True: give an integer from 0 to 4294967295"),
    "check at a text": (lambda c: c.check(derived(), B="x"), f"B = 'x' is not an integer: {INTEGER}"),
    "check with progress of a number": (lambda c: c.check(derived(), progress=5), PROGRESS),
    "ask a number": (lambda c: c.ask(5), "question = 5: give the name of a question, e.g. 'training-time'"),
    "ask with nothing": (lambda c: c.ask("training-time", parameters=None), f"parameters = None: {NUMBER}"),
    "ask with what raises": (lambda c: c.ask("training-time", parameters=Hostile()), f"parameters is of type Hostile: {NUMBER}"),
    "ask with progress of a number": (lambda c: c.ask("training-time", progress=5), PROGRESS),
    "ask about a spec": (lambda c: c.ask("largest-batch", model=spec(), memory="80GB"), f"model is of type Spec: {NAME}"),
    "sweep a spec": (lambda c: c.sweep(spec(), {"B": [1]}), f"model is of type Spec: {NAME}"),
    "sweep a derivation by keywords": (lambda c: c.sweep(derivation(), B=[1, 2]), f"model is of type Derivation: {NAME}"),
    "sweep by keywords": (lambda c: c.sweep("linear", B=[1, 2]), f"sizes = None: {AXES}"),
    "sweep a letter": (lambda c: c.sweep("linear", "B"), f"sizes = 'B': {AXES}"),
    "sweep a generator": (
        lambda c: c.sweep("linear", {"B": (i for i in range(3))}), "B is of type generator: give a list of its sizes, e.g. [1, 2, 4]"),
    "sweep a text": (lambda c: c.sweep("linear", {"B": "12"}), "B = '12': give a list of its sizes, e.g. [1, 2, 4]"),
    "sweep a long range": (lambda c: c.sweep("linear", {"B": range(1, 10**18)}), "B has more than 20,000,000 sizes: give fewer"),
    "sweep an endless range": (lambda c: c.sweep("linear", {"B": range(1, 10**30)}), "B has more than 20,000,000 sizes: give fewer"),
    "sweep no range": (lambda c: c.sweep("linear", {"B": range(0)}), "B has no sizes: give at least one"),
    "sweep a quantity": (
        lambda c: c.sweep("linear", {"B": [1]}, "memory.peak"), "quantities = 'memory.peak': give a list of names, e.g. ['memory.peak']"),
    "sweep numbers": (lambda c: c.sweep("linear", {"B": [1]}, [5]), "an item of quantities = 5: give a name, e.g. 'memory.peak'"),
    "sweep listed by a word": (lambda c: c.sweep("linear", {"B": [1]}, listed="yes"), "listed = 'yes': give True or False"),
    "gradients of a name": (lambda c: c.gradients("linear"), f"spec = 'linear': {SPEC}"),
    "gradients at a number": (lambda c: c.gradients(spec(), 5), f"sizes = 5: {SIZES}"),
    "gradients with progress of a number": (lambda c: c.gradients(spec(), progress=5), PROGRESS),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument_is_one_line_that_names_it(case: str) -> None:
    """The argument, what was given, and what to give."""
    call, message = REFUSED[case]
    with pytest.raises(BadInputError) as refusal:
        call(calc)

    assert str(refusal.value) == message


WRONG: list[Any] = [None, 5, 2.5, True, b"x", "x", "", [], {}, (), set(), object(), Hostile(), lambda: 0, Exception, 10**5000, os.devnull]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in calc.__all__ if name not in ("NapkinError", "Progress", "Spec", "Dim")])
def test_no_public_function_raises_what_is_not_ours(name: str) -> None:
    """Whatever its first two arguments are, and what comes by a name."""
    function = getattr(calc, name)
    for first in [*WRONG, "linear", "training-time", spec(), graph(), derivation()]:
        for second in WRONG:
            for call in (
                lambda f=first, s=second: function(f, s),
                lambda f=first, s=second: function(f, {"B": s}),
                lambda f=first, s=second: function(f, progress=s),
                lambda f=first, s=second: function(f, optimizer=s),
            ):
                message = refusal(call)
                assert "\n" not in message


def refusal(call: Callable[[], Any]) -> str:
    """What a call says where it is refused: by Napkin, or by Python where a function takes fewer arguments, or none of this name."""
    try:
        call()
    except calc.NapkinError as error:
        return str(error)
    except TypeError as error:
        if "argument" not in str(error):
            raise
    return ""


def test_all_that_is_public_is_there() -> None:
    """Each name of ``calc.__all__``."""
    assert "derive" in calc.__all__
    assert [] == [name for name in calc.__all__ if not hasattr(calc, name)]


@pytest.mark.parametrize(("name", "shown"), [(5, "5"), (None, "None"), (["a"], "of type list"), ("x", "'x'"), ("x" * 99, f"'{'x' * 40}…")])
def test_a_quantity_that_is_none_is_refused_with_those_there_are(name: Any, shown: str) -> None:
    """Whatever stands in the place of its name."""
    with pytest.raises(UnknownQuantityError) as refusal:
        derivation()[name]

    assert str(refusal.value) == f"unknown quantity {shown}: use one of {', '.join(derivation())}"
