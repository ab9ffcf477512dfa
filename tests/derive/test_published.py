"""Tables of publications beside exact counts: each cell's value by hand, each difference split into terms without a rest."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest

import calc
from calc.derive.published import ratios
from calc.derive.published.compare import ComparedTable, compare, document
from calc.derive.published.tables import TABLES
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.symbolic.exact import evaluate_text

B, T, L, V, C = 2, 11, 3, 47, 13
H, K = 5, 7
D, F = H * K, 4 * H * K


@pytest.fixture(scope="module")
def gpt() -> Derivation:
    return calc.derive(calc.load("gpt2"), {"B": B, "T": T, "L": L, "V": V, "C": C, "h": H, "d": D})


def differences(table: ComparedTable, column: int) -> Mapping[str, Fraction | None]:
    """Operation → printed − exact."""
    return {row.operation: cell.difference for row in table.rows if (cell := row.cells[column]) is not None}


def test_kaplans_table_differs_by_lookups_half_of_attention_biases_and_norms(gpt: Derivation) -> None:
    """Per token: 4·d for embeddings that do no arithmetic, 2·L·T·d of 4·L·T·d; biases of each matmul, and norms in no row."""
    table = compare(TABLES["kaplan-1"], gpt)

    assert {name: off for name, off in differences(table, 0).items() if off} == {
        "Attention: QKV": -3 * D * L, "Attention: project": -D * L, "Feedforward": -5 * D * L, "Total (non-embedding)": -9 * D * L,
        "In no row": -4 * D * L - 2 * D,
    }  # fmt: skip
    (bias,) = table.rows[1].cells[0].differences or ()
    assert bias.because == "the table has no such term: transformer.h.*.attn.c_attn.bias"
    assert {name: off for name, off in differences(table, 1).items() if off} == {
        "Embed": 4 * D, "Attention: mask": -2 * L * T * D, "Total (non-embedding)": -2 * L * T * D,
    }  # fmt: skip
    printed = {row.operation: row.cells[1].printed for row in table.rows if row.cells[1] is not None}
    assert printed["Total (non-embedding)"] == 2 * 12 * L * D**2 + 2 * L * T * D
    assert printed["De-embed"] == 2 * D * V
    layer = ("Attention: QKV", "Attention: mask", "Attention: project", "Feedforward")
    assert sum(printed[name] for name in layer) == printed["Total (non-embedding)"]  # equation 2.2


@pytest.mark.parametrize("name", TABLES)
def test_terms_of_a_difference_add_up_to_it_and_each_has_a_reason(name: str, gpt: Derivation) -> None:
    """Of every cell, where the sizes are put in."""
    cells = [(row.operation, cell) for row in compare(TABLES[name], gpt).rows for cell in row.cells if cell is not None]
    assert any(cell.differences for _, cell in cells)
    for operation, cell in cells:
        assert cell.differences is not None
        assert cell.difference == sum(Fraction(evaluate_text(d.expr, gpt.sizes)) for d in cell.differences), operation
        assert all(d.because and "rule" not in d.because for d in cell.differences)


def test_cells_of_the_appendix_add_up_to_its_total(gpt: Derivation) -> None:
    """By hand: 2·B·T·d·V twice, 24·B·T·d² and 4·B·T²·d and 3·h·B·T² a layer; only lookup and softmax differ from what runs."""
    table = compare(TABLES["chinchilla-f"], gpt)
    printed = {row.operation: row.cells[0].printed for row in table.rows if row.cells[0] is not None}
    *operations, total, backward = printed
    head, softmax = 2 * B * T * D * V, 3 * H * B * T**2 * L

    assert sum(printed[name] for name in operations) == printed[total] == 2 * head + L * (24 * B * T * D**2 + 4 * B * T**2 * D) + softmax
    assert printed[backward] == 2 * printed[total]
    assert differences(table, 0)[total] == head + softmax
    assert differences(table, 0)["Attention: softmax"] == softmax - 6 * H * B * T**2 * L + 2 * H * B * T * L


def test_both_accounts_of_the_article_and_the_count_between_them(gpt: Derivation) -> None:
    """2·N + 2·L·T·d has no head and half of attention; the other has a lookup as a matmul and the softmax."""
    table = compare(TABLES["casson"], gpt)
    off = differences(table, 0)

    assert [*off.values()] == [-2 * L * T * D - 2 * D * V, 2 * D * V + 3 * H * T * L]
    because = {d.expr: d.because for row in table.rows if (cell := row.cells[0]) for d in cell.differences or ()}
    assert because["-2*V*d"] == "the table has no such term: x Wᵀ (head)"  # of the products called x Wᵀ, the head's


def test_memory_of_the_article_and_zeros_rule(gpt: Derivation) -> None:
    """24·B·T·d·L bytes; nanoGPT's weights have no biases: 9·d a layer fewer vectors here, 4 bytes each."""
    memory = differences(compare(TABLES["rees"], gpt), 0)
    (zero,) = compare(TABLES["zero-activations"], gpt).rows

    assert memory["Weights"] == memory["Gradients"] == -4 * 9 * D * L
    assert memory["Adam"] == -8 * 9 * D * L - 4 * (12 * L + 4)  # and a step counter for each tensor
    assert zero.cells[0] is not None
    assert zero.cells[0].printed == 24 * B * T * D * L


def test_the_peak_of_the_article_has_gradients_that_are_not_there_yet(gpt: Derivation) -> None:
    """Beside the largest peak candidate, by role: 16 bytes for each of 12·d² weights a layer, where 12 are live before the backward."""
    large = gpt.at_sizes({"B": 997, "T": T, "L": L, "V": V, "C": C, "h": H, "d": D})
    (peak,) = (row.cells[0] for row in compare(TABLES["rees"], large).rows if row.operation == "Peak")
    assert peak is not None
    assert peak.exact == large["memory.peak"].value
    because = {d.expr: d.because for d in peak.differences or ()}

    says = "the coefficient of d²·L is 192 in the table; it is 144 in the exact count, for parameter, optimizer state"
    assert because["48*L*d**2"] == says
    assert sum(Fraction(evaluate_text(expr, large.sizes)) for expr in because) == peak.difference


def test_the_example_of_zero_is_sixty_gigabytes() -> None:
    """1.5e9 parameters are 48 layers of width 1,600: 12 · 1600 · 32 · 1024 · 48 elements of 2 bytes."""
    cell = TABLES["zero-activations"].rows[0].cells[0]
    assert cell is not None
    assert round(evaluate_text(cell.expr, {"d": 1600, "B": 32, "T": 1024, "L": 48}) / 10**9) == 60


@pytest.mark.slow
def test_parts_follow_from_sizes_and_order_where_names_differ() -> None:
    """Grouped heads and a gate: Kaplan's three projections of h·k are one of h·k and two of g·k, and three matrices make the rest."""
    sizes = {"B": 1, "T": 6, "L": 2, "d": 12, "h": 6, "g": 2, "k": 10, "f": 17, "V": 29}
    derivation = calc.derive(calc.load("llama3-8b"), sizes)
    off = differences(compare(TABLES["kaplan-1"], derivation), 0)

    assert off["Attention: QKV"] == 2 * 12 * (3 * 6 * 10 - (6 + 2 * 2) * 10)
    assert off["Feedforward"] == -2 * 12 * 17
    assert off["Attention: project"] == 0


def test_printed_ratios_leave_out_embeddings_and_logits() -> None:
    """Rounded to two digits, each is that of the layers alone; N of table A9 has the embedding and five projections."""
    assert [row.parameters for row in ratios.ROWS] == [73_728_000, 305_397_760, 552_140_800, 1_142_751_232, 1_592_262_656, 6_794_117_120]
    for row in ratios.ROWS:
        assert round(row.of_layers, 2) == Fraction(row.printed), row.model
        assert row.as_written - row.of_layers == Fraction(2 * ratios.VOCABULARY * row.d, row.parameters)
        layers = row.L * (8 * row.d * row.h * row.k + 4 * 2048 * row.h * row.k + 3 * row.h * 2048 + 4 * row.d * row.f)
        assert row.of_layers == Fraction(3 * layers, 6 * row.parameters)


def test_each_cell_of_the_ratios_is_the_exact_one_and_its_terms() -> None:
    """Of a printed ratio, the head's V·d/N dropped and the softmax added; 73,728,000 is 74M, and the others are rounded."""
    rows = {row["model"]: row for row in ratios.document()["rows"]}
    scale = {"M": 10**6, "B": 10**9}
    for name, row in rows.items():
        size, N = row["sizes"], row["parameters"]
        parameters, ratio = row["cells"]["Parameters"], row["cells"]["FLOPs over 6·N·D"]
        matmuls = size["L"] * (8 * size["d"] ** 2 + 4 * 2048 * size["d"] + 4 * size["d"] * size["f"]) + 2 * 32000 * size["d"]
        assert Fraction(ratio["exact"]) == Fraction(matmuls, 2 * N), name
        assert Fraction(ratio["difference"]) == Fraction(ratio["printed"]) - Fraction(ratio["exact"])
        values = {term["kind"]: Fraction(term["value"]) for term in ratio["terms"]}
        assert values["dropped"] == -Fraction(32000 * size["d"], N)
        assert values["added"] == Fraction(3 * size["h"] * 2048 * size["L"], 2 * N)
        assert abs(values["rounded"]) <= Fraction(1, 200)
        assert Fraction(parameters["difference"]) == Fraction(name[:-1]) * scale[name[-1]] - N
        for cell in (parameters, ratio):
            assert Fraction(cell["difference"]) == sum(Fraction(term["value"]) for term in cell["terms"])
            assert all(term["because"] for term in cell["terms"])

    cut = {name: row["cells"]["Parameters"]["terms"][0] for name, row in rows.items()}
    assert [name for name, term in cut.items() if term["kind"] != "rounded"] == ["73M"]
    assert cut["73M"]["because"] == "N is 73,728,000; rounded it is 74M"


def test_a_model_without_the_dimensions_is_refused_and_a_document_is_plain(gpt: Derivation) -> None:
    with pytest.raises(BadInputError, match=r"^kaplan-1 is stated in B, T, d, h, k, f, L, V, and this model has no T, h, k, L, V$"):
        compare(TABLES["kaplan-1"], calc.derive(calc.load("mlp"), mode="infer"))

    cell = document(compare(TABLES["kaplan-1"], gpt))["rows"][2]["cells"]["FLOPs per token"]
    assert (cell["printed"], cell["exact"], cell["difference"]) == (2 * L * T * D, 4 * L * T * D, -2 * L * T * D)
    assert cell["terms"] == [
        {"expr": "-2*L*T*d", "kind": "counted differently", "because": cell["terms"][0]["because"]}
    ]  # fmt: skip
