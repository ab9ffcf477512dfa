"""``napkin list hardware`` shows every accelerator, in a table and as plain data, and a user's own beside them."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from calc.hardware.accelerators import catalogue
from reports import cli
from tests.hardware.test_accelerators import ENTRY


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["list", "hardware", *words])


def test_every_accelerator_has_a_line() -> None:
    """The id is the first word."""
    lines = _run().stdout.splitlines()

    assert list(catalogue()) == [line.split()[0] for line in lines[2 : 2 + len(catalogue())]]


def test_words_choose_entries_that_hold_all_of_them() -> None:
    """Hopper devices with bridges: two of them."""
    assert ["h100-pcie", "h100-nvl"] == [entry["id"] for entry in json.loads(_run("Hopper", "bridge", "--json").stdout)["hardware"]]


def test_the_plain_data_hold_bytes_rates_and_the_assumed_price() -> None:
    """GB and GiB apart: 80 GB marketed, 85,520,809,984 bytes (79.6 GiB) reported. Rates beyond 2^53 are strings."""
    actual = {entry["id"]: entry for entry in json.loads(_run("--json").stdout)["hardware"]}

    assert {"bytes": 80 * 10**9, "reported_by_driver": 85520809984} == actual["h100-sxm"]["memory"]
    assert {"dense": 989500000000000, "sparse": 1979000000000000} == {
        key: actual["h100-sxm"]["peaks"]["bf16"][key] for key in ("dense", "sparse")
    }
    assert "20000000000000000" == actual["gb200"]["peaks"]["fp4"]["sparse"]
    assert actual["h100-sxm"]["price"]["because"].startswith("ASSUMPTION of 2026")
    assert actual["m4-max"]["price"] is None


def test_the_convention_of_the_rates_stands_under_them() -> None:
    """What a number is of, when nobody says."""
    text = " ".join(_run().stdout.split())

    assert "rates without a number format are those of dense bf16" in text
    assert "prices are dated assumptions" in text


def test_a_file_of_ones_own_is_listed_beside(tmp_path: Path) -> None:
    """With its published digits."""
    file = tmp_path / "own.toml"
    file.write_text(ENTRY)

    assert ["my-gpu", "My", "GPU", "2030", "80", "-", "2,000", "312.5", "-", "-", "-", "-"] == _run(
        "box", "--hardware", str(file)
    ).stdout.splitlines()[2].split()


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    """Exit 2, nothing on standard output."""
    file = tmp_path / "own.toml"
    file.write_text(ENTRY.replace("312.5", "-1"))

    actual = _run("--hardware", str(file))

    assert (2, "") == (actual.exit_code, actual.stdout)
    assert f"napkin: {file}: my-gpu.peak.bf16.dense is -1, expected a number of TFLOP/s above 0\n" == actual.stderr


def test_a_file_of_accelerators_goes_with_no_other_list(tmp_path: Path) -> None:
    """Rather than being ignored."""
    actual = CliRunner().invoke(cli.napkin, ["list", "models", "--hardware", str(tmp_path / "own.toml")])

    assert (2, "napkin: --hardware goes with: napkin list hardware\n") == (actual.exit_code, actual.stderr)
