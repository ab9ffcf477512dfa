"""The layout of a training step over devices: the ranks of each kind of parallelism, and the options that go with them. Torch-free.

Ranks are placed innermost first: tensor, expert, context, data, pipeline. ``data * context`` ranks share the weights of an expert; ``data *
context * expert`` ranks share all other weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from calc.errors import BadInputError
from calc.platform.arguments import shown
from calc.symbolic.assignments import TYPED, sizes_text

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
            raise BadInputError(f"rank = {_clipped(self.rank)} is not among the {shared} that share weights: they are 0 to {shared - 1}")
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
        raise BadInputError(f"{name} = {_clipped(value)} is not a number of {MEANINGS[name]}: give an integer from 1 to 10**9")


def _require_one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if type(value) not in (int, str) or value not in allowed:
        raise BadInputError(f"{name} = {_clipped(value)!r} is unknown: use one of {', '.join(map(str, allowed))}")


def _clipped(value: object) -> str:
    return value[:40] if isinstance(value, str) else shown(value)
