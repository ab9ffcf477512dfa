"""Two derivations beside one another: a difference is what a change does, in closed form, and its terms add up to it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import calc
from calc.derive.compare import Comparison, compare, document
from calc.derive.result import Derivation
from calc.symbolic.algebra import evaluate_text
from reports import cli

SIZES = {"B": 2, "T": 5, "d": 24, "h": 6, "k": 4, "f": 29, "L": 3, "V": 31}


@pytest.fixture(scope="module")
def grouped() -> Derivation:
    return calc.derive(calc.load("llama3-8b"), {**SIZES, "g": 2})


@pytest.fixture(scope="module")
def full(grouped: Derivation) -> Derivation:
    """As many key heads as query heads; derived once, with the others."""
    return calc.derive(calc.load("llama3-8b"), {**SIZES, "g": 6})


def require_sums(comparison: Comparison) -> None:
    """Each difference is the sum of its terms, and each closed form gives its value at the shared sizes."""
    for change in comparison.changes:
        if change.value is None:
            assert change.note
            continue
        assert change.terms == () or sum(term.value for term in change.terms) == change.value
        for expr, value in [(change.expr, change.value), *((t.expr, t.value) for t in change.terms)]:
            assert expr is None or evaluate_text(expr, comparison.same) == value


@pytest.mark.slow
def test_grouping_key_heads_is_a_difference_in_two_projections(grouped: Derivation, full: Derivation) -> None:
    """2 projections x 3 layers x d x (2 - 6) x k: -8*L*d*k, a half at each of them."""
    comparison = compare(full, grouped)
    (change,) = (c for c in comparison.changes if c.quantity == "parameters")

    require_sums(comparison)
    assert comparison.sizes == {"g": (6, 2)}
    assert (change.expr, change.value) == ("-8*L*d*k", -8 * 3 * 24 * 4)
    assert [t.module_path.rpartition("self_attn.")[2] for t in change.terms] == ["k_proj.weight", "v_proj.weight"]
    assert [t.expr for t in change.terms] == ["-4*L*d*k", "-4*L*d*k"]


@pytest.mark.slow
def test_the_other_way_round_it_is_the_opposite(grouped: Derivation, full: Derivation) -> None:
    """Right less left."""
    there, back = compare(full, grouped), compare(grouped, full)

    assert any(c.value for c in there.changes)
    assert [c.value for c in there.changes] == [None if c.value is None else -c.value for c in back.changes]


@pytest.mark.slow
def test_what_is_compared_with_itself_differs_in_nothing(grouped: Derivation) -> None:
    comparison = compare(grouped, grouped)

    assert (comparison.sizes, comparison.options) == ({}, {})
    assert {c.value for c in comparison.changes} <= {0, None}
    assert all(c.terms == () for c in comparison.changes)


def test_what_is_part_of_neither_step_is_not_compared() -> None:
    """Steps in fp32 have no copies of the weights; beside a step that has them, there are none on this side."""
    copied = calc.derive(calc.load("mlp"), precision="bf16-master")
    both, one = (compare(calc.derive(calc.load("mlp")), right) for right in (calc.derive(calc.load("mlp")), copied))

    assert "master_weights.bytes" not in [change.quantity for change in both.changes]
    (change,) = (change for change in one.changes if change.quantity == "master_weights.bytes")
    assert (change.left, change.right) == (None, copied["master_weights.bytes"].value)


def test_another_optimizer_differs_in_its_state() -> None:
    """AdamW keeps two moments of 4 bytes for each parameter, and a step of 4 bytes for each of the four tensors: 8·N + 16."""
    sizes = {"B": 5, "d": 7, "f": 11, "K": 3}
    one, other = (calc.derive(calc.load("mlp"), sizes, optimizer=name) for name in ("adamw", "sgd"))
    comparison = compare(one, other)
    (change,) = (c for c in comparison.changes if c.quantity == "optimizer_state.bytes")
    parameters = 7 * 11 + 11 + 11 * 3 + 3

    require_sums(comparison)
    assert comparison.options == {"optimizer": ("adamw", "sgd")}
    assert change.value == -(8 * parameters + 4 * 4)
    assert change.expr == "-8*K*f - 8*K - 8*d*f - 8*f - 16"


@pytest.mark.slow
def test_each_total_is_compared_by_part_with_shares() -> None:
    """GPT-2 of 2 layers at half of the tokens: products of attention take a quarter, all other matmuls a half, so shares of those grow.
    The parts of a quantity add up to it on each side; the document has them all."""
    sizes = {"B": 3, "d": 10, "h": 5, "f": 29, "L": 2, "V": 31, "C": 14}
    sides = [calc.derive(calc.load("gpt2"), {**sizes, "T": tokens}) for tokens in (14, 7)]
    comparison = compare(*sides)
    tables = {table.quantity: table for table in comparison.by_part}
    forward = tables["flops.forward.matmul"]
    values = {row.part: row.values for row in forward.parts}

    assert values["query keyᵀ"] == values["probs value"] == tuple(2 * 2 * 3 * tokens**2 * 10 for tokens in (14, 7))
    assert values["feed-forward"] == tuple(2 * 2 * 2 * 3 * tokens * 10 * 29 for tokens in (14, 7))
    assert values["head"] == tuple(2 * 3 * tokens * 10 * 31 for tokens in (14, 7))
    rows = {row.part: [forward.share(row, side) for side in (0, 1)] for row in forward.parts}
    assert rows["query keyᵀ"] == [Fraction(row, whole) for row, whole in zip(values["query keyᵀ"], forward.values, strict=True) if whole]
    for name, table in tables.items():
        assert table.values == tuple(side[name].value for side in sides)
        assert [sum(row.values[side] for row in table.parts) for side in (0, 1)] == list(table.values)
    assert {"parameters", "activations.bytes", "memory.peak", "flops.step.total", "bytes_moved.forward"} <= {*tables}
    written = {name: quantity["parts"] for name, quantity in document(comparison)["quantities"].items()}
    assert {name for name, parts in written.items() if parts} == {*tables}
    assert written["flops.forward.matmul"][1] == {
        "part": "query keyᵀ", "expr": "2*B*T**2*d*L", "values": list(values["query keyᵀ"]),
        "shares": [str(share) for share in rows["query keyᵀ"]],
    }  # fmt: skip


def test_other_models_are_compared_place_by_place() -> None:
    """What one side has nothing of is said."""
    comparison = compare(calc.derive(calc.load("mlp")), calc.derive(calc.load("cruncher"), optimizer="adamw"))
    (change,) = (c for c in comparison.changes if c.quantity == "parameters")

    require_sums(comparison)
    assert comparison.title.startswith("mlp → cruncher: ")
    assert "K 10 → none" in comparison.title
    assert {t.because for t in change.terms} == {"elements → nothing", "nothing → elements"}


# -- the command ---------------------------------------------------------------------------------------------------------------------------


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["compare", *words])


BIASED = """
import torch
from calc import Spec

class Bias(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(1, d))

    def forward(self, x):
        return (x + self.bias).square().sum()

spec = Spec(name="biased", dims={"B": 3, "d": 5}, build=lambda n: Bias(n.d), inputs=lambda n: (torch.ones(n.B, n.d),),
            loss=lambda model, x: model(x))
"""


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A gradient that is summed over the batch, which at a batch of one is not a sum: a special case."""
    file = tmp_path_factory.mktemp("contrast") / "biased.py"
    file.write_text(BIASED, encoding="utf-8")
    return f"{file}:spec"


@pytest.mark.slow
def test_a_case_in_force_on_both_sides_is_compared_in_its_closed_forms(biased: str) -> None:
    """At a batch of one no choice between cases is left in any closed form, and the case is named."""
    done = run(biased, "d=7", "B=1", "--json")
    document = json.loads(done.stdout)

    assert document["cases"] == [["B = 1"], ["B = 1"]]
    assert "Piecewise" not in done.stdout
    assert 0 == run(biased, "d=7", "B=1").exit_code
    assert "the closed forms of both sides are those for B = 1" in run(biased, "d=7", "B=1").stdout


def test_sides_of_different_cases_are_compared_and_said_to_be(biased: str, tmp_path: Path) -> None:
    """(B - 1)·d additions in the backward of the right side, which the left one does not run; also as a page."""
    document = json.loads(run(f"{biased} B=1", f"{biased} B=4", "--json", "-o", str(tmp_path)).stdout)
    change = document["quantities"]["flops.backward.elementwise"]["difference"]

    assert document["cases"] == [["B = 1"], []]
    assert evaluate_text(change["expr"], {"d": 5}) == change["value"]
    words = "the closed form of the left side is the one for B = 1, of the right side the general one: the step runs differently there"
    assert words in run(f"{biased} B=1", f"{biased} B=4").stdout
    assert f"T{words[1:]}." in (tmp_path / "compare.md").read_text(encoding="utf-8")


def test_a_right_side_without_a_model_is_the_left_one_changed() -> None:
    """And what is set for both is set for both."""
    short, long = run("mlp B=5", "f=7", "d=3", "K=2", "--json"), run("mlp B=5", "mlp B=5 f=7", "d=3", "K=2", "--json")
    body = json.loads(short.stdout)

    assert short.stdout == long.stdout
    assert body["same"] == {"B": 5, "d": 3, "K": 2}
    assert body["sizes"] == {"f": [12, 7]}  # 4·d by default
    assert body["quantities"]["parameters"]["difference"] == {"expr": "-5*K - 5*d - 5", "value": -30}  # (d + 1 + K)·(7 - 12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mlp", "nothing"), None),
        (("", "mlp"), "a side is empty: write a model, as in 'gpt2 B=8'"),
        (("mlp", "mlp B"), "cannot read 'B': write key=value, as in B=8 or optimizer=sgd"),
        (("mlp 'B=3", "mlp"), 'cannot read "mlp \'B=3": No closing quotation'),
        (("mlp", "mlp", "--explain", "nothing"), "no quantity 'nothing': see napkin list quantities"),
        (("mlp", "optimizer=sdg"), None),
    ],
)
def test_what_cannot_be_compared_is_one_line(words: tuple[str, ...], said: str | None) -> None:
    result = run(*words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith("napkin: ")
    if said is not None:
        assert result.stderr.splitlines()[-1] == f"napkin: {said}"
