"""Operators that cost nothing at all, each with its reason."""

from __future__ import annotations

from calc.rules.registry import free

free(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten._reshape_alias.default",
    "aten.view.dtype",
    "aten.t.default",
    "aten.transpose.int",
    "aten.permute.default",
    "aten.t_.default",
    "aten.transpose_.default",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.unsqueeze_.default",
    "aten.squeeze_.dim",
    "aten.squeeze_.dims",
    "aten.view_as_real.default",
    "aten.view_as_complex.default",
    "aten._conj.default",
    "aten.set_.source_Tensor",
    "aten.set_.source_Storage_storage_offset",
    because="another view of the same elements: none is read or written",
)
free(
    "aten.slice.Tensor",
    "aten.select.int",
    "aten.diagonal.default",
    "aten.as_strided.default",
    "aten.as_strided_.default",
    "aten.unfold.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.unbind.int",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes.default",
    because="a view of a part: no element is read or written",
)
free("aten.expand.default", because="a view with stride 0: no element is read or written")
free(
    "aten.alias.default",
    "aten.detach.default",
    "aten.detach_.default",
    "aten.lift_fresh.default",
    because="the same tensor under another name: no element is read or written",
)
