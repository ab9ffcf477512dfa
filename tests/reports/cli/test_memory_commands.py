"""The commands about memory outside a step: a model in use, and its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result

import calc
from calc.memory import checkpoint
from calc.memory.inference import ByteSum, Inference, InferenceTerm
from calc.pipeline.verdict import Verdict
from reports import cli
from reports.jobs import job

WEIGHTS = ByteSum("int4", "L*d**2/2", 288, (InferenceTerm("layers.*.weight", "L*d**2/2", 288, "half a byte each"),))
KEPT = ByteSum("bf16", "4*B*L*T*g*k", 1280, (InferenceTerm("full_attention layers", "4*B*L*T*g*k", 1280, "a key and a value"),))
INSTRUMENT = "tensors in the past_key_values that the library returns"
CHECKS = (Verdict("cache.bytes in fp32", 640, 640, INSTRUMENT, "exact", sizes={"B": 2, "T": 5}),)
SIZES = {"B": 1, "T": 10, "d": 12, "L": 4, "g": 2, "k": 4}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "inference", lambda *_, **__: Inference("tiny", "here", SIZES, WEIGHTS, KEPT, "", CHECKS))


@pytest.mark.usefixtures("used")
def test_inference_shows_weights_cache_and_what_a_run_kept() -> None:
    """Closed forms, bytes, their sum, and the verdict of the run."""
    actual = run("inference", "tiny", "--weights", "int4")

    assert 0 == actual.exit_code
    for words in ("weights in int4 = L·d²/2", "288\u00a0bytes", "keys and values in bf16 = 4·B·L·T·g·k", "together 1,568\u00a0bytes"):
        assert words in actual.stdout
    assert "exact: derived 640, measured 640 bytes in fp32 at B=2, T=5" in actual.stdout


@pytest.mark.usefixtures("used")
def test_inference_as_json_holds_the_same_numbers() -> None:
    """Standard output parses."""
    made = json.loads(run("inference", "tiny", "--json").stdout)

    assert (288, 1280, 1568) == (*(made["quantities"][f"{name}.bytes"]["value"] for name in ("weights", "cache")), made["total"])


def test_what_is_unknown_is_said_and_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never 0: the total is unknown as well."""
    monkeypatch.setattr(job, "inference", lambda *_, **__: Inference("tiny", "here", SIZES, WEIGHTS, None, "it keeps none", ()))

    assert "keys and values: it keeps none" in run("inference", "tiny").stdout
    made = json.loads(run("inference", "tiny", "--json").stdout)
    assert (None, None, "it keeps none") == (
        made["total"],
        made["quantities"]["cache.bytes"]["value"],
        made["quantities"]["cache.bytes"]["unknown"],
    )


def test_a_format_that_is_none_is_one_line() -> None:
    """Before anything is recorded."""
    actual = run("inference", "gpt2", "--weights", "int3")

    assert 2 == actual.exit_code
    last = actual.stderr.splitlines()[-1]
    assert "napkin: unknown weight format 'int3': did you mean int8? (fp32, bf16, fp16, fp8, int8, int4, int4-zero)" == last


def test_checkpoint_counts_the_file_and_resumes_for_real() -> None:
    """4·19,210 of weights, 8·19,210 + 4·4 of AdamW and 8 of the iteration are 230,544 bytes; saving every 54 minutes."""
    actual = run("checkpoint", "mlp", "--save-seconds", "60", "--failure-hours", "24")

    assert 0 == actual.exit_code
    assert f"{12 * 19210 + 16 + 8:,}" in actual.stdout
    assert 4 == actual.stdout.count("exact: ")
    assert "= 3,220 s: 3.7 % of the time is lost" in actual.stdout


def test_the_real_run_has_the_small_sizes_of_the_spec_unless_given_ones_exclude_them() -> None:
    """A context of 32 holds no 64 tokens, the spec's own: then the smaller length that is given."""
    spec = calc.load("gpt2")
    usual, narrow, long = (checkpoint._small(spec, given) for given in ({}, {"T": 32, "C": 32}, {"T": 4096, "C": 4096}))

    assert (2, 64, 1024) == (usual["B"], usual["T"], usual["C"])
    assert (2, 32, 32) == (narrow["B"], narrow["T"], narrow["C"])
    assert (2, 64, 4096) == (long["B"], long["T"], long["C"])


def test_checkpoint_as_json_holds_file_checks_and_interval() -> None:
    """With the sources of both formulas."""
    made = json.loads(run("checkpoint", "cruncher", "--save-seconds", "30", "--failure-hours", "5", "--json").stdout)

    assert made["file"]["value"] == made["file"]["payload"] + made["file"]["overhead"]
    assert ["exact"] * 4 == [check["verdict"] for check in made["checks"]]
    assert "Young 1974" in made["interval"]["sources"]["every"]


def test_checkpoint_has_the_progress_of_training() -> None:
    """5056 bytes of the generator and 193 of a cosine's pickle, each equal to a real file's; the container is beside the pickle."""
    made = json.loads(run("checkpoint", "cruncher", "--scheduler", "cosine", "--json").stdout)
    checks = {check["quantity"]: check for check in made["checks"]}

    assert {check["verdict"] for check in made["checks"]} == {"exact"}
    assert checks["bytes of the state of a random generator (torch, CPU)"]["measured"] == 5056
    assert checks["bytes of torch.save with the scheduler's state"]["derived"] > 193
    assert {part["name"]: part["bytes"] for part in made["progress"]}["scheduler: CosineAnnealingLR"] == 193


@pytest.mark.parametrize(("sizes", "traces"), [((), 2), (("B=2", "D=4"), 1)])
def test_a_file_is_counted_once_for_each_set_of_sizes(sizes: tuple[str, ...], traces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real run of cruncher has a batch of 2 and a width of 4: at these sizes its file is the one that is asked for."""
    counts: list[Mapping[str, int]] = []
    count = checkpoint.counted
    monkeypatch.setattr(checkpoint, "counted", lambda spec, at, options: [counts.append(at), count(spec, at, options)][1])
    made = json.loads(run("checkpoint", "cruncher", *sizes, "--json").stdout)
    (check,) = [check for check in made["checks"] if check["quantity"] == "bytes of safetensors"]

    assert traces == len(counts)
    assert ("exact", check["measured"]) == (check["verdict"], check["derived"])
    assert (made["file"]["value"] == check["measured"]) == (traces == 1)


def test_a_checkpoint_that_does_not_resume_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1, as of every check that failed."""
    wrong = Verdict("tensors that differ after resuming", 0, 3, "", "failed")
    monkeypatch.setattr(checkpoint, "_measured", lambda *_: (wrong,))

    assert 1 == run("checkpoint", "cruncher").exit_code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--save-seconds", "60"], "napkin: how often to save depends on both --save-seconds and --failure-hours: give both"),
        (["--scheduler", "cosin"], "napkin: unknown scheduler 'cosin': did you mean cosine? (cosine, linear, step, exponential, lambda)"),
        (["--mode", "infer"], "napkin: mode infer trains nothing, so there is nothing to resume: use mode train"),
        (["--save-seconds", "0", "--failure-hours", "1"], "napkin: --save-seconds is 0: give a number above 0"),
    ],
)
def test_what_cannot_be_saved_is_one_line(words: list[str], said: str) -> None:
    """And exit status 2."""
    actual = run("checkpoint", "cruncher", *words)

    assert (2, said) == (actual.exit_code, actual.stderr.splitlines()[-1])
