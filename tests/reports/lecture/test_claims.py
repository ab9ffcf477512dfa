"""Every claim has a finding, and a planted wrong constant changes the verdict of what rests on it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calc.hardware import accelerators
from reports import cli
from reports.lecture import runs
from reports.lecture.audit import audit, claims
from reports.lecture.disputes import DISPUTES
from reports.lecture.lab import Lab
from reports.lecture.repairs import error_json, run_errors
from reports.lecture.sources import notes
from reports.lecture.verdicts import VERDICTS

IDS = (Path(__file__).parent / "ids.txt").read_text(encoding="utf-8").split()
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
GALLERY = Path(__file__).resolve().parents[3] / "reports" / "gallery"
# Claims that need no model, as they follow from formats, published figures and small runs.
QUICK = {
    "q1-144days": "holds after rounding",
    "q1-h100-1979-half": "holds",
    "q1-h100-1979-is-fp8": "holds",
    "q1-div2-reason": "misleading",
    "q2-640": "holds",
    "gpt3-3.14e23": "holds after rounding",
    "eo-004": "wrong",
    "8h100-week": "approximate",
    "8h100-two-weeks": "wrong",
    "h100-fp32-orders": "misleading",
    "mfu-fp32-val": "holds",
    "mfu-bf16-val": "wrong",
    "mfu-bf16-suspect": "holds",
    "mfu-004-lower": "holds",
    "fp16-max": "holds",
    "bf16-2018": "misleading",
    "fp16-0.01-exp": "wrong",
    "fp16-0.01-value": "holds",
    "fp16-minnormal-sign": "wrong",
    "fp16-111111": "wrong",
    "bf16-1001": "wrong",
    "bf16-digits": "wrong",
    "fp16-range": "approximate",
    "fp32-001-0.15625": "holds",
    "fp8-range-e4m3": "holds",
    "mem-128": "holds",
    "mem-gpt3-ffn": "approximate",
    "mem-004-2.3": "approximate",
    "einops-sum": "wrong",
    "flop-matmul-2size": "wrong",
    "mfu-bf16-70": "holds",
    "opt-momentum": "misleading",
    "mem-004-180gb": "wrong",
    "stride-6": "holds",
    "contig-makes": "wrong",
    "grad-123": "holds",
    "grad-xbdd": "wrong",
    "flop-2d-1": "holds",
    "mp-000": "wrong",
    "opt-adagrad-avg": "wrong",
    "data-llama-2.8tb": "holds",
    "code-loader-async": "wrong",
}


# Claims that a command shows, without a model.
COMMANDED = ("q1-144days", "q2-40b", "gpt3-3.14e23", "8h100-week", "8h100-two-weeks", "mfu-ideal-1", "mfu-003", "mfu-fp32-time",
             "mfu-fp32-val", "mfu-bf16-val", "mfu-bf16-suspect", "mfu-bf16-70", "mfu-004-fp32", "mfu-004-bf16", "mfu-004-lower",
             "mfu-004-exclude-comm")  # fmt: skip


def verdicts(*names: str) -> dict[str, str]:
    return {c.claim.id: c.finding.verdict for c in audit(Lab(), names).claims}


def test_every_claim_of_the_list_is_there_once_and_no_other() -> None:
    """187 ids, each with a restatement of one sentence."""
    actual = [claim.id for _, claim in claims()]

    assert len(IDS) == 187
    assert sorted(IDS) == sorted(actual)
    assert [] == [claim.id for _, claim in claims() if not claim.says.endswith(".")]


def test_a_restatement_keeps_the_numbers_that_the_notes_print() -> None:
    """``numbers.txt``: of each claim with numbers, those that the notes' own words print."""
    says = {claim.id: {float(number) for number in _NUMBER.findall(claim.says)} for _, claim in claims()}
    lines = (Path(__file__).parent / "numbers.txt").read_text(encoding="utf-8").splitlines()
    printed = {name: {float(number) for number in numbers} for name, *numbers in map(str.split, lines)}

    assert len(printed) > 80
    assert {} == {name: sorted(numbers - says[name]) for name, numbers in printed.items() if not numbers <= says[name]}


def test_every_claim_stands_in_some_of_the_five_sets_of_notes() -> None:
    """And in no other."""
    assert sorted(IDS) == sorted(notes())
    assert {"000", "001", "002", "003", "004"} == {note for actual in notes().values() for note in actual}


@pytest.mark.slow
def test_commands_that_show_a_claim_run_as_they_are_printed() -> None:
    """Each is whole, and its answer has the claim's number; the rate beyond the peak is refused."""
    printed = {c.claim.id: c.finding for c in audit(Lab(), COMMANDED).claims}
    shown: dict[str, list[str]] = {}
    for name, finding in printed.items():
        for command in (part for part in finding.computed_by.split("; ") if part.startswith("napkin ")):
            done = CliRunner().invoke(cli.napkin, shlex.split(command)[1:])
            assert done.exit_code == 0 or "is above 1: no device outruns its peak" in done.stderr, (name, done.stderr)
            shown.setdefault(name, []).append(done.stdout.split(" ")[0])

    assert [*shown] == [*printed]
    for name in ("mfu-fp32-val", "mfu-bf16-val", "mfu-004-exclude-comm", "mfu-004-lower", "q1-144days"):
        assert float(shown[name][-1]) == pytest.approx(float(printed[name].value), rel=1e-4)


def test_contradictions_are_between_claims_that_there_are() -> None:
    """And each is between several."""
    assert [] == [name for dispute in DISPUTES for name in dispute.claims if name not in IDS]
    assert all(len(set(dispute.claims)) > 1 for dispute in DISPUTES)


def test_verdicts_of_claims_that_need_no_model() -> None:
    """Computed here, all of them."""
    assert verdicts(*QUICK) == QUICK


def test_the_step_of_a_70b_model_is_compared_with_the_product_that_stands_beside_it() -> None:
    """481,434,796,032 FLOP a token · 15e12 tokens / 6.3e24 = 1.146; over 6 · 70.55e9 parameters it would be 1.137."""

    class Known(Lab):
        def value(self, model: str, quantity: str, sizes: Mapping[str, int], **options: str) -> int:
            return {"flops.forward.matmul": 481_434_796_032 * 8192, "parameters": 70_553_706_496}.get(quantity, 0)

    (actual,) = audit(Known(), ("q1-6nd",)).claims
    assert "6·N·D = 6.3e+24; a real 70B model executes 1.146 times that at T = 8192, attention in full" == actual.finding.because


def test_fewer_matmuls_are_no_fewer_flops() -> None:
    """2·11·7·15 = 2,310 in one product, and three times 2·11·7·5 in three; GPT-2's are most of the FLOPs, here 98 of 100."""

    class Known(Lab):
        def value(self, model: str, quantity: str, sizes: Mapping[str, int], **options: str) -> int:
            return {"flops.forward.matmul": 98, "flops.forward.total": 100}[quantity]

    (actual,) = audit(Known(), ("flop-reduce-matmul",)).claims
    assert actual.finding.verdict == "misleading"
    assert "takes 2310 FLOP, three of 11 × 7 by 7 × 5 take 2310" in actual.finding.because


def test_code_that_fails_has_a_repair_that_runs() -> None:
    """The exception's type, and what the repaired lines give: 2·3·5·7 = 210."""
    assert {run.error.name: (run.message.partition(":")[0], run.result) for run in run_errors()} == {
        "get-batch-arguments": ("TypeError", "a batch of (2, 4)"),
        "iterator-next": ("AttributeError", "a batch of (4,)"),
        "top-level-return": ("SyntaxError", "210 FLOP"),
    }
    for run in run_errors():
        document = error_json(run)
        names: dict[str, Any] = {}
        exec(document["repaired"], names)  # as a reader would run it
        assert names["shown"] == document["result"]


def test_a_command_shows_one_claim() -> None:
    """As text and as JSON, with the command itself; no file is written, and another id is refused."""
    done = CliRunner().invoke(cli.napkin, ["lecture", "--claim", "einops-sum"])
    assert (done.exit_code, done.stdout.split("\n")[1]) == (0, "  × wrong: x.sum(dim=-1)")

    document = json.loads(CliRunner().invoke(cli.napkin, ["lecture", "--claim", "mem-128", "--json"]).stdout)
    assert [(c["id"], c["command"]) for c in document["claims"]] == [("mem-128", "napkin lecture --claim mem-128")]

    for words, why in (
        (["--claim", "mem-129"], "no claim 'mem-129'; did you mean mem-128?"),
        (["--claim", "x"], "no claim 'x': lecture.json lists them"),
        (["--claim", "mem-128", "-o", "out"], "--output has no effect beside --claim, which writes no file: leave it out"),
    ):
        done = CliRunner().invoke(cli.napkin, ["lecture", *words])
        assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"napkin: {why}")


def _h100(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """An H100 with other figures, wherever one is asked for."""
    known = dict(accelerators.catalogue())
    known["h100-sxm"] = replace(known["h100-sxm"], **changes)
    monkeypatch.setattr(accelerators, "catalogue", lambda: known)
    monkeypatch.setattr(accelerators, "entry", known.get)


def _with_peak(monkeypatch: pytest.MonkeyPatch, dtype: str, tera: float) -> None:
    peaks = dict(accelerators.accelerator("h100-sxm").peaks)
    peaks[dtype] = replace(peaks[dtype], dense=Fraction(str(tera)) * 10**12)
    _h100(monkeypatch, peaks=peaks)


def _experiment(monkeypatch: pytest.MonkeyPatch, name: str, result: Any) -> None:
    """Another outcome of one experiment."""
    real = runs.experiment

    def planted(asked: str, *args: Any, **kwargs: Any) -> Any:
        return result if asked == name else real(asked, *args, **kwargs)

    for topic in ("tensors", "gradients", "precision", "flops", "learning", "formats", "mfu"):
        monkeypatch.setattr(f"reports.lecture.{topic}.experiment", planted)


PLANTED: list[tuple[str, str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("q1-144days", "holds after rounding", lambda m: _with_peak(m, "bf16", 1979), "wrong"),
    ("q1-h100-1979-half", "holds", lambda m: _with_peak(m, "bf16", 1979), "wrong"),
    ("h100-fp32-orders", "misleading", lambda m: _with_peak(m, "fp32", 6.7), "holds"),
    ("q2-640", "holds", lambda m: _h100(m, memory=85_899_345_920), "wrong"),
    ("mem-004-180gb", "wrong", lambda m: _h100(m, memory=180 * 10**9), "holds"),
    ("mem-128", "holds", lambda m: _experiment(m, "memory", 64), "wrong"),
    ("stride-6", "holds", lambda m: _experiment(m, "stride_index", (1, 4, 9)), "wrong"),
    ("grad-123", "holds", lambda m: _experiment(m, "scalar_model", ([1.0, 2.0, 4.0], False)), "wrong"),
    ("opt-adagrad-avg", "wrong", lambda m: _experiment(m, "adagrad_state", {"sum": False, "average": True}), "holds"),
]


@pytest.mark.parametrize(("name", "honest", "plant", "planted"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_planted_wrong_constant_changes_the_verdict(
    name: str, honest: str, plant: Callable[[pytest.MonkeyPatch], None], planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure of a data sheet, or what an experiment found: the verdict follows it."""
    before = verdicts(name)[name]
    plant(monkeypatch)

    assert (honest, planted) == (before, verdicts(name)[name])


def test_contradictions_are_settled_by_verdicts() -> None:
    """Of two weeks and one, the one stands; were both wrong, neither would."""
    actual = audit(Lab(), [name for dispute in DISPUTES for name in dispute.claims if "8h100" in name])
    (week,) = (d for d in DISPUTES if "8h100-week" in d.claims)

    assert (("8h100-week",), ("8h100-two-weeks",)) == (actual._settle(week).right, actual._settle(week).others)


def test_the_gallery_has_a_verdict_with_its_reason_for_every_claim() -> None:
    """The committed file: ids and words of the lists, a value, a reason, and what was run."""
    document = json.loads((GALLERY / "lecture.json").read_text(encoding="utf-8"))

    assert document["schema"] == 1
    assert sorted(IDS) == sorted(claim["id"] for claim in document["claims"])
    for claim in document["claims"]:
        assert claim["verdict"] in VERDICTS, claim["id"]
        assert claim["value"] is not None, claim["id"]
        assert all(claim[part] for part in ("claim", "because", "computed_by")), claim["id"]
        assert claim["rests_on"] in ("computation", "source", "judgment"), claim["id"]
        assert (claim["rests_on"] == "judgment") == (claim["verdict"] in ("convention", "cannot be checked")), claim["id"]
    assert list(range(1, 21)) == [system["number"] for system in document["systems"]]
    assert [] == [c["what"] for system in document["systems"] for c in system["checks"] if c["verdict"] == "failed"]


def test_the_gallery_names_no_place_of_ours() -> None:
    """No path of the machine it was made on, and no time that was measured."""
    for name in ("lecture.md", "lecture.html", "lecture.json"):
        text = (GALLERY / name).read_text(encoding="utf-8")
        assert not re.search(r"/(work|home|tmp|root)/", text), name


def _same(kept: Any, made: Any) -> bool:
    """Equal but for a float's last digits: those of a logarithm or an arc sine are the processor's."""
    if isinstance(kept, float) and isinstance(made, float):
        return math.isclose(kept, made, rel_tol=1e-12)
    if isinstance(kept, list) and isinstance(made, list):
        return len(kept) == len(made) and all(map(_same, kept, made))
    if isinstance(kept, dict) and isinstance(made, dict):
        return kept.keys() == made.keys() and all(_same(value, made[key]) for key, value in kept.items())
    return bool(kept == made)


@pytest.mark.slow
def test_the_gallery_is_what_the_command_makes(tmp_path: Path) -> None:
    """Every finding and every answer of a system computed anew: the same verdicts, values and reasons; no check fails."""
    done = CliRunner().invoke(cli.napkin, ["lecture", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    document, again = (json.loads((folder / "lecture.json").read_text(encoding="utf-8")) for folder in (GALLERY, tmp_path))

    short = ("id", "verdict", "value", "computed_by")
    assert _same([[c[k] for k in short] for c in document["claims"]], [[c[k] for k in short] for c in again["claims"]])
    assert document["contradictions"] == again["contradictions"]
    if document["provenance"] == again["provenance"]:  # reasons quote messages, and systems numbers, of torch's very version
        assert _same(document["claims"], again["claims"])
        for part in ("answers", "calculations"):
            assert _same([s[part] for s in document["systems"]], [s[part] for s in again["systems"]])
