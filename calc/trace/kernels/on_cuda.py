"""Runs a step on a CPU's fake tensors by the operators that torch runs on a CUDA device (option ``kernels``).

What differs is which operators autocast casts, the fused RMS norm and dropout, and which attention has a fused kernel. Torch says itself
which operators have an autocast kernel for CUDA, also in a build without CUDA; what each does is in ``aten/src/ATen/autocast_mode.h``.
Kernels that only cuDNN has (LSTM, GRU, RNN) are refused.

The names of attention operators stay those of the CPU: a fused kernel saves the same tensors on both, but for a few bytes of random state.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from calc.errors import SpecError
from calc.graph.step import StepTrace
from calc.options import Options
from calc.platform.replaced import replaced
from calc.platform.torch_private import core, tree_leaves, tree_map
from calc.trace.kernels import replacement
from calc.trace.kernels.hide_tracing import replaced_attention

if TYPE_CHECKING:
    from calc.trace.recorder import Recorder

aten = torch.ops.aten

# -- autocast ---------------------------------------------------------------------------------------------------------

# Names of operators by their policy (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE).
_LOW = """_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input
    convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm
    baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    _scaled_dot_product_flash_attention scaled_dot_product_attention""".split()  # noqa: SIM905  # as in torch's header
_SINGLE = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar
    softplus layer_norm native_layer_norm group_norm rms_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity
    poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
    margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist
    pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
    upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa""".split()  # noqa: SIM905  # as above
_WITH_DTYPE = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList""".split()  # noqa: SIM905  # in fp32 unless the caller gives a dtype
_OTHER_OVERLOAD = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}  # those that take a dtype: fp32
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot".split()  # noqa: SIM905  # as above
_BANNED = ("binary_cross_entropy",)
POLICIES = frozenset((*_LOW, *_SINGLE, *_WITH_DTYPE, *_OTHER_OVERLOAD, *_WIDEST, *_BANNED))
_LOW_TYPES = (torch.bfloat16, torch.float16)


@functools.cache
def autocast_operators(key: str) -> frozenset[str]:
    """Names of the aten operators that have a kernel at an autocast key: ``AutocastCUDA`` or ``AutocastCPU``."""
    names = (name for name in core._dispatch_get_all_op_names() if name.startswith("aten::"))
    return frozenset(n.removeprefix("aten::") for n in names if core._dispatch_has_kernel_for_dispatch_key(n, key))


def _autocast_kernels() -> dict[str, Callable[..., Any]]:
    """Kernels at ``AutocastCPU`` that do what those at ``AutocastCUDA`` do; operators in fp16 or bf16 on both keep the CPU's."""
    cuda, cpu = autocast_operators("AutocastCUDA"), autocast_operators("AutocastCPU")
    alike = cuda.intersection(cpu, _LOW)
    kernels: dict[str, Callable[..., Any]] = dict.fromkeys(cpu - cuda, torch.library.fallthrough_kernel)
    return kernels | {name: _policy(name) for name in cuda - alike}


def _policy(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(aten, packet), overload or "default")
    if name in _BANNED:
        return functools.partial(_refuse, "torch refuses binary_cross_entropy under autocast there: use binary_cross_entropy_with_logits")
    if name not in POLICIES:
        return functools.partial(_refuse, f"what autocast does with {name} is not stated: derive the step with kernels=cpu")
    if name in _WITH_DTYPE:
        return _without_autocast(functools.partial(_into_fp32, operator))
    if name in _OTHER_OVERLOAD:
        with_dtype = getattr(aten.norm, _OTHER_OVERLOAD[name])
        return _without_autocast(lambda *args, **keywords: with_dtype(*args, **keywords, dtype=torch.float32))
    into = _low_type if name in _LOW else _widest if name in _WIDEST else _single
    return _without_autocast(functools.partial(_cast_first, operator, into))


def _without_autocast(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **keywords: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return kernel(*args, **keywords)

    return run


def _cast_first(operator: Any, into: Callable[[Sequence[Tensor]], torch.dtype], *args: Any, **keywords: Any) -> Any:
    """``operator`` on tensors that are cast to one dtype first; autocast leaves integers and doubles as they are."""
    dtype = into([x for x in tree_leaves((args, keywords)) if _casts(x)])

    def cast(value: Any) -> Any:
        return value.to(dtype) if _casts(value) else value

    args, keywords = tree_map(cast, (args, keywords))
    return operator(*args, **keywords)


def _casts(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float32, *_LOW_TYPES)


def _low_type(_: Sequence[Tensor] = ()) -> torch.dtype:
    return torch.get_autocast_dtype("cpu")


def _single(_: Sequence[Tensor]) -> torch.dtype:
    return torch.float32


def _widest(tensors: Sequence[Tensor]) -> torch.dtype:
    return torch.float32 if any(x.dtype == torch.float32 for x in tensors) else _low_type()


def _into_fp32(operator: Any, tensor: Tensor, *args: Any, dtype: torch.dtype | None = None, **keywords: Any) -> Any:
    """``operator`` with a result in fp32, unless the caller gives a dtype (some give it by position)."""
    place = [argument.name for argument in operator._schema.arguments].index("dtype") - 1
    if len(args) > place:
        args, dtype = (*args[:place], *args[place + 1 :]), args[place]
    return operator(tensor, *args, dtype=torch.float32 if dtype is None and _casts(tensor) else dtype, **keywords)


def _refuse(because: str, *_: Any, **__: Any) -> Any:
    raise SpecError(f"on a CUDA device: {because}")


# -- kernels ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running_on_cuda(recorder: Recorder, attention: str) -> Iterator[None]:
    """Context in which a traced step runs what a CUDA device would run, with that option for the kernels of attention."""
    original = nn.functional.scaled_dot_product_attention
    chosen = functools.partial(_attention, recorder, original) if attention == "fused" else original
    with (
        replacement.replaced(_autocast_kernels(), "AutocastCPU"),
        replacement.replaced({"dropout": _dropout}, "CompositeImplicitAutograd"),
        replaced(torch, rms_norm=functools.partial(_rms_norm, recorder, torch.rms_norm)),
        replaced_attention(chosen),
    ):
        yield


def refuse_cudnn(module: nn.Module) -> None:
    """Raises SpecError for a layer that only cuDNN's kernels run on a CUDA device."""
    for name, part in module.named_modules():
        if isinstance(part, nn.RNNBase):
            layer = f"{name or 'the module'} ({type(part).__name__})"
            raise SpecError(f"a CUDA device runs {layer} in one kernel of cuDNN, which has no rule: derive the step with kernels=cpu")


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``dropout`` in one kernel with a mask of one byte an element (aten/src/ATen/native/Dropout.cpp, ``is_fused_kernel_acceptable``); in
    place it has none."""
    if p == 0 or not train:
        return input
    result: Tensor = aten.native_dropout(input, p, True)[0] if p < 1 else input * torch.zeros((), dtype=input.dtype)
    return result


def _attention(
    recorder: Recorder,
    original: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **keywords: Any,
) -> Tensor:
    """Attention by a fused kernel where CUDA has one, else by the math kernel. The fused ones draw dropout inside."""
    if not _fused_on_cuda(query, key, value, attn_mask):
        with sdpa_kernel(SDPBackend.MATH):
            return original(query, key, value, attn_mask, dropout_p, is_causal, **keywords)
    before = len(recorder.ops)
    result = original(query, key, value, attn_mask, 0.0, is_causal, **keywords)
    if not any("scaled_dot_product" in op.name for op in recorder.ops[before:]):
        raise SpecError(
            "a CUDA device has a fused kernel for this attention, and a CPU has none to derive it by (of values narrower than queries,"
            " for one): derive the step with attention=math, or with kernels=cpu"
        )
    return result


def notes_on_attention(trace: StepTrace, options: Options) -> Iterator[str]:
    """A note where torch runs attention fused on a CPU and has no such kernel on a CUDA device."""
    calls = [dict(op.args) for op in trace.ops if op.phase == "forward" and "scaled_dot_product" in op.name]
    in_fp32 = [call for call in calls if call["query"].dtype == "float32"]
    if options.kernels == "cpu" and not all(_same_heads(call["query"], call["key"]) for call in in_fp32):
        yield (
            "On a CUDA device torch has no fused kernel for attention in fp32 with fewer key/value heads than query heads: it allocates"
            " the scores there (in training, those of every layer), so the peak is higher. --kernels cuda derives that step; in bf16,"
            " attention is fused on both."
        )


def _same_heads(query: Any, key: Any) -> bool:
    """What memory-efficient attention needs, the only fused kernel that takes fp32; of tensors of a step or of its trace."""
    return bool(query.shape[-3] == key.shape[-3])


def _fused_on_cuda(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether torch has a fused kernel for this call on an NVIDIA GPU of compute capability 8.0 or above: FlashAttention, memory-efficient
    or cuDNN attention (``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``). Where only FlashAttention does and the heads' width is no
    multiple of 8, torch pads it: that is not in the trace."""
    autocast = torch.is_autocast_enabled("cpu")
    dtype = _low_type() if autocast and _casts(query) else query.dtype
    if query.dim() != 4 or dtype not in (torch.float32, *_LOW_TYPES):
        return False
    widths, alignment = (query.shape[-1], value.shape[-1]), 4 if dtype == torch.float32 else 8
    efficient = _same_heads(query, key) and all(width % alignment == 0 for width in widths)
    if dtype == torch.float32 or efficient:
        return bool(efficient)
    flash = mask is None and widths[0] <= 256 and widths[0] == widths[1]
    return bool(flash or all(width % 8 == 0 and width <= 128 for width in widths))


# -- RMS norm ---------------------------------------------------------------------------------------------------------


def _traced(recorder: Recorder, name: str, arguments: Mapping[str, Any], *results: Tensor) -> list[Tensor]:
    """New tensors like ``results``, traced as those of the operator ``name``: torch's own takes plain numbers for the sizes of a row."""
    with recorder.traced_as(name, arguments):
        return list(aten._foreach_mul.Scalar(list(results), 1.0))


class _RmsNorm(torch.autograd.Function):
    """x (*M, *N), weight (*N) → y (*M, *N); saves x, weight and the reciprocal norms (*M, 1), in fp32 but for doubles."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, x: Tensor, row: tuple[Any, ...], weight: Tensor | None, eps: float | None) -> Tensor:
        with recorder.unrecorded():
            rows = x.new_empty((*x.shape[: x.dim() - len(row)], *(1 for _ in row)), dtype=torch.promote_types(x.dtype, torch.float32))
        given = {"input": x, "normalized_shape": row, "weight": weight, "eps": eps}
        y, norms = _traced(recorder, "aten._fused_rms_norm.default", given, x, rows)
        ctx.save_for_backward(x, weight, norms)
        ctx.recorder, ctx.row = recorder, row
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight, norms = ctx.saved_tensors
        _, of_x, _, of_weight, _ = ctx.needs_input_grad
        given = {"grad_out": dy, "input": x, "normalized_shape": ctx.row, "rstd": norms, "weight": weight, "output_mask": [of_x, of_weight]}
        made = iter(_traced(ctx.recorder, "aten._fused_rms_norm_backward.default", given, *([x] * of_x), *([weight] * of_weight)))
        return None, next(made) if of_x else None, None, next(made) if of_weight else None, None


def _rms_norm(
    recorder: Recorder,
    original: Callable[..., Tensor],
    input: Tensor,
    normalized_shape: Sequence[Any],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``rms_norm`` in one kernel (aten/src/ATen/native/layer_norm.cpp); with a weight of another dtype it is taken apart, as on a CPU."""
    if torch.is_autocast_enabled("cpu") and "rms_norm" in autocast_operators("AutocastCUDA"):
        input = input.to(torch.float32) if _casts(input) else input
        weight = weight.to(torch.float32) if weight is not None and _casts(weight) else weight
    if weight is not None and weight.dtype != input.dtype:
        return original(input, normalized_shape, weight, eps)
    result: Tensor = _RmsNorm.apply(recorder, input, tuple(normalized_shape), weight, eps)  # type: ignore[no-untyped-call]  # untyped in torch
    return result
