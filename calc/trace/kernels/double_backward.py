"""The second derivative of a convolution on symbolic sizes; torch's own code reads the sizes as plain numbers.

``calc.trace.kernels.composites`` installs it for gradients of gradients (a gradient penalty). The operators, and the order in
which results are freed, are those of ``_convolution_double_backward`` (aten/src/ATen/native/Convolution.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The arguments of ``aten.convolution`` other than its tensors."""

    stride: list[Any]
    padding: list[Any]
    dilation: list[Any]
    transposed: bool
    output_padding: list[Any]
    groups: int

    def of(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = aten.convolution(
            x, weight, None, self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups
        )
        return result


def double_backward(
    ggi: torch.Tensor | None,
    ggw: torch.Tensor | None,
    ggb: torch.Tensor | None,
    go: torch.Tensor,
    weight: torch.Tensor,
    x: torch.Tensor,
    stride: list[Any],
    padding: list[Any],
    dilation: list[Any],
    transposed: bool,
    output_padding: list[Any],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:
    """(ggO, the gradient of the output gradient; gradient of the input; gradient of the weight); None for those not in ``output_mask``."""
    conv = _Convolution(_each(stride, x), _each(padding, x), _each(dilation, x), transposed, _each(output_padding, x), groups)
    ggo = _of_output(conv, ggi, ggw, ggb, go, weight, x)
    gw = _of_weight(conv, ggi, go, weight) if output_mask[1] and ggi is not None else None
    gi = _of_input(conv, ggw, go, weight, x) if output_mask[0] and ggw is not None else None
    return ggo, gi, gw


def _each(values: Sequence[Any], x: torch.Tensor) -> list[Any]:
    return list(values) * (x.dim() - 2 if len(values) == 1 else 1)


def _of_output(conv: _Convolution, ggi: Any, ggw: Any, ggb: Any, go: torch.Tensor, weight: torch.Tensor, x: torch.Tensor) -> Any:
    """conv(ggI, w) + conv(x, ggw) + ggb."""
    ggo = conv.of(ggi, weight) if ggi is not None else None
    if ggw is not None:
        term = conv.of(x, ggw)
        ggo = ggo + term if ggo is not None else term
        del term
    if ggb is not None:
        whole = ggb.contiguous().view([1, ggb.shape[0], *[1] * (go.dim() - 2)]).expand(go.shape)
        ggo = ggo + whole if ggo is not None else whole
    return ggo


def _of_weight(conv: _Convolution, ggi: torch.Tensor, go: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The gradient of the weight: ggI convolved with dy over the batch, with stride and dilation exchanged."""
    one = replace(conv, stride=conv.dilation, dilation=conv.stride, transposed=False, groups=1)
    go_t, ggi_t = go.transpose(0, 1), ggi.transpose(0, 1)
    pairs = [(ggi_t, go_t)]
    if conv.groups != 1:
        pairs = [(_part(ggi_t, conv.groups, g), _part(go_t, conv.groups, g)) for g in range(conv.groups)]
    parts = [one.of(o, i) if conv.transposed else one.of(i, o) for i, o in pairs]
    result = (torch.cat(parts, 1) if conv.groups != 1 else parts[0]).transpose(0, 1)
    return _narrowed(result, weight.shape)


def _of_input(conv: _Convolution, ggw: torch.Tensor, go: torch.Tensor, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of the input: the transposed convolution of dy with ggw."""
    if conv.transposed:
        return _narrowed(replace(conv, transposed=False).of(go, ggw), x.shape)
    output_padding = list(conv.output_padding)
    for i, (kernel, size, out) in enumerate(zip(weight.shape[2:], x.shape[2:], go.shape[2:], strict=True)):
        expected = (kernel - 1) * conv.dilation[i] - 2 * conv.padding[i] + conv.stride[i] * (out - 1) + 1
        if expected != size:
            output_padding[i] = size - expected
    return replace(conv, transposed=True, output_padding=output_padding).of(go, ggw)


def _part(x: torch.Tensor, groups: int, which: int) -> torch.Tensor:
    each = x.shape[0] // groups
    return x.narrow(0, which * each, each)


def _narrowed(x: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    for i in range(2, x.dim()):
        if x.shape[i] > shape[i]:
            x = x.narrow(i, 0, shape[i])
    return x
