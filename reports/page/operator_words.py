"""Operators in plain words: what an ATen operator computes, as a sentence on the peak says it, with the operator's name beside it."""

from __future__ import annotations

from calc.derive.names import PeakPlace
from calc.graph.step import LOSS, OPTIMIZER, TOP

_WORDS = {
    "matmul": "mm addmm bmm baddbmm addbmm mv addmv dot matmul linear grouped_mm scaled_mm",
    "convolution": "convolution convolution_overrideable cudnn_convolution mkldnn_convolution conv1d conv2d conv3d conv_depthwise2d",
    "fused attention": "scaled_dot_product_flash_attention scaled_dot_product_flash_attention_for_cpu flex_attention"
    " scaled_dot_product_efficient_attention scaled_dot_product_cudnn_attention scaled_dot_product_attention_math"
    " scaled_dot_product_fused_attention_overrideable",
    "log-softmax": "log_softmax",
    "softmax": "softmax safe_softmax",
    "negative log-likelihood": "nll_loss_forward nll_loss nll_loss2d_forward nll_loss2d",
    "mean squared error": "mse_loss",
    "smooth L1 loss": "smooth_l1_loss huber_loss",
    "binary cross-entropy": "binary_cross_entropy binary_cross_entropy_with_logits",
    "KL divergence": "kl_div",
    "layer norm": "native_layer_norm layer_norm",
    "RMS norm": "fused_rms_norm rms_norm",
    "group norm": "native_group_norm group_norm",
    "batch norm": "native_batch_norm native_batch_norm_legit native_batch_norm_legit_functional batch_norm_with_update cudnn_batch_norm",
    "GELU": "gelu",
    "ReLU": "relu threshold",
    "SiLU": "silu",
    "ELU": "elu",
    "leaky ReLU": "leaky_relu",
    "hard swish": "hardswish",
    "hard sigmoid": "hardsigmoid",
    "softplus": "softplus",
    "gated linear unit": "glu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "dropout": "native_dropout dropout",
    "embedding lookup": "embedding embedding_dense embedding_bag",
    "max pooling": "max_pool2d_with_indices max_pool3d_with_indices max_pool2d",
    "average pooling": "avg_pool2d avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d",
    "interpolation": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest_exact1d upsample_nearest_exact2d"
    " upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d grid_sampler_2d"
    " grid_sampler_3d",
    "padding": "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d",
    "sliding windows": "im2col unfold",
    "sum of sliding windows": "col2im",
    "recurrent layer": "thnn_fused_lstm_cell thnn_fused_gru_cell cudnn_rnn lstm gru",
    "cumulative sum": "cumsum",
    "sum": "add sum",
    "difference": "sub rsub",
    "multiplication": "mul",
    "division": "div",
    "mean": "mean",
    "exponential": "exp",
    "logarithm": "log",
    "logarithm of a sum of exponentials": "logsumexp",
    "square root": "sqrt",
    "reciprocal square root": "rsqrt",
    "power": "pow square",
    "negation": "neg",
    "absolute value": "abs",
    "reciprocal": "reciprocal",
    "sine": "sin",
    "cosine": "cos",
    "maximum": "max amax maximum",
    "minimum": "min amin minimum",
    "limit to a range": "clamp clamp_min clamp_max",
    "comparison": "eq ne lt le gt ge",
    "logical operation": "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor",
    "variance": "var var_mean",
    "standard deviation": "std std_mean",
    "norm": "norm linalg_vector_norm",
    "cumulative product": "cumprod",
    "Fourier transform": "fft_c2c fft_c2r fft_r2c",
    "lower or upper triangle": "tril triu",
    "selection by a mask": "where masked_fill",
    "concatenation": "cat stack",
    "copy": "clone copy contiguous repeat repeat_interleave",
    "slice": "slice select split split_with_sizes",
    "shift": "roll flip",
    "draw of random numbers": "rand rand_like randn randn_like randint randint_like randperm bernoulli normal uniform multinomial",
    "list of positions": "arange",
    "cast to another format": "to_copy",
    "gather": "gather index index_select take masked_select",
    "scatter": "scatter scatter_add scatter_reduce index_add index_put index_copy select_scatter slice_scatter masked_scatter",
    "sort": "sort topk",
    "allocation of a tensor": "zeros zeros_like ones ones_like empty empty_like full full_like new_zeros",
    "update of a moment": "lerp addcmul foreach_lerp foreach_addcmul",
    "update of the parameters": "addcdiv foreach_addcdiv fused_adamw fused_adam fused_sgd fused_adagrad",
}
_BY_OPERATOR = {operator: words for words, operators in _WORDS.items() for operator in operators.split()}


def operator_words(operator: str) -> str:
    """What an operator computes: ``log_softmax_backward_data`` → ``backward of the log-softmax``. One without words is named by its kind:
    ``backward of `mish` ``, ``operator `erf` ``."""
    name = operator.strip("_")
    if name not in _BY_OPERATOR:
        name = name.removeprefix("foreach_")
    if name in _BY_OPERATOR:
        return _BY_OPERATOR[name]
    forward, backward, _ = name.partition("_backward")
    words = _BY_OPERATOR.get(forward.removesuffix("_forward"), "")
    if not backward:
        return words or f"operator `{without_backticks(name)}`"
    return f"backward of the {words}" if words else f"backward of `{without_backticks(forward)}`"


def in_words(operator: str, module_path: str) -> str:
    """An operator at its place, for a sentence, with names between backticks: ``the backward of the loss's log-softmax
    (`_log_softmax_backward_data`)``. ``operator`` has no overload."""
    words, code = operator_words(operator), f" (`{without_backticks(operator)}`)"
    if "`" in words and not words.startswith("backward"):
        code = ""
    owner = _OWNERS.get(module_path)
    if owner is None:
        return f"the {words}{code} at `{without_backticks(module_path)}`"
    before, the, head = words.rpartition("the ")
    return f"the {before}{owner} {head}{code}" if the else f"{owner} {words}{code}"


def place_in_words(at: PeakPlace) -> str:
    """Where a peak candidate is, in words: ``backward, after the matmul (`mm`) at `lm_head`, call 2``."""
    return f"{at.phase}, after {in_words(at.operator, at.module_path)}{at.iteration}"


_OWNERS = {LOSS: "the loss's", OPTIMIZER: "the optimizer's", TOP: "the model's"}


def without_backticks(name: str) -> str:
    """A name without backticks, between which a sentence has code."""
    return name.replace("`", "'")
