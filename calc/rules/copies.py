"""Copies, casts and moves: no arithmetic, though every element is read and written."""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, free, rule
from calc.rules.shapes import each, whole

free("aten.clone.default", "aten._to_copy.default", because="copies or casts every element: no arithmetic", moves=True)
free(
    "aten.alias_copy.default",
    "aten.as_strided_copy.default",
    "aten.diagonal_copy.default",
    "aten.expand_copy.default",
    "aten.narrow_copy.default",
    "aten.permute_copy.default",
    "aten.split_with_sizes_copy.default",
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.t_copy.default",
    "aten.transpose_copy.int",
    "aten.unbind_copy.int",
    "aten.unfold_copy.default",
    "aten.unsqueeze_copy.default",
    "aten.view_copy.default",
    because="copies the elements of a view: no arithmetic",
    moves=True,
)
free("aten.cat.default", "aten.stack.default", because="copies its arguments side by side: no arithmetic", moves=True)
free(
    "aten.constant_pad_nd.default",
    "aten.flip.default",
    "aten.roll.default",
    "aten.repeat.default",
    because="copies elements to other positions: no arithmetic",
    moves=True,
)
free(
    "aten.slice_backward.default",
    "aten.select_backward.default",
    "aten.diagonal_backward.default",
    "aten.slice_scatter.default",
    "aten.select_scatter.default",
    because="copies a part into a whole that is written in full: no arithmetic",
    moves=True,
)
free("aten._pack_padded_sequence.default", because="copies everything but the padding, time step by time step: no arithmetic", moves=True)
free("aten._local_scalar_dense.default", because="reads one element as a Python number: no arithmetic", moves=True)


@rule(
    "aten.copy_.default",
    statement="x = source",
    source="moves elements: no arithmetic",
    convention="x is only written",
    shapes="x (*), source broadcast to (*).",
)
def copy_(op: Operator) -> Cost:
    return Cost(reads=whole(op.tensor("src")))


@rule(
    "aten.unfold_backward.default",
    statement="dx[i] = Σ dy over the windows that hold i",
    reference="torch._decomp.decompositions.unfold_backward",
    elementwise="one addition per source element",
    shapes="dy (*, windows, *, size) → dx (*).",
)
def unfold_backward(op: Operator) -> Cost:
    return Cost(elementwise=(each("dx[i] += dy", op.shape("grad_in")),))


free(
    "aten.diagonal_scatter.default",
    "aten.diag_embed.default",
    "aten.rot90.default",
    "aten.block_diag.default",
    because="copies elements to other positions: no arithmetic",
    moves=True,
)
free("aten.repeat_interleave.Tensor", because="writes each element as often as given: no arithmetic", moves=True)

