"""Specs with fields of the wrong kind and models that raise whatever can be raised: one line each, which names what is wrong."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from torch import nn

from calc.dimensions import Dim
from calc.errors import NapkinError, SizesError, SpecError
from calc.models.load import load
from calc.spec import Spec
from reports import cli
from tests.reports.inert import controls


class Odd(BaseException):
    """No ``Exception``, as generators and some test libraries have them."""


class Untold(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise Odd


class Liar:
    """Raises whenever it is looked at."""

    @property
    def __class__(self) -> type:
        raise ValueError("no class")

    def _raise(self, *_: object) -> Any:
        raise Odd("not now")

    __repr__ = __str__ = __len__ = __iter__ = __bool__ = __hash__ = __eq__ = __call__ = __getitem__ = _raise


class OddText(str):
    """A text that cannot be shown."""

    def __repr__(self) -> str:
        raise Odd("no words")

    __str__ = __repr__
    __format__ = __repr__


class OddMapping(Mapping[str, int]):
    """A mapping whose items cannot be had."""

    def __getitem__(self, _: str) -> int:
        raise Odd("no item")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")

    def __len__(self) -> int:
        return 3


class OddInt(int):
    """An integer that cannot be compared."""

    def __lt__(self, _: object) -> bool:
        raise Odd("no order")

    __gt__ = __le__ = __ge__ = __index__ = __mod__ = __lt__


WRONG: tuple[Any, ...] = (
    5, -1, 0, True, 2**70, 2.5, math.nan, math.inf, None, b"bytes", "", "text", "x" * 10_000, "\ud800", "\u202e\x1b[31m\n", "4*d",
    "B/0", "B**B", "B" + "+1" * 20_000, "(" * 300, "-" * 1_500 + "1", [], [1], (), (5,), ("B",), ("B", 5), (("B",),), ("Q",), {},
    {"B": 5}, {5: 5}, {"B": "B"}, {"B": None}, {"B": 2, "n": "n"}, {"B": 2, "n": "2*B", "d": "n/7"}, {"lambda": 3}, {"é": 3},
    {f"n{i}": f"n{i + 1}" for i in range(300)}, set(), frozenset({1}), object(), int, Dim, Dim(3), Dim("4*q"), Dim(None),
    Dim(3, multiple_of=0), Dim(3, multiple_of="Q"), Dim(3, at_most=5), Dim(3, at_most="("), Dim(3, plus="x"), Dim(3, meaning=5),
    Dim("B", tied=5), len, print, lambda: None, iter(()), sys, Ellipsis, Liar(), Odd(), OddText("x"), OddMapping(), OddInt(3),
)  # fmt: skip
GOOD: dict[str, Any] = {"name": "mine", "dims": {"B": 4, "n": 3}, "build": len, "inputs": len, "loss": len, "check_at": {"B": 2}}
FIELDS = tuple(field.name for field in fields(Spec))


def wrong(dice: random.Random) -> dict[str, Any]:
    """The fields of a spec, one to three of them random."""
    made = dict(GOOD)
    for name in dice.sample(FIELDS, dice.choice((1, 1, 2, 3))):
        made[name] = dice.choice(WRONG)
    if dice.random() < 0.5:
        made["dims"] = {"B": dice.choice(WRONG), dice.choice(("n", "d", "lambda", "é", "B")): dice.choice(WRONG)}
    return made


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Any]], str]:
    """Puts fields where a user's file makes a spec of them, and gives the name of that spec."""
    holder = ModuleType("fields_of_a_spec")
    monkeypatch.setitem(sys.modules, holder.__name__, holder)
    (tmp_path / "m.py").write_text("from calc import Spec\nimport fields_of_a_spec\nspec = Spec(**fields_of_a_spec.given)\n")

    def put(values: Mapping[str, Any]) -> str:
        holder.given = values
        return f"{tmp_path / 'm.py'}:spec"

    return put


def fuzz(count: int, seed: int, put: Callable[[Mapping[str, Any]], str]) -> None:
    """Each is loaded or refused in one line, and so it is by the command, with a size that it does not have."""
    dice, loaded = random.Random(seed), 0
    for number in range(count):
        name = put(wrong(dice))
        try:
            load(name)
            loaded += 1
        except NapkinError as error:
            message = str(error)
            assert "\n" not in message
            assert "m.py" in message, message[:300]
        result = CliRunner().invoke(cli.napkin, ["derive", name, "-d", "Q=3"])
        said = [line for line in result.stderr.rstrip("\n").split("\n") if not line.endswith(" …")]
        assert (result.exit_code, result.stdout, len(said)) == (2, "", 1), (seed, number, result.stderr[-500:], result.exc_info)
        assert len(said[0]) < 2_000
        assert controls(result.stderr) == []
        assert "a bug of Napkin" not in said[0], (seed, number, said)
    assert loaded > count // 50


@pytest.mark.slow
def test_a_hundred_specs_of_random_fields_are_loaded_or_refused(given: Callable[[Mapping[str, Any]], str]) -> None:
    fuzz(100, 1, given)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_specs_of_random_fields_are_loaded_or_refused(seed: int, given: Callable[[Mapping[str, Any]], str]) -> None:
    """Six thousand in all."""
    fuzz(1_000, seed, given)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", 5, "a spec's name must be a text, not int"),
        ("dims", [1], "spec 'mine' names no dimension: give dims={'B': 8, ...}"),
        ("dims", {f"n{i}": 3 for i in range(501)}, "spec 'mine' names 501 dimensions: give at most 500"),
        ("dims", {5: 4}, "spec 'mine': 5 cannot name a dimension: use letters, digits and _"),
        ("dims", {"B": None}, "spec 'mine': dims['B'] must be an integer, an expression such as \"4*d\", or a Dim, not NoneType"),
        (
            "dims", {"B": Dim(3, multiple_of=2.5)},
            "spec 'mine': multiple_of of dims['B'] must be an integer or the name of a dimension, not float",
        ),
        ("build", 3, "spec 'mine': build must be a function"),
        ("build", nn.Linear(3, 3), "spec 'mine': build must be a function of the sizes, not a module: build=lambda n: module"),
        ("optimizer", 3, "spec 'mine': optimizer must be a function, or left out"),
        ("source", None, "spec 'mine': source must be a text, not NoneType"),
        ("notes", 5, "spec 'mine': notes must be a tuple of texts, with no int in its place or in it"),
        ("notes", (5,), "spec 'mine': notes must be a tuple of texts, with no int in its place or in it"),
        ("trip_counts", "L", "spec 'mine': trip_counts must be a tuple of texts, as ('L',)"),
        ("trip_counts", ("layers",), "spec 'mine': trip_counts names 'layers', which is no dimension: use one of B, n"),
        ("may_specialize", "T", "spec 'mine': may_specialize must be a tuple of tuples of names, as (('T',),)"),
        ("may_specialize", ("T",), "spec 'mine': each of may_specialize must be a tuple of texts, as ('T',)"),
        ("check_at", 5, "spec 'mine': check_at must be a dict, not int"),
        ("check_at", {"B": "x"}, "spec 'mine': check_at must give an integer to each name, not str to 'B'"),
        ("unknown", {"memory.peak": 5}, "spec 'mine': unknown must give a text to each name, not int to 'memory.peak'"),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_kind_is_named_with_its_spec(field: str, value: Any, message: str) -> None:
    """As soon as the spec is made."""
    with pytest.raises(SpecError) as caught:
        Spec(**{**GOOD, field: value})

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("default", "message"),
    [
        ("B" + "+1" * 20_000, "{} 'B+1+1+1+1+1+1+1+1+…+1+1+1+1 (40001 characters)' is too long: write it with at most 2,000 characters"),
        (
            "(B+" * 300 + "1" + ")" * 300,
            "cannot read {} '(B+(B+(B+(B+(B+(B+…)))))))) (1201 characters)': write it with + - * / and dimension names",
        ),
        (
            "(" * 90 + "B" + "**8)" * 90,
            "{} '((((((((((((((((((…**8)**8) (451 characters)' is too large: sizes are integers from 1 to 2**63 - 1",
        ),
    ],
    ids=["20,000 terms", "300 brackets", "powers of powers"],
)  # fmt: skip
def test_an_expression_that_cannot_be_a_size_is_refused_at_once(default: str, message: str) -> None:
    """Neither deep nor large ones are followed to their end."""
    with pytest.raises(SpecError) as caught:
        Spec(**{**GOOD, "dims": {"B": 4, "n": default}}).sizes()

    assert str(caught.value) == message.format("the dimension expression")


def test_an_object_that_lies_about_its_type_is_none() -> None:
    """It is not read: ``isinstance`` would read it."""
    with pytest.raises(SpecError) as caught:
        Spec(**{**GOOD, "name": Liar()})

    assert str(caught.value) == "a spec's name must be a text, not Liar"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise GeneratorExit", "{file} line 4: GeneratorExit"),
        ("class Odd(BaseException): pass\nraise Odd('odd')", "{file} line 5: Odd: odd"),
        ("def f(): f()\nf()", "{file} line 4: RecursionError: maximum recursion depth exceeded"),
        ("class Untold(Exception):\n    def __str__(self): raise ValueError\nraise Untold", "{file} line 6: Untold"),
        ("spec = type('S', (), {'__class__': property(lambda s: 1 / 0)})()", "{file}: 'spec' is of type S, not a spec; write "
         "NAME = calc.Spec(name=…, dims=…, build=…, inputs=…, loss=…)"),
        ("def __getattr__(name): raise GeneratorExit(name)", "{file}:spec: GeneratorExit: spec"),
    ],
)  # fmt: skip
def test_whatever_a_users_file_raises_is_one_line(code: str, said: str, tmp_path: Path) -> None:
    """Errors that are no ``Exception``, that recurse, and that cannot say what they are."""
    file = tmp_path / "m.py"
    file.write_text(f"import math\n\n\n{code}\n")

    with pytest.raises(SpecError) as caught:
        load(f"{file}:spec")

    assert str(caught.value) == said.format(file=file)


@pytest.mark.parametrize(
    "error", [GeneratorExit(), SystemExit(0), Odd(), Untold(), StopIteration(), MemoryError()], ids=lambda e: type(e).__name__
)
def test_whatever_a_model_raises_is_one_line_that_names_it(error: BaseException) -> None:
    """While it is traced: with its line where there is one."""
    from calc.trace.model_errors import refusing

    with pytest.raises(SizesError, match=rf"^mine raised {type(error).__name__} at .*: (no message|0)$"), refusing(Spec(**GOOD), None):
        raise error
