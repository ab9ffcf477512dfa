"""While a step is derived, Python searches for reference cycles rarely; before and after as the caller has set it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import calc
from calc.platform.garbage import BETWEEN_SEARCHES, rarely_searched


@pytest.fixture(autouse=True)
def own_setting() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("own", "inside"), [(700, BETWEEN_SEARCHES), (3 * BETWEEN_SEARCHES, 3 * BETWEEN_SEARCHES), (0, 0)])
def test_searches_are_never_more_frequent_than_the_caller_wants(own: int, inside: int) -> None:
    """0 switches them off."""
    gc.set_threshold(own, 7, 5)
    with rarely_searched():
        assert (inside, 7, 5) == gc.get_threshold()
    assert (own, 7, 5) == gc.get_threshold()


def test_a_derivation_from_python_is_searched_rarely() -> None:
    """The threshold that its progress sees, and the caller's after it."""
    gc.set_threshold(701, 7, 5)
    seen = set[int]()
    calc.derive(calc.load("linear"), {"B": 31}, cache=False, optimizer="sgd", progress=lambda _: seen.add(gc.get_threshold()[0]))

    assert {BETWEEN_SEARCHES} == seen
    assert (701, 7, 5) == gc.get_threshold()
