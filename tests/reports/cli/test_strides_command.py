"""``napkin storage``: views and copies of a tensor and of a model's forward, as text and as JSON, refused in one line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from calc.mathematics.strides import walk
from reports import cli


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["storage", *words])


def test_without_a_model_fifteen_steps_are_as_torch_does_them() -> None:
    """The view that torch refuses among them."""
    done = run("--check")
    verdicts = [line.partition(":")[0] for line in done.stdout.split("\n") if line.startswith(("exact: ", "failed: "))]

    assert 0 == done.exit_code
    assert ["exact"] * 15 == verdicts


def test_where_an_element_lies_is_shown_with_its_addends() -> None:
    """[1, 2] of a 4 by 4 matrix lies at 6."""
    assert "element (1, 2) lies at 1·4 + 2·1 = 6 elements" in run("--tensor", "4x4", "--index", "1,2").stdout
    assert 3 == json.loads(run("--tensor", "2x3", "--do", "x.transpose(0, 1)", "--index", "0,1", "--json").stdout)["place"]


def test_a_model_s_forward_is_shown_with_strides_in_its_dimensions() -> None:
    """x W1 W2: two products allocate 4·B·D and 4·B·K bytes; a real run has the same."""
    made = json.loads(run("two-layer", "-d", "B=3", "-d", "D=7", "-d", "K=5", "--check", "--json").stdout)
    rows = made["results"]

    assert [["D", "1"], ["K", "1"]] == [row["strides"] for row in rows[:2]]
    assert [4 * 3 * 7, 4 * 3 * 5] == [row["allocated"] for row in rows[:2]]
    assert "exact" == made["check"]["verdict"]
    assert made["allocated"] == sum(k["allocated"] for k in made["operators"])


@pytest.mark.parametrize("model", ["mlp", "cruncher"])
def test_every_result_of_a_real_forward_is_as_recorded(model: str) -> None:
    """Shape, strides, offset, format, and the bytes of every allocation."""
    assert "exact: the forward at" in run(model, "--check").stdout


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt2", "llama3-8b", "mixtral", "vit-b", "resnet50"])
def test_every_result_of_a_larger_forward_is_as_recorded(model: str) -> None:
    """The same of attention, experts, convolutions and batch norms, at the models' small sizes."""
    import calc
    from calc.mathematics.strides.check import check_forward

    spec = calc.load(model)
    verdict = check_forward(spec, walk.storage(spec, spec.check_at))

    assert "exact" == verdict.verdict, verdict


def test_a_forward_that_disagrees_is_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an allocation taken for a view."""
    monkeypatch.setattr(walk, "_of", lambda *_: walk.VIEW)

    assert 1 == run("mlp", "--check").exit_code


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tensor", "4x4", "--do", "x.foo()"], "napkin: cannot read 'x.foo()': use x[…], "),
        (["--tensor", "4x-4"], "napkin: size 2 of the shape = -4 is not positive"),
        (["--tensor", "4x4", "--index", "9,9"], "napkin: the index 9,9 is outside the shape (4, 4): indices begin at 0"),
        (["--tensor", "4x4", "--dtype", "tf32"], "napkin: torch has no tensors in tf32: "),
        (["--tensor", "4x4", "--do", "x\x1b[31m"], "napkin: cannot read 'x\\x1b[31m': write a chain of operations on x"),
        (["--do", "x.T"], "napkin: --do and --index need a tensor: add --tensor, e.g. --tensor 4x4"),
        (["mlp", "--tensor", "4x4"], "napkin: --tensor, --do, --index and --dtype describe a tensor: leave them or MODEL out"),
        (["-d", "B=3"], "napkin: -d sets a dimension of a model: name one"),
        (["--tensor", "100000x100000", "--check"], "napkin: a run would allocate 40,000,000,000 bytes at once"),
    ],
)
def test_what_cannot_be_shown_is_one_line(words: list[str], message: str) -> None:
    """And exit status 2, with nothing on standard output."""
    actual = run(*words)

    assert (2, "", 1) == (actual.exit_code, actual.stdout, len(actual.stderr.splitlines()))
    assert actual.stderr.startswith(message)
