"""Which layouts are valid: each condition is an expression in the variables of model and layout, with its error message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.capacity.sharding.layout import Layout
from calc.capacity.sharding.model import ShardedModel
from calc.errors import BadInputError
from calc.symbolic.exact import holds


@dataclass(frozen=True, slots=True)
class Constraint:
    """``expr`` must hold. ``otherwise`` is the error message: what is wrong and what helps, with ``{symbols}`` for values."""

    expr: str
    because: str
    otherwise: str

    def holds(self, values: Mapping[str, int]) -> bool:
        return holds(self.expr, values)

    def refusal(self, values: Mapping[str, int]) -> str:
        return self.otherwise.format(**values)


_UNEVEN = "Mod(L, p*v) == 0 or (v == 1 and p > 1 and Mod(L + 2, p) == 0) or (v > 1 and Mod(L + 2, p*v) == 0)"
_EVERYWHERE = (
    Constraint("Mod(B, n*x*b) == 0", "each data rank takes whole micro-batches",
              "batch = {B} sequences cannot be split into micro-batches of {b} on each of {n}*{x} data and expert ranks:"
              " give a multiple of {n}*{x}*{b}"),
)  # fmt: skip
_DECODER = (
    Constraint("Mod(h, t) == 0", "a tensor rank has whole heads", "tensor = {t} does not divide the {h} heads: use a divisor of {h}"),
    Constraint("Mod(f, t) == 0", "columns of the feed-forward are divided evenly",
              "tensor = {t} does not divide the feed-forward width {f}: use a divisor of it"),
    Constraint(_UNEVEN, "every stage has the same number of layers, or the first and the last have one fewer each",
              "pipeline*interleave = {p}*{v} divides neither the {L} layers nor {L} + 2, with embedding and head counted as a layer"
              " each: use a divisor of one of them"),
    Constraint("L >= p*v", "every model chunk of every stage has a layer",
              "{p}*{v} model chunks are more than the {L} layers: use fewer stages"),
    Constraint("v == 1 or p > 1", "only stages of a pipeline interleave", "interleave = {v} needs a pipeline: give pipeline=2 or more"),
    Constraint("v == 1 or Mod(B, n*x*b*p) == 0", "interleaved stages take micro-batches in rounds of p",
              "interleave = {v} needs a multiple of the {p} stages as the number of micro-batches, which {B}/({n}*{x}*{b}) is not"),
    Constraint("Mod(T, c) == 0", "every context rank has the same number of tokens",
              "context = {c} does not divide the {T} tokens of a sequence: use a divisor of it"),
)  # fmt: skip
_SEQUENCE = Constraint(
    "Mod(T, c*t) == 0", "every tensor rank has the same number of tokens of the residual stream",
    "sequence parallelism among {t} ranks does not divide the {T}/{c} tokens of a rank: use a divisor, or sequence=off",
)  # fmt: skip
_KEYS = Constraint(
    "Mod(g, t) == 0 or Mod(t, g) == 0", "key/value heads are divided evenly, or each is on the same number of ranks",
    "tensor = {t} neither divides the {g} key/value heads nor is a multiple of them: use one that does",
)  # fmt: skip
_EXPERTS = Constraint(
    "Mod(E, x) == 0", "an expert rank has whole experts", "expert = {x} does not divide the {E} experts: use a divisor of {E}"
)


def conditions(model: ShardedModel, sequence: bool) -> tuple[Constraint, ...]:
    """All conditions on the numbers of a layout of ``model``."""
    if model.only_data:
        return _EVERYWHERE
    required = [*_EVERYWHERE, *_DECODER]
    if "g" in model.values:
        required.append(_KEYS)
    if model.has_experts:
        required.append(_EXPERTS)
    if sequence:
        required.append(_SEQUENCE)
    return tuple(required)


def require_devices(layout: Layout, devices: int | None) -> None:
    """Refuse a layout whose ranks do not multiply to ``devices``, if that is given."""
    if devices is not None and layout.devices != devices:
        product = "*".join(f"{name} {getattr(layout, name)}" for name in ("data", "tensor", "pipeline", "context", "expert"))
        raise BadInputError(f"{product} = {layout.devices} is not devices = {devices}: the ranks of all kinds multiply to the devices")


def require(model: ShardedModel, layout: Layout) -> tuple[Constraint, ...]:
    """The conditions that the layout satisfies. Raises with the message of the first that it does not."""
    _require_kinds(model, layout)
    values = {**model.values, **layout.symbols}
    required = conditions(model, layout.sequence != "off")
    for condition in required:
        if not condition.holds(values):
            raise BadInputError(condition.refusal(values))
    return required


def _require_kinds(model: ShardedModel, layout: Layout) -> None:
    """Refuse kinds of parallelism that this model cannot use at any size."""
    apart = [name for name in ("tensor", "pipeline", "context", "expert") if getattr(layout, name) > 1]
    if layout.checkpointing != "none":
        apart.append("checkpointing")
    if model.only_data and apart:
        raise BadInputError(f"{model.name} can be sharded by data parallelism and ZeRO only, not by {apart[0]}: {model.only_data}")
    if layout.expert > 1 and not model.has_experts:
        raise BadInputError(f"expert = {layout.expert} needs a model with experts: {model.name} has none")
    if layout.context > 1 and model.attention == "math":
        raise BadInputError("context parallelism never has all scores at once, but attention=math saves them: use attention=fused")
    if layout.sequence != "off" and layout.tensor == 1:
        raise BadInputError(
            f"sequence = {layout.sequence} divides the stream among tensor ranks, of which there is one: give tensor=2 or more"
        )
    if layout.checkpointing == "attention" and model.attention != "math":
        raise BadInputError("checkpointing=attention recomputes the scores, which fused attention never saves: use none or block")
