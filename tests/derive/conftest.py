"""Derived models, each recorded once for all tests, and shared by the workers of a parallel run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from unittest import mock

import pytest

import calc
from calc.derivation import Derivation

Derived = Callable[..., Derivation]


@pytest.fixture(scope="session")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Derived:
    """``derived("gpt2", optimizer="sgd")``: the derivation at the model's own sizes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "napkin-cache"

    @functools.cache
    def derive(name: str, optimizer: str = "adamw", attention: str = "fused") -> Derivation:
        with mock.patch.dict(os.environ, NAPKIN_CACHE=str(folder)):
            return calc.derive(calc.load(name), optimizer=optimizer, attention=attention)

    return derive
