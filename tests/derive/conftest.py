"""Derived models, each made once for the tests of a worker."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

import calc
from calc.derive.result import Derivation

Derived = Callable[..., Derivation]


@pytest.fixture(scope="session")
def derived() -> Derived:
    """``derived("gpt2", optimizer="sgd")``: the derivation at the model's own sizes."""

    @functools.cache
    def derive(name: str, optimizer: str = "adamw", attention: str = "fused") -> Derivation:
        return calc.derive(calc.load(name), optimizer=optimizer, attention=attention)

    return derive
