"""Configs as their makers ship them against the makers' own counts of parameters."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import calc

_HERE = Path(__file__).parent
_TOTALS = tomllib.loads((_HERE / "totals.toml").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_TOTALS))
def test_parameters_are_as_many_as_published(name: str) -> None:
    """To the last one."""
    derivation = calc.derive(calc.load(f"hf:{_HERE / 'configs' / name}.json"))

    assert derivation["parameters"].value == _TOTALS[name]
