"""The layout of a training step over devices: the ranks of each kind of parallelism, and the options that go with them. Torch-free.

Ranks are placed innermost first: tensor, expert, context, data, pipeline. ``data * context`` ranks share the weights of an expert; ``data *
context * expert`` ranks share all other weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from calc.capacity.sharding.model import ShardedModel
from calc.errors import BadInputError
from calc.platform.arguments import shown, written
from calc.symbolic.assignments import TYPED, sizes_text
from calc.symbolic.exact import holds

# How sequence parallelism treats the input of a matmul that all tensor ranks need whole.
OFF, SAVED, REGATHERED = "off", "saved", "regather"
SEQUENCE = {
    OFF: "each tensor rank has the whole residual stream between matmuls",
    SAVED: "the residual stream is split along the sequence; what is gathered for a matmul is saved for backward, as in torch's classes",
    REGATHERED: "the residual stream is split along the sequence; what was gathered for a matmul is gathered again in the backward",
}
NONE, ATTENTION, BLOCK = "none", "attention", "block"
CHECKPOINTING = (NONE, ATTENTION, BLOCK)
RING, GATHER = "ring", "gather"
EXCHANGE = (RING, GATHER)
STAGES = (0, 1, 2, 3)
SYMBOLS = {
    "data": "n", "tensor": "t", "pipeline": "p", "context": "c", "expert": "x", "interleave": "v", "micro": "b", "batch": "B",
}  # fmt: skip
MEANINGS = {
    "data": "data-parallel ranks",
    "tensor": "tensor-parallel ranks",
    "pipeline": "stages of the pipeline",
    "context": "context-parallel ranks",
    "expert": "expert-parallel ranks",
    "interleave": "model chunks of each stage",
    "micro": "sequences of a micro-batch",
    "batch": "sequences of a step, all devices together",
}
UNITS = {
    "data": "ranks", "tensor": "ranks", "pipeline": "stages", "context": "ranks", "expert": "ranks", "interleave": "chunks",
    "micro": "sequences", "batch": "sequences",
}  # fmt: skip
LARGEST = 10**9


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks by kind, and options of the step. ``batch``: sequences per step over all devices; by default each replica has one micro-batch.

    ``zero`` is the ZeRO stage: 1 divides optimizer state and master weights among data ranks, 2 gradients too, 3 weights too. ``rank``
    selects the rank whose ZeRO shard is counted: the first ranks have the largest shards.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    interleave: int = 1
    micro: int = 1
    batch: int = 0
    zero: int = 0
    sequence: str = OFF
    checkpointing: str = NONE
    exchange: str = RING
    rank: int = 0

    def __post_init__(self) -> None:
        for name in MEANINGS:
            _require_count(name, getattr(self, name), least=0 if name == "batch" else 1)
        _require_one_of("zero", self.zero, STAGES)
        _require_one_of("sequence", self.sequence, tuple(SEQUENCE))
        _require_one_of("checkpointing", self.checkpointing, CHECKPOINTING)
        _require_one_of("exchange", self.exchange, EXCHANGE)
        shared = self.data * self.context * self.expert
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 0 <= self.rank < shared:
            raise BadInputError(f"{_stated('rank', self.rank)} is not among the {shared} that share weights: they are 0 to {shared - 1}")
        if not self.batch:
            object.__setattr__(self, "batch", self.replicas * self.micro)

    @property
    def replicas(self) -> int:
        """The number of data-parallel parts of the batch."""
        return self.data * self.expert

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context * self.expert

    @property
    def symbols(self) -> dict[str, int]:
        """Ranks and counts of the layout by symbol."""
        return {symbol: getattr(self, name) for name, symbol in SYMBOLS.items()}

    @property
    def axes(self) -> frozenset[str]:
        """Symbols of the kinds of parallelism with more than one rank."""
        return frozenset(
            SYMBOLS[name] for name in ("data", "tensor", "pipeline", "context", "expert", "interleave") if getattr(self, name) > 1
        )

    def to_json(self) -> dict[str, int | str]:
        return asdict(self)

    @property
    def words(self) -> str:
        """The layout as key=value text, without default values."""
        default = {f.name: f.default for f in fields(self)}
        return sizes_text({name: value for name, value in asdict(self).items() if value != default[name]}, TYPED, " ")


def layout_of(values: Mapping[str, int | str]) -> Layout:
    """The layout of these key-value pairs. Raises ``BadInputError`` for an unknown key or a value that it cannot have."""
    names = [f.name for f in fields(Layout)]
    for name in values:
        if name not in names:
            raise BadInputError(f"a layout has no {_clipped(name)!r}: it has {', '.join(names)}")
    return Layout(**values)  # type: ignore[arg-type]  # each part is checked as it is made


def require_devices_at_most(devices: int) -> int:
    """Refuse a search over more devices than one kind of parallelism may have ranks."""
    if not 1 <= devices <= LARGEST:
        raise BadInputError(f"devices = {_clipped(devices)} is not a number of devices: give an integer from 1 to 10**9")
    return devices


def _require_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise BadInputError(f"{_stated(name, value)} is not a number of {MEANINGS[name]}: give an integer from 1 to 10**9")


def _require_one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if type(value) not in (int, str) or value not in allowed:
        raise BadInputError(f"{_stated(name, value)} is unknown: use one of {', '.join(map(str, allowed))}")


def _stated(name: str, value: object) -> str:
    """``tensor = 0``; ``tensor (of type list)`` where the value cannot be shown."""
    return f"{name} = {text}" if (text := written(value)) else f"{name} ({shown(value)})"


def _clipped(value: object) -> str:
    return value[:40] if isinstance(value, str) else shown(value)


# -- valid layouts ----------------------------------------------------------------------------------------------------
# Which layouts are valid: each condition is an expression in the variables of model and layout, with its error message.


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
