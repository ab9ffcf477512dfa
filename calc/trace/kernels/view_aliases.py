"""Views of fake tensors that autograd takes again as it does those of real ones.

After an operator in place on a view (``nn.ReLU(inplace=True)`` behind a linear layer of three axes), autograd finds anew how each
view of the base comes from it. For real tensors that is one ``as_strided``, whose backward copies the gradient into a storage of
the base's form. Tensors with a Python dispatch, as fake ones are, would do their views again instead, which copies nothing
(``as_view`` in torch/csrc/autograd/VariableTypeUtils.h). So views are made here by what torch does for ``as_strided``.
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

# Views of one result and of their argument's format, which are what one as_strided can say.
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
    """Context in which views are for autograd what those of real tensors are. ``shown(result)`` is a context in which the next
    ``as_strided`` gives ``result``, unrecorded."""
    kernels = {view: functools.partial(_view, view, shown) for view in _VIEWS}
    with replaced(kernels, "ADInplaceOrView", with_keyset=True):
        yield


def _view(view: Any, shown: Callable[[torch.Tensor], Any], keys: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    with BelowAutograd():
        result: torch.Tensor = view.redispatch(keys & after_autograd, x, *args, **kwargs)
    # A base of another format (complex numbers seen as pairs) is not reached by strides: the view is of the tensor itself then.
    base = x._base if x._is_view() and x._base is not None and x._base.dtype == x.dtype else x
    with shown(result):
        taken: torch.Tensor = aten.as_strided.default.redispatch(
            keys, base, list(result.shape), list(result.stride()), result.storage_offset()
        )
    return taken
