"""``napkin einsum``: counts, order and gradients as text and as JSON, a real run on request, one line for what is no pattern."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from calc.mathematics.einsum import check as check_
from reports import cli


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["einsum", *words])


def test_a_contraction_is_run_on_request() -> None:
    """The backward's two products are 2·2·2·3·5·7 = 840 FLOP."""
    done = run("b s d, d f -> b s f", "b=2", "s=3", "d=5", "f=7", "--check")

    assert 0 == done.exit_code
    assert "exact: FLOP of the matmuls of the backward: derived 840, measured 840 " in done.stdout


def test_json_holds_the_same_with_null_for_what_has_no_size() -> None:
    """bf16 has 2 bytes an element; without b there is no value and a reason."""
    made = json.loads(run("b d, d f -> b f", "d=5", "f=7", "--dtype", "bf16", "--json").stdout)

    assert {"expr": "2*b*d*f", "value": None} == made["flops"]["total"]
    assert {"expr": "2*b*d + 2*d*f + 2*b*f", "value": None} == made["bytes"]
    assert (None, "no size given for b") == (made["intensity"]["value"], made["intensity"]["because"])
    assert ["b", 7] == made["result"]["shape"]
    assert made["checks"] is None


def test_a_run_that_disagrees_is_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a gradient with the wrong sign."""
    right = check_.backward
    monkeypatch.setattr(check_, "backward", lambda *words: -right(*words))

    actual = run("b s -> b", "b=2", "s=3", "--check")

    assert (1, True) == (actual.exit_code, "failed: gradient of A" in actual.stdout)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["b s"], "napkin: cannot read the pattern 'b s': write operands, one arrow and the result"),
        (["->", "b=3"], "napkin: the pattern '->' has no dimension 'b': it has none"),
        (["b s -> b", "--chek"], "napkin: cannot read '--chek': write a dimension as NAME=INTEGER, e.g. B=8"),
        (["b s -> b", "b=-3"], "napkin: b = -3 is not positive: sizes are integers from 1 to 2**63 - 1"),
        (["b s -> b", "z=3"], "napkin: the pattern 'b s -> b' has no dimension 'z': it has b, s"),
        (["b \x1b[31m\n -> b"], "napkin: cannot read the pattern 'b \\x1b[31m\\n -> b': '\\x1b' is not allowed: "),
        (["b s -> b", "--check"], "napkin: a run needs every size: give b, s too, e.g. b=7"),
        (["b s -> b", "--dtype", "int4"], "napkin: int4 has elements smaller than a byte: choose a dtype of 8 bits or more"),
        (["b s -> b", "--reduce", "median"], "napkin: unknown reduction 'median': did you mean mean? (sum, mean, max, min, prod)"),
    ],
)
def test_what_cannot_be_counted_is_one_line(words: list[str], message: str) -> None:
    """And exit status 2, with nothing on standard output."""
    actual = run(*words)

    assert (2, "", 1) == (actual.exit_code, actual.stdout, len(actual.stderr.splitlines()))
    assert actual.stderr.startswith(message)
