"""``napkin dtype`` and the list of formats: the same numbers as text and as JSON, and one line for what is no format or number."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from reports import cli


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


def test_the_limits_are_shown_with_their_steps() -> None:
    """bf16: (2 - 2**-7) · 2**127 is 3.38953139e38."""
    actual = run("dtype", "bf16")

    assert 0 == actual.exit_code
    for words in (
        "bf16: 16 bits, 1 sign, 8 exponent, 7 fraction; 2 bytes an element",
        "(2 − 2⁻⁷)·2¹²⁷",
        "≈ 3.38953139e38",
        "= 0.0078125",
    ):
        assert words in actual.stdout


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("int8", "-3"), "1 1111101  (two's complement; the sign bit weighs −128, the others 125)"),
        (("int8", "3"), "0 0000011  (two's complement; the sign bit is 0, the others 3)"),
        (("uint8", "253"), "11111101  (magnitude 253)"),
        (("int8",), "int8: 8 bits, two's complement: 1 sign, 7 others; 1 byte an element\n"),
    ],
)
def test_an_integer_with_a_sign_is_in_twos_complement(words: tuple[str, ...], shown: str) -> None:
    """-128 + 125 = -3: no sign before a magnitude."""
    assert shown in run("dtype", *words).stdout
    assert "int8            1 byte    torch: int8; two's complement: 1 sign, 7 others\n" in run("list", "dtypes").stdout


def test_negative_numbers_and_zeros_are_no_options() -> None:
    """-0 keeps its sign."""
    made = json.loads(run("dtype", "fp16", "-0", "--json").stdout)["encoding"]

    assert ("1" + 15 * "0", "zero", "-0", True) == (made["bits"], made["kind"], made["value"]["decimal"], made["exact"])


def test_json_holds_exact_numbers_as_text() -> None:
    """0.3 in e4m3 is 0.3125: 1/80 too much, two fifths of the last place; a third has no decimal that ends."""
    made = json.loads(run("dtype", "e4m3", "0.3", "--json").stdout)

    assert {"value": "448", "decimal": "448"}.items() <= next(x for x in made["limits"] if x["name"] == "largest").items()
    assert ("5/16", "1/80", "2/5") == (
        made["encoding"]["value"]["value"],
        *(made["encoding"]["error"][k]["value"] for k in ("absolute", "ulps")),
    )
    assert {"value": "1/24", "decimal": None} == made["encoding"]["error"]["relative"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fp17"], "napkin: unknown number format 'fp17': did you mean fp16?"),
        (["fp16", "ten"], "napkin: cannot read 'ten' as a number: write 0.01, 1e-8, -0, 0x1.8p3, inf or nan"),
        (["fp16", "--jsn"], "napkin: cannot read '--jsn' as a number: "),
        (["fp16", "1", "2"], "napkin: unexpected 2: see napkin dtype --help"),
        (["fp16", "1\n\x1b[31m"], "napkin: cannot read '1\\n\\x1b[31m' as a number: "),
    ],
)
def test_what_cannot_be_encoded_is_one_line(words: list[str], message: str) -> None:
    """And exit status 2, with nothing on standard output."""
    actual = run("dtype", *words)

    assert (2, "", 1) == (actual.exit_code, actual.stdout, len(actual.stderr.splitlines()))
    assert actual.stderr.startswith(message)


def test_formats_need_no_torch() -> None:
    """Neither to list nor to encode."""
    code = (
        "import sys; sys.modules['torch'] = None; from click.testing import CliRunner; from reports import cli; "
        "assert CliRunner().invoke(cli.napkin, ['dtype', 'fp8-e5m2', '0.1']).exit_code == 0; "
        "assert 'tf32' in CliRunner().invoke(cli.napkin, ['list', 'dtypes']).stdout"
    )

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode
