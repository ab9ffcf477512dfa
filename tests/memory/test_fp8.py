"""A linear layer with an fp8 forward: its closed forms beside a real run, and what torch does not run."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from calc.errors import BadInputError
from calc.measure import fp8 as measured
from calc.memory import fp8
from calc.memory.fp8 import RUN_AT, SCALINGS, fp8_checks, fp8_layer, fp8_offered
from calc.options import Options
from reports import cli


def _values(scaling: str) -> dict[str, int]:
    return {quantity.name: quantity.at(RUN_AT) for quantity in fp8_layer(scaling)}


def test_closed_forms_by_hand() -> None:
    """B = 5, D = 7, K = 11: 5·7 bytes and 4 of a scale, or 4 of each of 5 rows; 2·5·7·11 FLOP forward, twice that backward."""
    tensor, row = (_values(scaling) for scaling in SCALINGS)

    assert (tensor["saved for backward"], row["saved for backward"]) == (5 * 7 + 4, 5 * 7 + 4 * 5)
    assert (tensor["scales"], row["scales"]) == (2, 5 + 11)
    assert tensor["saved by a bf16 forward"] == 70
    assert tensor["fp8 copies in the forward"] == 35 + 77
    assert (tensor["FLOPs of the forward"], tensor["FLOPs of the backward"]) == (770, 1540)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("sizes", [{"B": 13, "D": 3, "K": 2}, {"B": 2, "D": 17, "K": 19}])
def test_a_real_run_saves_and_multiplies_what_is_derived(scaling: str, sizes: dict[str, int]) -> None:
    """At other sizes too; rounded operands come out as in fp64 within bf16."""
    run = measured.fp8_forward(**sizes, scaling=scaling)
    expected = {quantity.name: quantity.at(sizes) for quantity in fp8_layer(scaling)}

    assert (run.saved, run.forward_flops) == (expected["saved for backward"], expected["FLOPs of the forward"])
    assert run.backward_flops == expected["FLOPs of the backward"]
    assert {"exact", "within"} == {check.verdict for check in fp8_checks(scaling)}


def test_a_wrong_scale_or_another_number_of_scales_fails_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is off by a factor; bytes of scales that are not saved."""
    real = measured.quantized

    def doubled(x: torch.Tensor, scaling: str) -> tuple[torch.Tensor, torch.Tensor]:
        x8, scale = real(x, scaling)
        return x8, scale * 2 if x.shape[0] == RUN_AT["K"] and not torch.is_grad_enabled() else scale  # of the weight, inside the layer

    monkeypatch.setattr(measured, "quantized", doubled)
    assert "failed" in {check.verdict for check in fp8_checks("tensor")}
    monkeypatch.setattr(measured, "quantized", real)
    monkeypatch.setattr(fp8, "fp8_layer", lambda scaling: tuple(fp8_layer("row")))
    assert "failed" in {check.verdict for check in fp8_checks("tensor")}


def test_the_largest_number_of_a_row_or_tensor_becomes_that_of_e4m3() -> None:
    x = torch.tensor([[1.0, -2.0], [0.5, 0.25]]).bfloat16()
    for scaling, scales in (("tensor", [2 / 448]), ("row", [2 / 448, 0.5 / 448])):
        x8, scale = measured.quantized(x, scaling)
        assert scale.flatten().tolist() == pytest.approx(scales)
        assert float(x8.float().abs().max()) == 448


def test_torch_multiplies_in_fp8_and_has_no_derivative_of_it() -> None:
    """What would make a recipe of a whole step is missing; where it comes, this test says so."""
    uses = fp8_offered()

    assert [use for use, error in uses.items() if not error] == [
        "matmul of e4m3 by e4m3, a scale per tensor",
        "matmul of e5m2 by e4m3, a scale per tensor",
        "matmul of e4m3 by e4m3, a scale per row",
        "cast to bf16",
    ]
    assert uses["backward through the matmul"] == "RuntimeError: derivative for aten::_scaled_mm is not implemented"


def test_a_step_in_fp8_is_refused_with_a_way_out() -> None:
    for name in ("fp8", "fp8-forward", "float8_e4m3fn"):
        with pytest.raises(
            BadInputError, match=r"^no step runs in fp8: torch multiplies in fp8, but has no derivative .* use bf16-master, or see "
        ):
            Options(precision=name)
    with pytest.raises(BadInputError, match=r"^unknown scaling 'column': use one of tensor, row$"):
        fp8_layer("column")


def test_the_command_shows_the_layer_beside_its_run() -> None:
    words = ["bytes-per-parameter", "linear", "-d", "B=3", "-d", "D=7", "-d", "K=5", "--precision", "bf16"]
    shown = CliRunner().invoke(cli.napkin, words).stdout
    assert "39, exact" in shown
    assert "it does not run: step of AdamW on fp8 parameters" in " ".join(shown.split())

    layer = json.loads(CliRunner().invoke(cli.napkin, [*words, "--json"]).stdout)["fp8_forward"]
    assert [scaling["scaling"] for scaling in layer["scalings"]] == ["tensor", "row"]
    assert layer["torch_on_cpu"]["cast to bf16"] == "runs"
