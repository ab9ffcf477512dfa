"""Views of fake tensors that autograd regenerates as it does views of real ones.

After an in-place operator on a view (``nn.ReLU(inplace=True)`` after a linear layer with three axes), autograd regenerates each view of the
base. For real tensors it uses one ``as_strided``, whose backward copies the gradient into a storage of the base's shape. For tensors with a
Python dispatch, such as fake ones, it would replay the view operators instead, which copies nothing (``as_view`` in
torch/csrc/autograd/VariableTypeUtils.h). So views are made here with torch's implementation of ``as_strided``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from calc.platform.torch_private import BelowAutograd, after_autograd
from calc.trace.kernels.replacement import replaced

aten = torch.ops.aten

# Views of one result with their argument's dtype, which a single as_strided can express.
_VIEWS = (
    aten.view.default,
    aten._reshape_alias.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.transpose.int,
    aten.t.default,
    aten.permute.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.expand.default,
    aten.alias.default,
    aten.diagonal.default,
    aten.unfold.default,
)


@contextlib.contextmanager
def aliasing_views(shown: Callable[[torch.Tensor], Any]) -> Iterator[None]:
    """Context in which autograd treats views like those of real tensors. ``shown(result)`` is a context in which the next ``as_strided``
    returns ``result`` and is not traced."""
    kernels = {view: functools.partial(_view, view, shown) for view in _VIEWS}
    with replaced(kernels, "ADInplaceOrView", with_keyset=True):
        yield


def _view(view: Any, shown: Callable[[torch.Tensor], Any], keys: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    with BelowAutograd():
        result: torch.Tensor = view.redispatch(keys & after_autograd, x, *args, **kwargs)
    # Strides cannot reach a base of another dtype (complex numbers as pairs): the view is then of the tensor itself.
    base = x._base if x._is_view() and x._base is not None and x._base.dtype == x.dtype else x
    with shown(result):
        taken: torch.Tensor = aten.as_strided.default.redispatch(
            keys, base, list(result.shape), list(result.stride()), result.storage_offset()
        )
    return taken
