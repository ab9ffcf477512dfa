"""``napkin shard`` and ``napkin layout``: words in, memory, traffic and time out; nonsense is one line and status 2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fractions import Fraction

import pytest

import calc
from calc.capacity.sharding.request import best, shard
from calc.symbolic.exact import evaluate_text
from reports.cli import napkin

DECODER = ("L=6", "d=64", "h=4", "g=2", "f=128", "V=500", "T=128")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        napkin.main(list(words))
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_a_number_of_parameters_under_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """2 + (2 + 12)/64 bytes of 7.5 billion: 16.6 GB, as ZeRO's first figure has it, and 4 of a step counter."""
    status, out, _ = run(capsys, "shard", "parameters=7.5e9", "data=64", "zero=2")

    assert status == 0
    assert f"{75 * 10**8 * 2 + 75 * 10**8 * 14 // 64 + 4:,}" in out.replace("\u00a0", " ")


LETTER = re.compile(r"[A-Za-z_]\w*")
FUNCTIONS = {"Max", "Min", "Mod", "floor", "ceiling", "and", "or"}
LAYOUTS = [
    ("data=2", "tensor=2", "pipeline=3", "batch=8", "sequence=regather", "zero=1", "gpu=h100-sxm"),
    ("data=3", "zero=3", "rank=2"), ("context=2", "exchange=gather", "checkpointing=block", "gpu=h100-sxm"),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_variable_of_the_output_has_its_meaning(capsys: pytest.CaptureFixture[str], layout: tuple[str, ...]) -> None:
    """In a line of its own, as what a collective sends, or in the table of what was put in."""
    _, out, _ = run(capsys, "shard", *DECODER, *layout)
    said = set(re.findall(r"  (\w+) = ", out, re.MULTILINE)) | set(re.findall(r"^(\w+)  ", out.partition("Variable  ")[2], re.MULTILINE))
    actual = shard(None, dict(word.split("=") for word in (*DECODER, *layout)), lambda _: None)
    lines = [*actual.fullest.calculation.steps, *(actual.step.steps if actual.step else ())]

    assert {name for line in lines for name in LETTER.findall(line.expr)} - FUNCTIONS - said == set()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_letter_of_the_json_has_a_value_and_a_source(capsys: pytest.CaptureFixture[str], layout: tuple[str, ...]) -> None:
    """Of each stage and of the step, so that each line can be worked out again from what stands before it."""
    _, out, _ = run(capsys, "shard", *DECODER, *layout, "--json")
    document = json.loads(out)

    assert document["stages"]
    for calculation in [stage["calculation"] for stage in document["stages"]] + ([document["step"]] if document["step"] else []):
        values = {put["symbol"]: Fraction(put["value"]) for put in calculation["inputs"]}
        assert all(put["meaning"] and put["source"] for put in calculation["inputs"])
        for step in calculation["steps"]:
            assert evaluate_text(step["expr"], values) == Fraction(step["value"])
            values[step["symbol"]] = Fraction(step["value"])


def test_what_nobody_asked_for_is_called_an_assumption(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole peak, and 8 devices to a node, until they are given."""
    _, assumed, _ = run(capsys, "shard", *DECODER, "data=2", "gpu=h100-sxm")
    _, given, _ = run(capsys, "shard", *DECODER, "data=2", "gpu=h100-sxm", "efficiency=50%", "node=1", "link=100GB/s")
    rows = [{line.split()[0]: " ".join(line.split()) for line in out.splitlines() if line[:3].strip() in ("eta", "R", "Wn")}
            for out in (assumed, given)]  # fmt: skip

    assert rows == [
        {
            "eta": "eta 1 share of the peak that matmuls reach assumed, all of the peak; efficiency=… changes that",
            "Wn": "Wn 450,000,000,000 bytes/s links of a node, per direction and device NVIDIA H100 datasheet",
            "R": "R 8 devices devices of a node assumed, as in most machines; node=… changes that",
        },
        {
            "eta": "eta 0.500 share of the peak that matmuls reach as given",
            "Wn": "Wn 100,000,000,000 bytes/s links of a node, per direction and device as given",
            "R": "R 1 device devices of a node as given",
        },
    ]


def test_a_device_that_may_be_too_small_is_not_said_to_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """The account's bytes are an upper bound, at least so many of which are live at once: one byte less than all is not enough to know."""
    actual = shard(None, dict(word.split("=") for word in DECODER), lambda _: None)
    _, out, _ = run(capsys, "shard", *DECODER, "gpu=h100-sxm", f"memory={actual.memory - 1}B")

    assert "may not fit: the sum is an upper bound, of which at least " in " ".join(out.split())


def test_whether_it_fits_is_in_the_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """None without a machine."""
    documents = [json.loads(run(capsys, "shard", *DECODER, *more, "--json")[1]) for more in ((), ("gpu=h100-sxm",))]

    assert [document["fit"] for document in documents] == [None, "fits"]
    assert all(document["memory"]["at_once"] <= document["memory"]["value"] for document in documents)


def test_json_has_every_line_and_exact_fractions(capsys: pytest.CaptureFixture[str]) -> None:
    """Kinds add up to the total; what is sent is a fraction as text."""
    _, out, _ = run(capsys, "shard", *DECODER, "data=3", "zero=3", "--json")
    document = json.loads(out)

    assert document["schema"] == 2
    (stage,) = document["stages"]
    assert sum(stage["memory"].values()) == stage["total"] == document["memory"]["value"]
    assert [item["collective"] for item in stage["traffic"]] == ["reduce-scatter", "all-gather"]
    assert (document["step"], document["because"]) == (None, "no device was given")


def test_a_search_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The winner in full, the others by layout, memory, time and cost."""
    _, out, _ = run(capsys, "layout", *DECODER, "devices=8", "gpu=h100-sxm", "batch=16", "tensor=2", "--json")
    document = json.loads(out)

    assert document["winner"]["layout"]["tensor"] == 2
    assert document["valid"] >= document["fitting"] > 0
    assert document["runners_up"]
    assert all(loser["because"] for loser in document["runners_up"])


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("shard",), "name a model, or give parameters=70e9, or a decoder by its sizes: L=32 d=4096 h=32 f=14336 V=128256 T=8192"),
        (("shard", "parameters=7e9", "tensor=2"),
         "the given number of parameters can be sharded by data parallelism and ZeRO only, not by tensor:"
         " a number of parameters does not determine matrices, heads"
         " or layers; name a model, or give its sizes (L, d, h, f, V, T)"),
        (("shard", "parameters=7e9", "data=2", "data=3"), "data is given twice, '2' and '3': give it once"),
        (("shard", "parameters=7e9", "data"), "cannot read 'data': write KEY=VALUE, e.g. data=8"),
        (("shard", "parameters=7e9", "L=3"), "L is a size of a model, and parameters=7e9 is not a model: name a model, or leave it out"),
        (("shard", "parameters=7e9", "data=2", "devices=8"),
         "data 2*tensor 1*pipeline 1*context 1*expert 1 = 2 is not devices = 8: the ranks of all kinds multiply to the devices"),
        (("shard", *DECODER, "tensr=2"), "unknown key 'tensr': did you mean tensor?"),
        (("shard", *DECODER, "tp=2"), "unknown key 'tp': did you mean tensor?"),
        (("layout", *DECODER, "gpus=8", "devices=8"), "devices is given twice: devices and gpus are the same key"),
        (
            ("layout", *DECODER, "gpus=8", "gpu=h100-sxm"),
            "layout needs batch (sequences of a step, all devices together): give it, e.g. batch=16",
        ),
        (("shard", *DECODER, "memory=80GB"), "memory is a property of a machine: name one too, e.g. gpu=h100-sxm"),
        (("shard", *DECODER, "gated=perhaps"), "gated = 'perhaps' is neither yes nor no"),
        (("shard", *DECODER, "zero=-1"), "zero = -1 is not a whole number of at least 0"),
        (("shard", *DECODER, "gpu=h100-sxm", "efficiency=60"), "efficiency = '60' is above 1: did you mean 0.6, or 60%?"),
        (("shard", "llama3-8b", "gated=no"), "gated describes a decoder by its sizes: llama3-8b needs no description"),
        (("shard", "llama3-8b", "B=4"),
         "B follows from the layout: micro is the number of sequences per rank and micro-batch, batch that of a whole step"),
        (("layout",), "layout needs a model, devices, gpu and batch (sequences of a step, all devices together): give them, e.g."
         " llama3-8b devices=512 gpu=h100-sxm batch=1024"),
        (("layout", *DECODER, "gpu=h100-sxm", "batch=8"), "layout needs devices: give it, e.g. devices=512"),
        (("layout", *DECODER, "devices=8", "gpu=h100-sxm"),
         "layout needs batch (sequences of a step, all devices together): give it, e.g. batch=16"),
        (("shard", "L=4", "d=64"), "a decoder by its sizes needs h (heads), V (vocabulary), T (length) and f (feed-forward width, or"
         " gated=no for f = 4*d): give them, e.g. h=32 V=128256 T=8192 f=14336, or name a model"),
        (("layout", *DECODER, "devices=8", "gpu=h100-sxm", "batch=8", "rank=1"), "a search compares the fullest ranks: leave rank out"),
    ],
)  # fmt: skip
def test_nonsense_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], refusal: str) -> None:
    """On standard error, with status 2, and nothing on standard output."""
    assert (2, "", f"napkin: {refusal}\n") == run(capsys, *words)


@pytest.mark.parametrize("words", [
    ("layout", "L=2", "d=100"), ("layout", "L=2", "h=3", "gated=no", "devices=3"), ("layout", "L=2", "g=3", "gpu=h100-sxm"),
    ("shard", "E=4"), ("shard", "E=1", "L=2", "d=36"), ("shard", "e=9", "tensor=2"),
    ("layout", "d=64", "h=4", "f=96", "V=101", "T=16", "tensor=2"),
])  # fmt: skip
def test_all_that_is_missing_is_said_at_once_with_words_that_work(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """Sizes of the model, devices, accelerator and batch; what is to be typed goes behind what was."""
    status, _, message = run(capsys, *words)
    example = message.partition(", e.g. ")[2].removesuffix("\n").removesuffix(", or name a model").split()

    assert (2, 0) == (status, run(capsys, *words, *example)[0])


def test_a_model_may_come_behind_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    """The example is pasted behind what was typed; two models are refused."""
    assert run(capsys, "shard", "zero=1", "linear")[:2] == run(capsys, "shard", "linear", "zero=1")[:2]
    assert (2, "", "napkin: cannot read 'linear': write KEY=VALUE, e.g. data=8\n") == run(capsys, "shard", "linear", "linear")


def test_hostile_words_do_not_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are shown."""
    status, out, err = run(capsys, "shard", *DECODER, "\x1b[31m=2")

    assert (status, out) == (2, "")
    assert "\x1b" not in err


def test_layouts_by_letters_need_neither_torch_nor_sympy() -> None:
    """Nor does the search, which needs numpy."""
    code = (
        "import sys; sys.modules.update({'torch': None, 'sympy': None});"
        "from calc.capacity.sharding.request import best, shard; words = dict(w.split('=') for w in sys.argv[1:]);"
        "shard(None, {**words, 'data': '2'}, print); best(None, {**words, 'devices': '4', 'batch': '8', 'gpu': 'h100-sxm'}, lambda _: None)"
    )
    done = subprocess.run([sys.executable, "-c", code, *DECODER], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.slow
def test_a_model_by_its_name_is_derived() -> None:
    """Exact bytes of its own tensors: 8,030,261,248 parameters whose rows 8 divides."""
    words = {"data": "8", "zero": "3", "T": "64"}
    actual = shard("llama3-8b", words, lambda _: None)

    assert actual.fullest.kinds["weights"] == 2 * 8_030_261_248 // 8
    assert actual.model.source == "derived from a trace of its step"
    search = best("llama3-8b", {"devices": "8", "batch": "8", "gpu": "h100-sxm", "T": "64"}, lambda _: None)
    assert search.winner.memory <= 80 * 10**9


@pytest.mark.slow
def test_one_layer_and_one_sequence_are_sharded_as_they_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes at which the step runs other operators than at larger ones: traced, and of this very model."""
    status, out, _ = run(capsys, "shard", "gpt2", "micro=1", "L=1", "T=8", "d=30", "h=3", "V=17", "C=11", "data=2", "--json")

    parameters = calc.derive(calc.load("gpt2"), {"B": 1, "L": 1, "T": 8, "d": 30, "h": 3, "V": 17, "C": 11})["parameters"].value
    assert status == 0
    assert json.loads(out)["stages"][0]["memory"]["weights"] == 2 * parameters  # bf16
