"""Values that depend on sizes and constants alone are computed on real tensors, at the requested sizes, while they are valid."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import calc
from calc.derive.result import Derivation
from calc.errors import DataDependentError, DimensionError
from calc.graph import serialize
from tests.quick import few
from tests.trace.modules import function
from tests.trace.refused import assert_names_line, refusal

# -- values that depend on sizes in an unknown way -----------------------------------------------------------------------------


def of_squares(x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[0])
    return x @ x.T @ x if (positions * positions).max() > 5000 else x


def of_squares_as_numbers(x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[0])
    return x @ x.T @ x if int((positions * positions).max()) > 5000 else x


def in_turns(x: Tensor) -> Tensor:
    return x @ x.T @ x if torch.arange(x.shape[0]).sum() % 2 == 0 else x


def of_pairs(x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[0])
    seen = (positions[:, None] >= positions) & (positions[:, None] < positions + 90)
    return x if (seen.sum(1) == positions + 1).all() else x @ x.T @ x


def written_later(x: Tensor) -> Tensor:
    """What a view was written with is in the whole, as are the sizes that this is made of."""
    marks = torch.zeros(5, dtype=torch.int64)
    torch._foreach_add_([marks[2:]], x.shape[0])
    return x @ x.T @ x if (marks.flip(0) * marks).max() > 100 else x


TAKEN: dict[Callable[[Tensor], Tensor], Callable[[int], bool]] = {
    of_squares: lambda B: (B - 1) ** 2 > 5000,
    of_squares_as_numbers: lambda B: (B - 1) ** 2 > 5000,
    in_turns: lambda B: B * (B - 1) // 2 % 2 == 0,
    of_pairs: lambda B: B > 90,
    written_later: lambda B: B * B > 100,
}


def derived(of: Callable[[Tensor], Tensor], B: int) -> Derivation:
    return calc.derive(function(of), {"B": B}, cache=False, optimizer="sgd")


@pytest.mark.parametrize("of", few(TAKEN, 2))
@pytest.mark.parametrize("rows", [*(pytest.param(rows, marks=pytest.mark.slow) for rows in (1, 3, 10, 11, 71, 72, 90, 300)), 91])
def test_a_branch_on_a_constant_is_taken_as_at_the_requested_sizes(of: Callable[[Tensor], Tensor], rows: int) -> None:
    """However small those were that the step was traced with, and wherever its outcome changes."""
    expected = 4 * rows * rows * 7 if TAKEN[of](rows) else 0

    assert expected == derived(of, rows)["flops.forward.matmul"].value


@pytest.mark.slow
def test_a_mask_of_thousands_of_positions_is_evaluated() -> None:
    assert 4 * 2003 * 2003 * 7 == derived(of_pairs, 2003)["flops.forward.matmul"].value


def test_other_sizes_that_it_depends_on_are_traced() -> None:
    """The closed forms say nothing of them; of the others they do."""
    graph = calc.trace(function(of_squares), {"B": 29}, cache=False, optimizer="sgd")
    graph = serialize.loads(serialize.dumps(graph), "it")

    assert 2 * 29 * 23 - 1 + 29 + 28 == calc.derive(graph, {"B": 29, "d": 23})["flops.forward.elementwise"].value
    with pytest.raises(DimensionError, match=r"that the step reads is not known at these sizes \(read at test_constant_propagation.py:\d+"):
        calc.derive(graph, {"B": 31})


def test_a_value_of_too_many_elements_is_refused_with_its_line() -> None:
    def marked(x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[0])
        return x if (positions[:, None] * positions).max() > 100 else -x

    with pytest.raises(calc.NapkinError, match="too many elements to be computed") as error:
        derived(marked, 5003)

    assert_names_line(error.value, marked, 2)


# -- values that repeat ----------------------------------------------------------------------------------------------------


def pairs_of(rows: int) -> Tensor:
    """Truths about each pair of rows, more than are computed one by one."""
    return (torch.ones(rows)[:, None] > 0) & (torch.ones(rows) > 0)


def repeated(x: Tensor) -> Tensor:
    return x @ x.T @ x if pairs_of(x.shape[0]).all() else x


def repeated_in_a_row(x: Tensor) -> Tensor:
    row = pairs_of(x.shape[0])[3]
    row[row] = False
    return x if row.any() else x @ x.T @ x


def filled(x: Tensor) -> Tensor:
    return x @ x.T @ x if torch.ones(x.shape[0], x.shape[0])[7].eq(1).all() else x


@pytest.mark.parametrize("of", [repeated, repeated_in_a_row, filled])
def test_values_that_repeat_are_computed_once_at_any_size(of: Callable[[Tensor], Tensor]) -> None:
    """Of 25 million pairs each; a row that is written to has its values from then on."""
    assert 4 * 5003 * 5003 * 7 == derived(of, 5003)["flops.forward.matmul"].value


def test_what_is_written_to_one_row_is_not_known_of_the_others() -> None:
    """They are one number in memory, and the whole is too large for one of each."""

    def marked(x: Tensor) -> Tensor:
        pairs = pairs_of(x.shape[0])
        pairs[3] = False
        return x if pairs[4].all() else -x

    with pytest.raises(DataDependentError) as error:
        derived(marked, 5003)

    assert_names_line(error.value, marked, 3)


def of_the_whole() -> Tensor:
    return pairs_of(5003).as_strided((2, 2), (5003, 1))


def of_a_row_that_was_written_to() -> Tensor:
    """The first two of all pairs, which are true."""
    row = pairs_of(5003)[3]
    row[row] = False
    return row.as_strided((2,), (1,), 0)


@pytest.mark.parametrize("made", [of_the_whole, of_a_row_that_was_written_to])
def test_strides_of_its_own_are_not_taken_of_repeated_values(made: Callable[[], Tensor]) -> None:
    """``as_strided`` counts in memory, in which each value is there once."""
    assert made().all()

    def marked(x: Tensor) -> Tensor:
        return x if made().all() else -x

    assert_is_data(marked, 1)


def in_another_order(x: Tensor) -> Tensor:
    """What is elementwise of a transposed matrix is in its order: the second number in memory is 2, that of the second row 5001."""
    rows = torch.arange(x.shape[0])
    pairs = (rows[:, None] * 5000 + rows).t() + 1
    return x if pairs.as_strided((2,), (1,))[1] > 1000 else x @ x.T @ x


@pytest.mark.parametrize("rows", [29, 1201])
def test_large_results_are_in_memory_in_the_order_of_the_real_ones(rows: int) -> None:
    """1201 is above the number of elements from which repetitions are looked for."""
    assert 4 * rows * rows * 7 == derived(in_another_order, rows)["flops.forward.matmul"].value


# -- what was overwritten --------------------------------------------------------------------------------------------------


def assert_is_data(marked: Callable[[Tensor], Tensor], offset: int) -> None:
    """A branch on it, ``offset`` lines below the head, is refused as one about data."""
    error = refusal(function(marked))

    assert isinstance(error, DataDependentError)
    assert_names_line(error, marked, offset)


def through_a_view(marks: Tensor, data: Tensor) -> None:
    marks[0] = data.sum()


def through_a_twin(marks: Tensor, data: Tensor) -> None:
    marks.detach().copy_(data)


def in_a_list(marks: Tensor, data: Tensor) -> None:
    torch._foreach_add_([marks.view(-1)], [data])


def at_random(marks: Tensor, _: Tensor) -> None:
    marks[1:].normal_()


def as_a_result(marks: Tensor, data: Tensor) -> None:
    torch.add(data, 1, out=marks)


@pytest.mark.parametrize("write", [through_a_view, through_a_twin, in_a_list, at_random, as_a_result])
@pytest.mark.parametrize("seen", [lambda marks: marks, lambda marks: marks[:2]], ids=["whole", "view made before"])
def test_a_constant_overwritten_with_data_is_data(write: Callable[[Tensor, Tensor], None], seen: Callable[[Tensor], Tensor]) -> None:
    """Through whichever view it was written: the zeros that it began with are no longer valid."""

    def marked(x: Tensor) -> Tensor:
        marks = torch.zeros(x.shape[1])
        asked = seen(marks)
        write(marks, x[0].detach())
        return x if asked.any() else -x

    assert_is_data(marked, 4)


def test_a_constant_exchanged_for_data_is_data() -> None:
    """The tensor is the same one, its storage is another."""

    def marked(x: Tensor) -> Tensor:
        marks = torch.zeros(x.shape[1])
        marks.data = x[0].detach()
        return x if marks.any() else -x

    assert_is_data(marked, 3)


def test_a_constant_overwritten_with_constants_is_one() -> None:
    """Through views as well: its values are followed."""

    def marked(x: Tensor) -> Tensor:
        marks = torch.zeros(x.shape[1])
        marks[:2] = 1
        marks.view(-1).sub_(1)
        return x if (marks < 0).any() else -x

    said, *_ = calc.derive(function(marked), cache=False, optimizer="sgd").assumptions  # torch 2.11 asks of a slice whether it is the whole

    assert re.fullmatch(r"the value read at .*\(marks < 0\).any\(\) else -x is the one at these sizes", said.expr)
    assert "it depends only on d and constants; computed on real tensors" == said.because
