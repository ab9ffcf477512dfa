"""Configs as their makers publish them: checked and reported at full size with default options."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import calc
from calc.pipeline.verdict import EXACT, IN_PARTS, NOT_MEASURED
from reports import cli

CONFIGS = sorted(Path(__file__).parent.joinpath("configs").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=[config.stem for config in CONFIGS])
def test_a_published_config_is_derived_checked_and_reported(config: Path, tmp_path: Path) -> None:
    """At its own sizes: every quantity has a closed form that equals the real run at the sizes of the check, and a report is written."""
    derivation = calc.derive(calc.load(f"hf:{config}"))
    report = calc.check(derivation)

    assert report.passed
    assert [str(v) for v in report.verdicts if v.verdict not in (EXACT, IN_PARTS, NOT_MEASURED)] == []
    decided = any(dim.unbacked_at for dim in derivation.dims)  # tokens of each expert, which differ: what is not linear in them is open
    assert report.passed >= (10 if decided else 20)
    assert report.because
    done = CliRunner().invoke(cli.napkin, ["report", f"hf:{config}", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json", "report.md"]
