"""Recipes beside one another: what is derived of each, what is only stated, and the command that shows them."""

from __future__ import annotations

import json
from functools import cache

import pytest
from click.testing import CliRunner, Result

import calc
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.memory.per_parameter import document, gathered, precisions
from calc.options import PRECISIONS
from reports import cli

SIZES = {"d": 67, "f": 71}


@cache
def derived(precision: str, optimizer: str = "adamw") -> Derivation:
    return calc.derive(calc.load("mlp"), SIZES, cache=False, precision=precision, optimizer=optimizer)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["bytes-per-parameter", "mlp", "-d", "d=67", "-d", "f=71", *words])


def test_recipes_stand_beside_one_another() -> None:
    """16 bytes of a parameter in fp32, and 16 of other parts in bf16 with fp32 copies."""
    actual = gathered({name: derived(name) for name in ("fp32", "bf16-master")}, {})

    assert {"fp32": 16, "bf16-master": 16} == {r.precision: r.per_parameter for r in actual.recipes}
    assert [3, 4] == [len(r.terms) for r in actual.recipes]


def test_all_recipes_are_asked_for_unless_one_is() -> None:
    assert (PRECISIONS, ("bf16",)) == (precisions(None), precisions("bf16"))


def test_nothing_to_gather_is_the_first_refusal() -> None:
    """And devices that are none are refused."""
    with pytest.raises(BadInputError, match=r"^no bf16 here$"):
        gathered({}, {"bf16": "no bf16 here"})
    with pytest.raises(BadInputError, match=r"^0 devices cannot shard the state: give 1 or more$"):
        gathered({"fp32": derived("fp32")}, {}, 0)


def test_the_document_adds_up() -> None:
    """Terms times parameters and what is left over are the bytes; shares of ZeRO are exact fractions."""
    made = document(gathered({"bf16-master": derived("bf16-master")}, {"bf16": "not here"}, 64))
    (recipe,) = made["recipes"]

    assert recipe["bytes"] == sum(t["per_parameter"] * recipe["parameters"] + t["rest"] for t in recipe["terms"])
    assert {"stage_1": "67/16", "stage_2": "71/32", "stage_3": "1/4"} == recipe["sharded"]
    assert ({"bf16": "not here"}, 64) == (made["refused"], made["devices"])
    assert made["stated"]
    assert all(stated["source"] for stated in made["stated"])


def test_the_command_shows_the_recipe_that_is_asked_for() -> None:
    """16 bytes a parameter in fp32: a weight, a gradient and two moments."""
    data = json.loads(run("--precision", "fp32", "--json").stdout)

    assert ["fp32"] == [recipe["precision"] for recipe in data["recipes"]]
    assert 16 == data["recipes"][0]["per_parameter"]


def test_a_forward_alone_is_refused_in_a_line() -> None:
    result = run("--mode", "infer")

    assert 2 == result.exit_code
    assert "napkin: mode infer keeps no gradients and no optimizer state: use mode train\n" == result.stderr
