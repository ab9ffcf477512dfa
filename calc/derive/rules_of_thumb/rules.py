"""Published rules of thumb, as expressions in a model's own dimensions, each with its source and assumptions.

A rule knows no model: it names the dimensions that it is stated in, and applies to every model that has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.derive.quantities import PLACEHOLDERS
from calc.derive.rules_of_thumb import assumptions
from calc.derive.rules_of_thumb.assumptions import RuleAssumption
from calc.units import Unit


@dataclass(frozen=True, slots=True)
class RuleOfThumb:
    """A rule of thumb. In ``expr``, ``{N}`` is the number of parameters and ``{A}`` that of a token's, which leaves out experts not chosen.

    It applies where a model has the dimensions it ``needs`` and none of ``without``. ``exact`` lists the derived quantities that it
    approximates, each with its sign; ``outside`` those that it omits on purpose. ``format`` is the dtype of a rule that counts elements:
    bytes are then divided by its size, if all tensors have this dtype. ``noun`` is what explanations call it.
    """

    name: str
    statement: str
    letters: str
    source: str
    link: str
    unit: Unit
    expr: str
    needs: tuple[str, ...]
    exact: tuple[tuple[int, str], ...]
    stands_for: str
    assumes: tuple[RuleAssumption, ...]
    outside: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    format: str = ""
    noun: str = "rule"

    @property
    def counted(self) -> str:
        """The quantity that N of the rule is; empty for a rule without parameters."""
        return next((name for letter, name in PLACEHOLDERS.items() if letter in self.expr), "")


_SCALING = "Kaplan et al. 2020, Scaling Laws for Neural Language Models, section 2.1"
_SCALING_LINK = "https://arxiv.org/abs/2001.08361"
_MODEL_FLOPS = ((1, "flops.forward.matmul"), (1, "flops.backward.matmul"), (-1, "flops.backward.recompute"))
_OTHER_FLOPS = ("flops.backward.recompute", "flops.forward.elementwise", "flops.backward.elementwise", "flops.optimizer.total")

_PER_TOKEN = (
    RuleAssumption("every parameter multiplies every token once", assumptions.once_per_token),
    RuleAssumption("other matmuls, such as query keyᵀ and probs value, are at most 5 % of the count", assumptions.small_attention),
)

_LECTURE = "Stanford CS336, spring 2025, lecture 2 (PyTorch, resource accounting)"
_LECTURE_LINK = "https://github.com/stanford-cs336/spring2025-lectures/blob/main/lecture_02.py"
_DEEP_LINEAR = ("B", "D", "L")  # L layers from width D to width D and a last one to a single output

RULES: tuple[RuleOfThumb, ...] = (
    RuleOfThumb(
        name="6ND",
        statement="6 FLOP per parameter and token for forward and backward",
        letters="in the letters of the paper, N = active parameters with embeddings, which it leaves out, and D = B·T tokens",
        source=_SCALING,
        link=_SCALING_LINK,
        unit=Unit.FLOP,
        expr="6*({A})*B*T",
        needs=("B", "T"),
        exact=_MODEL_FLOPS,
        stands_for="model FLOPs of matmuls, forward and backward, without recomputation",
        assumes=_PER_TOKEN,
        outside=_OTHER_FLOPS,
    ),
    RuleOfThumb(
        name="2ND",
        statement="2 FLOP per parameter and token for the forward",
        letters="in the letters of the paper, N = active parameters with embeddings, which it leaves out, and D = B·T tokens",
        source=_SCALING,
        link=_SCALING_LINK,
        unit=Unit.FLOP,
        expr="2*({A})*B*T",
        needs=("B", "T"),
        exact=((1, "flops.forward.matmul"),),
        stands_for="FLOPs of matmuls in the forward",
        assumes=_PER_TOKEN,
        outside=("flops.forward.elementwise",),
    ),
    RuleOfThumb(
        name="34sbh + 5as²b",
        statement="34·s·b·h + 5·a·s²·b bytes of activations in each layer",
        letters="s = T, b = B, h = d, a = h in the symbols of this report",
        source="Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, equation 1",
        link="https://arxiv.org/abs/2205.05198",
        unit=Unit.BYTE,
        expr="L*(34*T*B*d + 5*h*T**2*B)",
        needs=("B", "T", "d", "h", "L"),
        exact=((1, "activations.bytes"),),
        stands_for="bytes that autograd saves for the backward",
        assumes=(
            RuleAssumption("2 bytes an element", assumptions.two_bytes),
            RuleAssumption("dropout on the attention scores and on both outputs of a layer", assumptions.dropout),
            RuleAssumption("f = 4·d", assumptions.four_times_width),
            RuleAssumption("attention scores are stored", assumptions.stored_scores),
            RuleAssumption("only layers save tensors: embedding, head and loss are left out", assumptions.only_layers),
        ),
    ),
    RuleOfThumb(
        name="16 bytes per parameter",
        statement="2 + 2 + 12 bytes per parameter: weights, gradients, Adam's state with fp32 master weights",
        letters="N = parameters",
        source="Rajbhandari et al. 2019, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, section 3.1",
        link="https://arxiv.org/abs/1910.02054",
        unit=Unit.BYTE,
        expr="16*({N})",
        needs=(),
        exact=((1, "parameters.bytes"), (1, "gradients.bytes"), (1, "optimizer_state.bytes")),
        stands_for="bytes of parameters, gradients and optimizer state",
        assumes=(RuleAssumption("mixed precision with Adam (2 + 2 + 12 bytes), or fp32 with Adam (4 + 4 + 8)", assumptions.adam_bytes),),
        outside=("activations.bytes",),
    ),
    RuleOfThumb(
        name="6BN",
        statement="6 FLOP per parameter and data point: 2 for the forward, 4 for the backward",
        letters="B = data points of the step, N = active parameters: of experts those that a point uses",
        source=_LECTURE,
        link=_LECTURE_LINK,
        unit=Unit.FLOP,
        expr="6*B*({A})",
        needs=("B",),
        without=("T",),
        exact=_MODEL_FLOPS,
        stands_for="FLOPs of matmuls, forward and backward, without recomputation",
        assumes=(
            RuleAssumption("every parameter multiplies every point once", assumptions.once_per_token),
            RuleAssumption("nothing else is multiplied", assumptions.no_other_terms),
            RuleAssumption("every layer's input needs its gradient", assumptions.all_gradients),
        ),
        outside=_OTHER_FLOPS,
    ),
    RuleOfThumb(
        name="D²L + D parameters",
        statement="D·D parameters in each layer, and D in the last one, which has a single output",
        letters="D = width, L = layers from D to D",
        source=_LECTURE,
        link=_LECTURE_LINK,
        unit=Unit.ELEMENT,
        expr="D**2*L + D",
        needs=_DEEP_LINEAR,
        without=("T",),
        exact=((1, "parameters"),),
        stands_for="parameters",
        assumes=(RuleAssumption("no biases", assumptions.exactly),),
    ),
    RuleOfThumb(
        name="BDL activations",
        statement="B·D activations in each layer: each hidden output once",
        letters="B = data points of the step, D = width, L = layers from D to D",
        source=_LECTURE,
        link=_LECTURE_LINK,
        unit=Unit.ELEMENT,
        expr="B*D*L",
        needs=_DEEP_LINEAR,
        without=("T",),
        exact=((1, "activations.bytes"),),
        format="float32",
        stands_for="numbers that autograd saves for the backward",
        assumes=(
            RuleAssumption("each hidden output is saved once: no activation function saves one too", assumptions.once_per_token),
            RuleAssumption("the input, the target and the prediction are not saved", assumptions.no_other_terms),
        ),
    ),
    RuleOfThumb(
        name="1 gradient per parameter",
        statement="as many gradients as parameters",
        letters="N = parameters",
        source=_LECTURE,
        link=_LECTURE_LINK,
        unit=Unit.ELEMENT,
        expr="{N}",
        needs=_DEEP_LINEAR,
        without=("T",),
        exact=((1, "gradients.bytes"),),
        format="float32",
        stands_for="numbers that the backward leaves in the gradients",
        assumes=(RuleAssumption("every parameter is trained", assumptions.exactly),),
    ),
    RuleOfThumb(
        name="1 optimizer value per parameter",
        statement="as many optimizer values as parameters: AdaGrad's sums of squares",
        letters="N = parameters",
        source=_LECTURE,
        link=_LECTURE_LINK,
        unit=Unit.ELEMENT,
        expr="{N}",
        needs=_DEEP_LINEAR,
        without=("T",),
        exact=((1, "optimizer_state.bytes"),),
        format="float32",
        stands_for="elements of the optimizer's state",
        assumes=(
            RuleAssumption("the optimizer is AdaGrad", assumptions.adagrad),
            RuleAssumption("it keeps no step counters", assumptions.no_other_terms),
        ),
    ),
    RuleOfThumb(
        name="4 bytes per value",
        statement="4 bytes for each parameter, activation, gradient and optimizer value, all allocated at once",
        letters="N parameters, B·D·L activations, N gradients, N optimizer values",
        source=_LECTURE,
        link=_LECTURE_LINK,
        unit=Unit.BYTE,
        expr="4*({N}) + 4*B*D*L + 4*({N}) + 4*({N})",
        needs=_DEEP_LINEAR,
        without=("T",),
        exact=((1, "parameters.bytes"), (1, "activations.bytes"), (1, "gradients.bytes"), (1, "optimizer_state.bytes")),
        stands_for="bytes of parameters, saved activations, gradients and optimizer state added up (memory.peak is what is live at once)",
        assumes=(
            RuleAssumption("the optimizer is AdaGrad", assumptions.adagrad),
            RuleAssumption("the input, the target, the prediction and step counters are not kept", assumptions.no_other_terms),
            RuleAssumption("each value is kept once, in fp32", assumptions.once_per_token),
        ),
    ),
)
