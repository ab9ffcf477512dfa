"""Lengths of sequences in a tensor, where torch's C++ reads them from memory: packed sequences, and the CTC loss.

Where all rows have one length (a size), or the lengths are constants, they are known here as *runs*: pairs of a number and how many
consecutive elements equal it. What torch computes from them is then written out, operator by operator. A packed sequence has the rows of
each time step after those of the step before. Lengths that are data have no closed form.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from calc.errors import DataDependentError
from calc.platform.replaced import replaced
from calc.platform.torch_private import foreign_functions, no_dispatch
from calc.trace.source_lines import user_line
from calc.trace.values.constant_propagation import attach_values, constant_values
from calc.trace.values.elements import AffineIndex, elements_of, note_elements

aten = torch.ops.aten
Runs = Sequence[tuple[Any, Any]]


@contextlib.contextmanager
def written_out() -> Iterator[None]:
    """Context in which functions that read lengths run on symbolic sizes."""
    functions: Any = foreign_functions
    loss = functools.partial(_mean_of_paths, torch.ctc_loss)
    with replaced(functions, _pack_padded_sequence=_pack, _pad_packed_sequence=_pad), replaced(torch, ctc_loss=loss):
        yield


# -- what is known of lengths -------------------------------------------------------------------------------------------------


def runs_of(lengths: Tensor) -> Runs:
    """The runs of a one-dimensional tensor. Raises ``DataDependentError`` unless sizes or constants alone determine it."""
    elements = elements_of(lengths)
    if isinstance(elements, AffineIndex) and not elements.step:
        return [(elements.first, lengths.shape[0])]
    values = constant_values(lengths)
    if values is None:
        raise DataDependentError(
            f"the sequence lengths at {user_line()} depend on data, or differ from row to row by sizes, so the step has no closed form:"
            " give all rows one length (torch.full), or constant lengths"
        )
    with no_dispatch():
        numbers = values.tolist()
    return [(number, len([*group])) for number, group in itertools.groupby(numbers)]


def each_of(lengths: Tensor) -> list[Any]:
    """The numbers one by one; reads the number of elements as a number."""
    return [number for number, count in runs_of(lengths) for _ in range(int(count))]


def largest_of(lengths: Tensor) -> Any:
    """The largest of the lengths."""
    runs = runs_of(lengths)
    return runs[0][0] if len(runs) == 1 else max(number for number, _ in runs)


def _transposed(runs: Runs) -> Runs:
    """From decreasing lengths, the number of rows at each time step; from these numbers, the lengths."""
    result, rows, before = [], sum(count for _, count in runs), 0
    for length, count in reversed(runs):
        result.append((rows, length - before))
        rows, before = rows - count, length
    return result


def _note(out: Tensor, runs: Runs) -> Tensor:
    """``out``, noting that its elements are those of ``runs``."""
    if len(runs) == 1:
        note_elements(out, AffineIndex(runs[0][0]))
    if all(type(number) is int for run in runs for number in run):
        with no_dispatch():
            attach_values(out, torch.tensor([number for number, count in runs for _ in range(count)]))
    return out


# -- packing ------------------------------------------------------------------------------------------------------------------


def packed(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The results of ``_pack_padded_sequence``, which copies all elements but the padding."""
    runs = runs_of(lengths)
    if any(before[0] < after[0] for before, after in itertools.pairwise(runs)):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True")
    batches = _transposed(runs)
    elements, steps = sum(length * count for length, count in runs), sum(count for _, count in batches)
    return x.new_empty((elements, *x.shape[2:])), _note(lengths.new_empty((steps,)), batches)


class _Packing(torch.autograd.Function):
    """``_pack_padded_sequence`` with the saved tensors and operators of torch: torch's own backward reads the batch sizes from memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
        data, batches = aten._pack_padded_sequence.default(x, lengths, batch_first)
        ctx.mark_non_differentiable(batches)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(batches)
        ctx.shape, ctx.batch_first = x.shape, batch_first
        return data, batches

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (batches,), (gradient, _) = ctx.saved_tensors, gradients
        batch, time, *rest = ctx.shape if ctx.batch_first else (ctx.shape[1], ctx.shape[0], *ctx.shape[2:])
        whole, at = torch.zeros((time, batch, *rest), dtype=gradient.dtype, device=gradient.device), 0
        for step, rows in enumerate(each_of(batches)):
            aten.slice.Tensor(aten.select.int(whole, 0, step), 0, 0, rows).copy_(aten.slice.Tensor(gradient, 0, at, at + rows))
            at += rows
        return whole.transpose(0, 1) if ctx.batch_first else whole, None, None


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    if x.requires_grad and torch.is_grad_enabled():
        packed: tuple[Tensor, Tensor] = _Packing.apply(x, lengths, batch_first)  # type: ignore[no-untyped-call]  # untyped in torch
    else:
        packed = aten._pack_padded_sequence.default(x, lengths, batch_first)
    return packed


def _pad(data: Tensor, batches: Tensor, batch_first: bool, padding_value: float, total_length: Any) -> tuple[Tensor, Tensor]:
    """``_pad_packed_sequence``, by the operators that torch runs: one copy for each run of time steps with equal batch size."""
    runs = runs_of(batches)
    shape = (total_length, runs[0][0], *data.shape[1:])
    whole = torch.full(shape, padding_value, dtype=data.dtype, device=data.device)
    lengths = _note(torch.empty((shape[1],), dtype=batches.dtype), _transposed(runs))
    at, time = 0, 0
    for rows, steps in runs:
        part = aten.slice.Tensor(data, 0, at, at + rows * steps)
        place = aten.slice.Tensor(aten.slice.Tensor(whole, 0, time, time + steps), 1, 0, rows)
        place.copy_(part.view((steps, rows, *data.shape[1:])))
        at, time = at + rows * steps, time + steps
    return whole.transpose(0, 1) if batch_first else whole, lengths


# -- CTC loss -----------------------------------------------------------------------------------------------------------------

_NONE, _MEAN = 0, 1


def _mean_of_paths(
    original: Callable[..., Tensor],
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = _MEAN,
    zero_infinity: bool = False,
) -> Tensor:
    """``torch.ctc_loss``. For lengths in a list, torch makes the tensor to divide by directly in memory: its operators are here."""
    if isinstance(target_lengths, Tensor) or reduction != _MEAN:
        return original(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    rows = log_probs if log_probs.dim() == 3 else log_probs.unsqueeze(1)
    losses = original(rows, targets, input_lengths, target_lengths, blank, _NONE, zero_infinity)
    return (losses / torch.empty((len(target_lengths),), dtype=losses.dtype).clamp_min(1)).mean()


def ctc_loss(log_probs: Tensor, targets: Tensor, _: Tensor, target_lengths: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    """``_ctc_loss``: (B,) losses and (B, T, 2·S + 1) log-probabilities of the paths, for a longest target of S labels with blanks around
    them."""
    return _paths(log_probs, largest_of(target_lengths))


def ctc_loss_of_numbers(log_probs: Tensor, targets: Tensor, _: Any, target_lengths: Sequence[int], *__: Any) -> tuple[Tensor, Tensor]:
    """``_ctc_loss`` with lengths that are numbers."""
    return _paths(log_probs, max(target_lengths))


def _paths(log_probs: Tensor, letters: Any) -> tuple[Tensor, Tensor]:
    steps, batch, _ = log_probs.shape
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, 2 * letters + 1))
