"""A search finds what trying all of them finds."""

from __future__ import annotations

import pytest

from calc.symbolic import search
from calc.symbolic.search import largest


@pytest.mark.parametrize("most", [1, 2, 3, 13, 16, 17])
def test_the_largest_that_fits_is_the_last_of_all(most):
    assert list(range(most + 1)) == [largest(lambda size, last=last: size <= last, most) for last in range(most + 1)]


def test_no_size_above_the_most_is_tried():
    tried = []

    assert 13 == largest(lambda size: tried.append(size) is None, 13)
    assert 13 == max(tried)


def test_one_is_tried_only_if_two_does_not_fit():
    tried = []

    assert 5 == largest(lambda size: tried.append(size) is None and size <= 5, 2**40)
    assert 1 not in tried


@pytest.mark.parametrize("good", [0, 7, 20])
def test_the_last_that_holds_is_the_edge_upwards_and_downwards_and_neither_end_is_tried(good):
    for edge in range(21):
        tried = []
        holds = range(min(good, edge), max(good, edge) + 1)
        bad = 21 if edge >= good else -1

        assert edge == search.last(lambda n, tried=tried, holds=holds: tried.append(n) is None and n in holds, good, bad)
        assert not {good, bad} & {*tried}
        assert edge == search.last_alike(holds.__contains__, good, bad)
