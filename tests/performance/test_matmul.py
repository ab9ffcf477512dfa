"""The lecture's matrix multiplication in several number formats: what it is compared with, and what is said where it cannot run."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from calc.errors import BadInputError, MeasurementError
from calc.hardware.accelerators import accelerator
from calc.hardware.times import Repeat
from calc.measure import matmul as torch_matmul
from calc.measure.matmul import Shape, time_of_matmul
from calc.measure.timing import Timings
from calc.performance.matmul import LECTURE, products, row_of, sizes_for
from calc.performance.mfu import DensePeak
from reports import cli

ONCE = Repeat(warm_up=1, count=2, seconds=0)
SMALL = ("m=37", "-d", "k=41", "n=43", "--repeat", "2", "--seconds", "0", "--device", "cpu")


def napkin(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["measure-matmul", *words])


def test_the_lecture_s_product_has_8_8_tera_flop() -> None:
    """2 · 16384 · 32768 · 8192; on a CPU each size is a 32nd, and one that is given stays."""
    assert 8_796_093_022_208 == Shape(*sizes_for("cuda", {})).flops
    assert LECTURE == sizes_for("cuda:1", {})
    assert (512, 5, 256) == sizes_for("cpu", {"k": 5})
    with pytest.raises(BadInputError, match=r"^k = 0 is not a number of rows or columns: give 1 to 16,777,216$"):
        sizes_for("cpu", {"k": 0})
    with pytest.raises(BadInputError, match=r"^a matmul has no size 'x': it has m, k and n$"):
        sizes_for("cpu", {"x": 3})


def test_the_share_is_of_the_peak_of_the_format() -> None:
    """The product in 0.12506 s is 70.335 TFLOP/s: 0.988 of an RTX 3090's 71.2 in bf16. Over the 35.58 of fp32 it is refused."""
    card, flops, times = accelerator("rtx3090"), Shape(*LECTURE).flops, Timings((125_060_000,))
    right = row_of("bf16", times, flops, DensePeak("bf16", card.peak("bf16"), card.source, card))
    wrong = row_of("fp32", times, flops, DensePeak("fp32", card.peak("fp32"), card.source, card))

    assert right.share is not None
    assert Fraction(flops * 10**9, 125_060_000) / card.peak("bf16") == right.share.value
    assert wrong.share is None
    assert wrong.because.startswith("utilization 1.98 is above 1: NVIDIA GeForce RTX 3090 24GB cannot do 70.335 TFLOP/s in fp32")
    assert "the matmuls ran in bf16 (71.2 TFLOP/s)" in wrong.because


def test_each_format_is_multiplied_in_itself() -> None:
    """fp8 operands give what their values give in fp32, rounded to bf16."""
    shape = Shape(16, 32, 48)
    a, b = (x.float() for x in torch_matmul._operands(shape, torch.float8_e4m3fn, "cpu"))
    actual = torch_matmul._matmul(shape, "fp8", "cpu")()

    assert torch.bfloat16 == actual.dtype
    assert torch.allclose(a @ b, actual.float(), rtol=2**-7, atol=2**-5)
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        assert dtype == torch_matmul._matmul(shape, name, "cpu")().dtype


def test_formats_that_the_device_does_not_multiply_say_so_and_the_others_run() -> None:
    matmuls = products((37, 41, 43), ("tf32", "fp32", "fp8"), "cpu", ONCE)

    assert ["tf32", "fp32", "fp8"] == [row.dtype for row in matmuls.rows]
    assert [None, 2, None] == [row.times and len(row.times.nanoseconds) for row in matmuls.rows]
    assert "tf32 needs tensor cores, which cpu lacks" == matmuls.rows[0].because


def test_a_product_that_does_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """37·41 + 41·43 + 37·43 elements of 4 bytes are 19,484 bytes."""
    monkeypatch.setattr(torch_matmul, "available_bytes", lambda: 19_483)
    said = "^the matmul in fp32 needs 19,484 bytes and 19,483 are free: give a smaller m, k or n$"

    with pytest.raises(MeasurementError, match=said):
        time_of_matmul(Shape(37, 41, 43), "fp32", "cpu", ONCE)


def test_the_command_writes_every_repetition(tmp_path: Path) -> None:
    """The share is the median's: 2 · 37 · 41 · 43 FLOP over it, over the peak."""
    file = tmp_path / "products.json"
    shown = napkin(*SMALL, "--dtype", "fp32", "--peak", "1PFLOP/s", "-o", str(file))
    document = json.loads(file.read_text())
    (row,) = document["rows"]

    assert 0 == shown.exit_code, shown.stderr
    assert (2 * 37 * 41 * 43, {"m": 37, "k": 41, "n": 43}) == (document["flops"], document["sizes"])
    assert 2 <= len(row["times"]["nanoseconds"])
    assert document["flops"] / row["times"]["seconds"]["median"] / 1e15 == pytest.approx(row["share"])
    assert shown.stdout.startswith("37 × 41 times 41 × 43: 130\u00a0kFLOP, one multiply-add = 2 FLOP, on ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dtype", "fp3"], "unknown number format 'fp3': did you mean fp32? (fp32, tf32, bf16, fp16, fp8)"),
        (["--peak", "1e9"], "--peak holds for one number format: give that format with --dtype"),
        (["--device", "gpu"], "unknown device 'gpu': use cpu, cuda, or cuda:1 and so on"),
    ],
)
def test_bad_words_are_refused_in_a_line(words: list[str], said: str) -> None:
    result = napkin(*(SMALL[:-2] if words[0] == "--device" else SMALL), *words)

    assert (2, "", f"napkin: {said}\n") == (result.exit_code, result.stdout, result.stderr)


def test_without_the_device_nothing_is_measured() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    actual, strict = napkin("--device", "cuda"), napkin("--device", "cuda", "--strict", "--json")

    assert (0, "not measured: there is no CUDA device here\n") == (actual.exit_code, actual.stdout)
    assert (1, None) == (strict.exit_code, json.loads(strict.stdout).get("rows"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16", "fp16", "fp8"])
def test_a_gpu_stays_below_its_peak(dtype: str) -> None:
    """The product of 4096 in each direction, on the device that is here."""
    (row,) = products((4096, 4096, 4096), (dtype,), "cuda", ONCE).rows

    assert row.times is not None or row.because
    assert row.share is None or 0 < row.share.value <= 1
