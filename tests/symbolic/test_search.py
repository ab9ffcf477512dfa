"""The search for the largest size that fits equals trying all of them."""

from __future__ import annotations

import pytest

from calc.memory.search import largest


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
