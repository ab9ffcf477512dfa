"""Configs as their makers publish them: derived, checked and reported at full size with default options."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from calc.pipeline.verdict import EXACT, IN_PARTS, NOT_MEASURED
from reports import cli
from reports.jobs import job

_HERE = Path(__file__).parent
CONFIGS = sorted(_HERE.joinpath("configs").glob("*.json"))
TOTALS = tomllib.loads((_HERE / "totals.toml").read_text(encoding="utf-8"))

# Four changes that may lower the peak, derived for the report, take a third of its time: for some configs, by a seed.
WITH_LEVERS = frozenset(random.Random(0).sample(CONFIGS, 12))


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=[config.stem for config in CONFIGS])
def test_a_published_config_is_derived_checked_and_reported(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its own sizes: every quantity has a closed form that equals the real run at the sizes of the check, which the report says. It has
    as many parameters as its makers say, to the last one."""
    if config not in WITH_LEVERS:
        monkeypatch.setattr(job, "levers", lambda *_: ())
    done = CliRunner().invoke(cli.napkin, ["report", f"hf:{config}", "-o", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json", "report.md"]
    report = json.loads((tmp_path / "report.json").read_text())
    assert [check for check in report["checks"] if check["verdict"] not in (EXACT, IN_PARTS, NOT_MEASURED)] == []
    decided = "n1" in report["dims"]  # tokens of each expert, which differ: what is not linear in them is open
    assert sum(check["verdict"] in (EXACT, IN_PARTS) for check in report["checks"]) >= (10 if decided else 20)
    assert report["checked_at"].keys() <= report["dims"].keys() | report["specialized"].keys()
    assert "The checks ran at" in (tmp_path / "report.md").read_text()
    parameters = report["quantities"]["parameters"]["value"]
    assert parameters == TOTALS.get(config.stem, parameters)


def test_every_published_total_is_that_of_a_config() -> None:
    assert TOTALS.keys() <= {config.stem for config in CONFIGS}
