"""Calls whose results have data-dependent sizes: masks that choose 4 rows of 7, or 11 elements of 35."""

from __future__ import annotations

import torch

from tests.rules.calls import add, call, ints, r


def _rows() -> torch.Tensor:
    return torch.arange(7) % 2 == 0


def _elements() -> torch.Tensor:
    return (torch.arange(35) % 3 == 1).view(7, 5) & (torch.arange(35) < 33).view(7, 5)


add("nonzero.default", lambda: call(_rows()), lambda: call(_elements()))
add("masked_select.default", lambda: call(r(7, 5), _elements()), lambda: call(r(7, 5), _rows()[:, None]))
add(
    "index.Tensor",
    lambda: call(r(7, 5), [_rows()]),
    lambda: call(r(7, 5, 3), [_elements()]),
    lambda: call(r(2, 7, 5), [None, _rows(), torch.tensor(2)]),
)
add(
    "index_put.default index_put_.default _unsafe_index_put.default",
    lambda: call(r(7, 5), [_rows()], r(4, 5)),
    lambda: call(r(7, 5), [_rows()], r(5), True),
    lambda: call(r(7, 5, 3), [_elements()], r(11, 3), True),
    lambda: call(r(2, 7, 5), [None, _rows()], r(2, 4, 5), True),
)
add("_unique2.default", lambda: call(ints(5, 11), True, True, True), lambda: call(ints(5, 2, 3)))
add("unique_consecutive.default", lambda: call(ints(5, 11), True, True), lambda: call(ints(5, 2, 3)))
add("bincount.default", lambda: call(ints(5, 11), None, 7))
