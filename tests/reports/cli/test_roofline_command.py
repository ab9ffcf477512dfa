"""``napkin roofline``: totals, bounds and closed forms of a step under a device's ceilings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reports import cli

# Two products of 3 rows: 7 x 7 and 7 x 5.
SIZES = ("-d", "B=3", "-d", "D=7", "-d", "K=5", "--optimizer", "sgd")


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["roofline", "two-layer", *SIZES, *words])


def _document(*words: str) -> Any:
    actual = _run("--gpu", "a100-sxm-80", "--json", *words)
    assert 0 == actual.exit_code, actual.stderr
    return json.loads(actual.stdout)


def test_the_totals_are_those_of_the_derivation() -> None:
    """FLOPs and bytes of each phase, by the command that derives them."""
    derived = json.loads(CliRunner().invoke(cli.napkin, ["derive", "two-layer", *SIZES, "--json"]).stdout)["quantities"]
    actual = _document()

    assert actual["eager"]["phases"]
    for phase, sums in actual["eager"]["phases"].items():
        assert derived[f"flops.{phase}.total"]["value"] == sums["flops"]
        assert derived[f"bytes_moved.{phase}"]["value"] == sums["bytes"]
        assert derived[f"bytes_moved.{phase}"]["expr"] == actual["closed_forms"]["phases"][phase]["moved"]


def test_every_operator_has_its_closed_forms() -> None:
    """The first product: 2·B·D² FLOP on B·D + D² + B·D floats."""
    first = _document()["closed_forms"]["operators"][0]

    assert {"matmul": "2*B*D**2", "elementwise": "0", "moved": "8*B*D + 4*D**2", "times": "1"} == {
        key: first[key] for key in ("matmul", "elementwise", "moved", "times")
    }


def test_the_first_product_is_timed_by_what_bounds_it() -> None:
    """3 x 7 times 7 x 7 in fp32: 294 FLOP at 19.5 TFLOP/s take less than (21 + 49 + 21) * 4 bytes at 2,039 GB/s; a launch is 5 µs."""
    row = _document()["eager"]["operators"][0]
    free = _document("--launch", "0")["eager"]["operators"][0]

    assert ("aten.mm.default", 2 * 3 * 7 * 7, (21 + 49 + 21) * 4) == (row["operator"], row["flops"], row["bytes"])
    assert ("launch", 5e-6) == (row["bound"], row["seconds"])
    assert ("memory", 364 / 2039e9) == (free["bound"], free["seconds"])


def test_the_rate_of_products_can_be_chosen() -> None:
    """tf32 at 156 TFLOP/s: its ridge is at 156 / 2.039 FLOP per byte."""
    actual = _document("--dtype", "tf32")["ceilings"]

    assert {"tf32": 156 * 10**12} == actual["matmul"]
    assert pytest.approx(156e12 / 2039e9) == actual["ridge"]["tf32"]


def test_an_optimizer_that_runs_parameter_by_parameter_is_noted() -> None:
    """As a list of parameters it launches fewer kernels, and nothing is noted."""
    loop, lists = _document(), _document("--implementation", "foreach")

    assert "--implementation foreach" in loop["notes"][-1]
    assert not any("--implementation" in note for note in lists["notes"])
    assert lists["eager"]["phases"]["optimizer"]["launches"] < loop["eager"]["phases"]["optimizer"]["launches"]


def test_a_device_of_ones_own_is_a_ceiling_too(tmp_path: Path) -> None:
    """From a file of the catalogue's layout."""
    file = tmp_path / "own.toml"
    file.write_text(
        '[my-gpu]\nname = "Mine"\nvendor = "me"\narchitecture = "x"\nyear = 2026\nmemory = 1000000000\nbandwidth = 1000000000\n'
        'source = "its box"\npeak.fp32 = { dense = 1, engine = "all" }\n'
    )

    assert 0 == _run("--gpu", "my-gpu", "--hardware", str(file)).exit_code


BAD = {
    "no device": ((), "napkin: missing --gpu: see napkin list hardware, and napkin roofline --help"),
    "format": (
        ("--gpu", "v100-sxm2-32", "--dtype", "bf16"),
        "napkin: NVIDIA V100 SXM2 32GB (16GB exists) has no published rate in 'bf16': it has fp64, fp32, fp16, fp16_cuda, int8",
    ),
    "launch": (
        ("--gpu", "l4", "--launch", "5us"),
        "napkin: --launch '5us' is not a time between kernels: write seconds from 0 to 1, as in 5e-6",
    ),
    "negative launch": (
        ("--gpu", "l4", "--launch", "-1"),
        "napkin: --launch '-1' is not a time between kernels: write seconds from 0 to 1, as in 5e-6",
    ),
    "endless launch": (
        ("--gpu", "l4", "--launch", "1e999999"),
        "napkin: --launch '1e999999' is not a time between kernels: write seconds from 0 to 1, as in 5e-6",
    ),
    "dots": (
        ("--gpu", "l4", "--launch", "1.2.3"),
        "napkin: --launch '1.2.3' is not a time between kernels: write seconds from 0 to 1, as in 5e-6",
    ),
    "top": (("--gpu", "l4", "--top", "0"), "napkin: --top 0 shows nothing: give 1 or more"),
    "file": (
        ("--gpu", "mine", "--hardware", "/nowhere.toml"),
        "napkin: cannot read the accelerators of /nowhere.toml: No such file or directory",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_2(case: tuple[tuple[str, ...], str]) -> None:
    """Before any work is done."""
    words, line = case

    actual = _run(*words)

    assert (2, "", f"{line}\n") == (actual.exit_code, actual.stdout, actual.stderr)
