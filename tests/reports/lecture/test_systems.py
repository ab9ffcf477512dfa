"""Each of the lecture's twenty systems, worked out by the product and checked against real runs."""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction

import pytest
import torch
from click.testing import CliRunner

from reports import cli
from reports.lecture import systems
from reports.lecture.lab import Lab
from reports.lecture.system import FAILED, NOT_MEASURED, LectureSystem, SystemResult, equal, near
from reports.lecture.systems import SYSTEMS, system

Value = int | float | Fraction | str


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab()


def worked(number: int, lab: Lab) -> tuple[SystemResult, dict[str, Value]]:
    """A system with its answers by name, none of whose checks failed."""
    actual = system(number).work(lab)
    assert [] == [check.quantity for check in actual.checks if check.verdict == FAILED]
    assert actual.rows
    return actual, {row.quantity: row.value for row in actual.rows}


def assert_commands_run(actual: SystemResult) -> None:
    """Each command that the system's notes name, of a small model."""
    commands = [command for note in actual.notes for command in re.findall(r"napkin ([^,]+)", note)]
    assert commands
    for command in commands:
        done = CliRunner().invoke(cli.napkin, shlex.split(command.replace("MODEL", "two-layer")))
        assert done.exit_code == 0, (command, done.stderr)


def verdicts(actual: SystemResult) -> dict[str, str]:
    return {check.quantity: check.verdict for check in actual.checks}


def test_there_are_twenty_systems_in_order() -> None:
    """One for each number, each with a name, a title and what it gives."""
    assert list(range(1, 21)) == [s.number for s in SYSTEMS]
    assert len({s.name for s in SYSTEMS}) == 20
    assert all(s.title and s.asks for s in SYSTEMS)


def test_a_command_works_out_one_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """As text and as JSON, without a file; a failed check is exit 1, and another number or a claim beside it is refused."""
    done = CliRunner().invoke(cli.napkin, ["lecture", "--system", "8"])
    assert done.exit_code == 0
    assert done.stdout.startswith("System 8, Gradient of a scalar model: ")
    assert "✓ measured, equal: " in done.stdout

    document = json.loads(CliRunner().invoke(cli.napkin, ["lecture", "--system", "8", "--json"]).stdout)
    assert {a["what"]: a["value"] for a in document["answers"]}["dℒ/dw = (u − 5)·x"] == "(1, 2, 3)"

    for words, why in (
        (["--system", "21"], "no system 21: there are 1 to 20"),
        (
            ["--system", "8", "--claim", "mem-128"],
            "--claim has no effect beside --system, which shows that alone and writes no file: leave it out",
        ),
    ):
        done = CliRunner().invoke(cli.napkin, ["lecture", *words])
        assert (done.exit_code, done.stderr) == (2, f"napkin: {why}\n")

    failing = LectureSystem(8, "s", "Planted", "a wrong sum", lambda _: SystemResult((), checks=(equal("1 + 1", 2, 3, "by hand"),)))
    monkeypatch.setattr(systems, "SYSTEMS", (failing,))
    done = CliRunner().invoke(cli.napkin, ["lecture", "--system", "8"])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "× failed: 1 + 1: derived 2, measured 3 (by hand)")


def test_a_check_that_does_not_hold_fails() -> None:
    """Unequal by one, or outside the tolerance."""
    assert FAILED == equal("x", 36, 37, "").verdict == near("x", 1.0, 1.2, 0.1, "", "").verdict


@pytest.mark.slow
def test_system_01_training_time(lab: Lab) -> None:
    """6 · 70e9 · 15e12 / (1024 · 989.5e12 · 0.5) / 86400 = 143.93 days; a real 70B Llama takes 1.137 times the FLOPs at T = 8192."""
    actual, answers = worked(1, lab)

    assert Fraction(6 * 70 * 15 * 10**21, 1024 * 9895 * 10**11 // 2 * 86400) == answers["time by 6·N·D"] == actual.calculations[0].value
    assert round(float(answers["time by 6·N·D"]), 2) == 143.93
    assert round(float(answers["exact FLOPs of a 70B Llama for each token, over 6·N"]), 3) == 1.137
    assert actual.derived[0].steps


@pytest.mark.slow
def test_system_02_largest_model(lab: Lab) -> None:
    """640e9 / 16 = 40e9 on the state alone, in fp32 and with fp32 copies; with activations fewer, the fewer the larger the batch."""
    _, answers = worked(2, lab)

    assert [16, 16, 8] == [answers[f"bytes per parameter, {p}"] for p in ("fp32", "bf16-master", "bf16")]
    assert [40 * 10**9] * 2 == [answers[f"largest model, {p}"] for p in ("fp32", "bf16-master")]
    one, four = (int(answers[f"largest with activations, B = {b}"]) for b in (1, 4))
    assert four < one < 40 * 10**9


def test_system_03_number_formats(lab: Lab) -> None:
    """Limits of six formats equal torch.finfo; 0.01 in fp16 is 0 01000 0100011111, 1e-8 is 0, 1e8 is infinity."""
    actual, answers = worked(3, lab)

    assert [64, 32, 19, 16, 16, 8, 8, 8, 4] == [row.value for row in actual.rows[:9]]
    assert ("0", "inf", "0.01000213623046875") == tuple(answers[f"{text} in fp16"] for text in ("1e-8", "1e8", "0.01"))
    assert {"0 01000 0100011111"} == {row.because for row in actual.rows if row.quantity == "0.01 in fp16"}
    assert set(verdicts(actual).values()) == {"exact"}
    assert len(actual.checks) == 6 * 3 + 3 * 4


def test_system_04_tensor_memory(lab: Lab) -> None:
    """49152 · 12288 · 4 = 2304 · 1024² bytes; a transpose is a view, reshaping it a copy; two 32 × 32 matrices take 8192 bytes."""
    actual, answers = worked(4, lab)

    assert 2304 * 1024**2 == answers["GPT-3's feed-forward matrix, fp32"]
    assert 8192 == answers["two 32 × 32 matrices on a device"]
    assert ("nothing", 64, "refused") == tuple(
        answers[x] for x in ("x.transpose(0, 1)", "x.transpose(0, 1).reshape(16)", "x.transpose(0, 1).view(16)")
    )
    assert [NOT_MEASURED] == [v for v in verdicts(actual).values() if v != "exact"]


def test_system_05_named_dimensions(lab: Lab) -> None:
    """2 · 2 · 3 · 5 · 7 = 420 FLOP for a linear layer; shapes, FLOPs and gradients against a real run."""
    actual, answers = worked(5, lab)

    assert (420, 4620, 24, 0) == tuple(
        answers[p] for p in ("b s d, d f -> b s f", "b q h d, b k h d -> b h q k", "b s d -> b s", "b s (h k) -> b h s k")
    )
    assert sum("gradient" in check.quantity for check in actual.checks) == 3 * 2 + 2


@pytest.mark.slow
def test_system_06_matrix_product(lab: Lab) -> None:
    """2 · 16384 · 32768 · 8192; strictly 3 · 5 · (2 · 7 − 1) = 195; elementwise work is below 5 % from a width of 64 on."""
    _, answers = worked(6, lab)

    assert 8796093022208 == answers["a product of (16384, 32768) by (32768, 8192)"]
    assert 195 == answers["strictly, at B = 3, D = 7, K = 5"]
    assert 64 == answers["the smallest of these widths d at which the elementwise part is below 5 %"]


def test_system_07_mfu(lab: Lab) -> None:
    """The notes' 1.98 is refused; over the peak of the format it is 0.988."""
    _, answers = worked(7, lab)

    assert "refused" == answers["the same over the peak of fp32"]
    assert Fraction("70332313733350.195") / (712 * 10**11) == answers["MFU of their rate in bf16"]


def test_system_08_scalar_gradient(lab: Lab) -> None:
    """(x·w − 5) x = (6 − 5) (1, 2, 3)."""
    _, answers = worked(8, lab)

    assert (6, 0.5, 1) == (answers["u = x·w"], answers["ℒ = ½(u − 5)²"], answers["dℒ/du = u − 5"])
    assert "(1, 2, 3)" == answers["dℒ/dw = (u − 5)·x"]


@pytest.mark.slow
def test_system_09_two_layer(lab: Lab) -> None:
    """Forward 2BD² + 2BDK; backward 4BDK + 2BD², 4BDK + 4BD² if the input needed its gradient; the 6 fails for shared weights."""
    actual, answers = worked(9, lab)
    b, d, k = 16384, 32768, 8192

    assert 2 * b * d * d + 2 * b * d * k == answers["forward"]
    assert 4 * b * d * k + 2 * b * d * d == answers["backward as executed"]
    assert 4 * b * d * k + 4 * b * d * d == answers["backward if the input needed its gradient"]
    assert 6 * 8 - 2 == answers["one matrix used 8 times"]
    assert [q for each in actual.derived for q in [each.quantity]] == ["flops.forward.matmul", "flops.backward.matmul"]


@pytest.mark.slow
def test_system_10_initialization(lab: Lab) -> None:
    """Variance is the fan-in, 1 after division by its root, D^layers through depth; a cut at absolute bounds leaves it as it is."""
    actual, answers = worked(10, lab)

    assert 16384 == answers["variance of an output, D = 16384, weights of deviation 1"]
    assert 1 == answers["variance of an output, D = 16384, weights of deviation 1/128"]
    assert 128.0**4 == answers["variance after 4 layers of 128, weights of deviation 1"]
    assert 1.0 == answers["variance left by a cut at ±3, deviation 1/128"]
    assert "2/(D + K)" == answers["variance of Xavier's weights, D → K"]
    assert set(verdicts(actual).values()) == {"within"}
    assert_commands_run(actual)


def test_system_11_cruncher(lab: Lab) -> None:
    """36 parameters, gradients and squares; 28 saved for backward and 368 FLOP where the lecture says 16 and 432."""
    actual, answers = worked(11, lab)

    assert [36, 36, 36, 28] == [answers[name] for name in ("parameters", "gradients", "AdaGrad's state", "saved for backward")]
    assert (544, 368, 8256) == (answers["bytes of all of these"], answers["matmul FLOPs"], answers["parameters at D = 64"])
    assert (16, 496, 432) == tuple(answers[f"the lecture's {rule}"] for rule in ("BDL activations", "4 bytes per value", "6BN"))
    assert set(verdicts(actual).values()) == {"exact"}


@pytest.mark.slow
def test_system_12_optimizers(lab: Lab) -> None:
    """Every rule gives torch's own steps, and every state and count is that of a real step."""
    actual, answers = worked(12, lab)

    assert set(answers) == {"sgd", "momentum", "adagrad-lecture", "adagrad", "rmsprop", "adam", "adamw"}
    assert sum(check.quantity.startswith("ten steps") for check in actual.checks) == 7
    assert sum(check.verdict == "exact" for check in actual.checks) >= 12
    because = {row.quantity: row.because for row in actual.rows}
    assert because["sgd"].startswith("θ ← θ − lr·g; 0 bytes of state")
    assert because["momentum"].startswith("b ← g where t = 1; else μ·b + (1 − τ)·g, θ ← θ − lr·b; ")
    assert "; torch's kernels: 13·n" in because["adam"]
    assert "torch" not in because["adagrad-lecture"]


def test_system_13_training_loop(lab: Lab) -> None:
    """The loss falls and the weights that made the data are found; 2 · 8 · 16 FLOP forward and as many backward."""
    actual, answers = worked(13, lab)

    assert 2 * (2 * 8 * 16) == answers["matmul FLOPs per step"]
    assert verdicts(actual)["loss falls"] == verdicts(actual)["weights learned"] == "exact"
    assert_commands_run(actual)


def test_system_14_data_loading(lab: Lab) -> None:
    """Two of B · T tokens, 2 bytes each in the file and 8 in a batch: 2 · 4 · 129 · 8 = 8256; 2 · 3 batches ahead, in real workers too."""
    actual, answers = worked(14, lab)

    assert (20014, 2 * 4 * 129 * 2, 8256) == tuple(
        answers[x] for x in ("a file of 10,007 tokens of 2 bytes", "read of it for a batch", "a batch in int64")
    )
    assert (6, 7 * 8256) == (answers["batches that 2 workers load ahead, prefetch_factor 3"], answers["memory of batches on the host then"])
    assert "exact" == verdicts(actual)["batches loaded ahead"]


@pytest.mark.slow
def test_system_15_checkpoint(lab: Lab) -> None:
    """Resumed bit for bit, the files to the byte; without state of optimizer or scheduler training differs; save every 53.7 minutes."""
    actual, answers = worked(15, lab)

    assert set(verdicts(actual).values()) == {"exact"}
    assert (8, 5056, 193) == tuple(
        answers[f"progress: {x}"] for x in ("iteration", "random generator: torch, CPU", "scheduler: CosineAnnealingLR")
    )
    assert round(float(answers["how often to save, if it takes 60 s and a failure comes once a day"]), 1) == 53.7


@pytest.mark.slow
def test_system_16_mixed_precision(lab: Lab) -> None:
    """Products run in bf16 both ways, parameters and gradients are fp32; 16 bytes a parameter with fp32 copies too."""
    actual, answers = worked(16, lab)

    assert [16, 16, 16, 8] == [answers[f"bytes per parameter, {p}"] for p in ("fp32", "bf16-autocast", "bf16-master", "bf16")]
    assert ("bfloat16", "bfloat16", "float32") == tuple(
        answers[f"under autocast: {x}"] for x in ("forward", "backward", "parameters and gradients")
    )
    layer = "fp8 forward of a linear layer, one scale per tensor"
    assert ("B*D + 4", "2*B*D*K") == (answers[f"{layer}: saved for backward"], answers[f"{layer}: FLOPs of the forward"])
    scaled = next(row.because for row in actual.rows if row.quantity == "the same with the loss scaled by 1024")
    assert "1.024e-5 rounds to the subnormal 172·2⁻²⁴; divided by 1024 in fp32 that is 1.0012e-8" == scaled
    assert ("runs", "refused") == tuple(
        answers[f"fp8 on a CPU, {use}"] for use in ("matmul of e4m3 by e4m3, a scale per tensor", "backward through the matmul")
    )


@pytest.mark.slow
def test_system_17_transformer(lab: Lab) -> None:
    """GPT-2 has 124,439,808 parameters; checkpointing keeps less and repeats more; rules of thumb stand beside what is."""
    actual, answers = worked(17, lab)

    assert 124439808 == answers["parameters"]
    assert int(answers["saved with checkpointing block"]) < int(answers["saved with checkpointing none"])
    assert sum(str(name).startswith("rule of thumb") for name in answers) >= 3
    assert {"exact", "in parts"} == set(verdicts(actual).values())


@pytest.mark.slow
def test_system_18_randomness(lab: Lab) -> None:
    """Two runs from one seed agree, from two they do not; seeding one source seeds no other, except that torch seeds workers."""
    actual, answers = worked(18, lab)

    assert ("the same losses", "different losses") == (answers["two trainings from one seed"], answers["from another seed"])
    measured = {c.quantity.rpartition(" ")[2]: (c.verdict, c.measured) for c in actual.checks if c.quantity.startswith("of all sources")}
    assert measured["random.seed"] == ("exact", "random")
    assert measured["numpy.random.seed"] == ("exact", "numpy.random")
    assert measured["torch.manual_seed"][0] == "exact"
    assert str(measured["torch.manual_seed"][1]).startswith("torch, random in a worker, numpy.random in a worker, torch in a worker")
    assert measured["torch.cuda.manual_seed_all"][0] == ("exact" if torch.cuda.is_available() else NOT_MEASURED)
    assert_commands_run(actual)


def test_system_19_compute_in_context(lab: Lab) -> None:
    """6 · 174.6e9 · 300e9 = 3.14e23; 8 · 989.5e12 · 604800 = 4.79e21; 2e25 is twice 1e25 and a fifth of 1e26."""
    _, answers = worked(19, lab)

    assert 6 * 174_600_000_000 * 3 * 10**11 == answers["GPT-3"]
    assert 8 * 989_500_000_000_000 * 604_800 == answers["eight H100, a week, at the peak"]
    assert (2, Fraction(1, 5)) == tuple(answers[f"2e25 over the threshold of {t}"] for t in ("1e+25", "1e+26"))


@pytest.mark.slow
def test_system_20_quantized_inference(lab: Lab) -> None:
    """Keys and values of 8192 tokens: 2 · 2 · 32 · 8192 · 8 · 128 bytes; fewer bits for weights, more tokens a second."""
    _, answers = worked(20, lab)

    assert 2 * 2 * 32 * 8192 * 8 * 128 == answers["keys and values of 8192 tokens"]
    speeds = [Fraction(answers[f"tokens per second at most, {form}"]) for form in ("bf16", "int8", "int4")]
    assert speeds == sorted(speeds)
    assert speeds[2] < 4 * speeds[0]
    weights = 2 * (8_030_261_248 - 128_256 * 4096)  # in bf16, without the table, of which a token reads a row
    assert Fraction(3350 * 10**9, weights + 2 * 2 * 32 * 8192 * 8 * 128) == speeds[0]
    bounds = (*speeds, speeds[2] / speeds[0])
    assert (208.287, 390.355, 677.608, 3.25324) == tuple(round(float(x), n) for x, n in zip(bounds, (3, 3, 3, 5), strict=True))


def test_a_token_reads_all_weights_but_the_embedding_table() -> None:
    """Llama 3 8B in bf16: 8,030,261,248 parameters less the 128,256 rows of 4,096, two bytes each."""
    assert 2 * (8_030_261_248 - 128_256 * 4_096) == Lab().read_each_token("llama3-8b", {"B": 1, "T": 8192}, "bf16")
