"""Step time from FLOPs over peak and bytes over bandwidth: a lower bound, not a forecast.

Matmuls run at a given share of the dense peak. Traffic of tensor, expert and pipeline ranks is exposed; a ring of keys and values overlaps
with the attention of the previous block; gradients and gathered weights overlap with other computation. Sources: Narayanan et al. 2021
(arXiv 2104.04473), section 2.2, for the bubble; Liu et al. 2023 (arXiv 2310.01889) for the ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.capacity.questions.devices import middle
from calc.capacity.sharding.communication import Collective, extent
from calc.capacity.sharding.layout import BLOCK, RING
from calc.capacity.sharding.model import LAYER, ShardedModel, ShardedTensor
from calc.capacity.sharding.parts import LayoutChoice, in_layers, local, product, total
from calc.errors import BadInputError
from calc.hardware.accelerators import Accelerator
from calc.symbolic.worked import WorkedInput, WorkedStep, worked_input

NOTES = (
    "a lower bound: matmuls at the given share of the dense peak; norms, activations, the optimizer and latency are left out",
    "tensor, expert and pipeline traffic is exposed; data-parallel traffic overlaps with the step, whichever takes longer",
    "attention is counted in full, T squared",
)
_SECONDS = 3600
_NODE = 8
_AS_REQUESTED = "as given"
_ALONE = "not needed: all devices are in one node"


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of a device and its links. ``node`` devices share the links of a node.

    ``memory`` is in bytes, ``peak`` in FLOP/s, ``link`` and ``network`` in bytes/s per direction and device, ``price`` in USD per device
    and hour, 0 if unknown.
    """

    name: str
    memory: int
    peak: Fraction
    dtype: str
    efficiency: Fraction
    link: Fraction
    network: Fraction
    node: int
    price: Fraction
    source: str
    price_source: str = ""
    efficiency_source: str = "as given"
    node_source: str = "as given"
    link_source: str = "as given"
    network_source: str = "as given"

    @property
    def inputs(self) -> tuple[WorkedInput, ...]:
        inputs = [
            WorkedInput("P", self.peak, "FLOP/s", f"dense peak of {self.name} in {self.dtype}", self.source),
            WorkedInput("eta", self.efficiency, "", "share of the peak that matmuls reach", self.efficiency_source),
            WorkedInput("Wn", self.link, "bytes/s", "links of a node, per direction and device", self.link_source),
            WorkedInput("Wi", self.network, "bytes/s", "network between nodes, per direction and device", self.network_source),
            WorkedInput("R", Fraction(self.node), "devices", "devices of a node", self.node_source),
        ]
        return (
            *inputs,
            *([WorkedInput("usd", self.price, "USD/h", "price of a device and hour", self.price_source)] if self.price else []),
        )


@dataclass(frozen=True, slots=True)
class GivenRates:
    """Values of a ``Machine`` in place of the published ones, with the same units; None where these stay."""

    efficiency: Fraction | None = None
    node: int | None = None
    memory: int | None = None
    link: Fraction | None = None
    network: Fraction | None = None
    price: Fraction | None = None


_AS_PUBLISHED = GivenRates()


def machine_of(device: Accelerator, dtype: str = "bf16", given: GivenRates = _AS_PUBLISHED, devices: int | None = None) -> Machine:
    """The published rates of an accelerator, each with its source, or those ``given``. If one node holds all ``devices``, no network is
    needed. Raises ``BadInputError`` for an efficiency outside (0, 1], and where a bandwidth is neither published nor given."""
    link, price = given.link, given.price
    share, in_node = Fraction(1) if given.efficiency is None else given.efficiency, _NODE if given.node is None else given.node
    if not 0 < share <= 1:
        raise BadInputError(f"efficiency = {share} is not a share of the peak: give a number above 0, at most 1")
    if device.link is None and link is None:
        raise BadInputError(f"{device.name} has no published link between devices: give link=…, e.g. link=32GB/s")
    inter: Fraction | int | None = given.network if given.network is not None else device.inter_node
    alone = inter is None and devices is not None and devices <= in_node
    if alone:
        inter = link if link is not None else device.link
    if inter is None:
        raise BadInputError(f"{device.name} has no typical network in the table: give network=…, e.g. network=50GB/s")
    priced, quoted = price or Fraction(0), "as given"
    if price is None and device.price is not None:
        priced, quoted = middle(device.price)
    return Machine(
        device.name, given.memory or device.memory, device.peak(dtype), dtype, worked_input("eta", share, "", "efficiency").value,
        Fraction(link if link is not None else device.link or 0), Fraction(inter), in_node, priced, device.source, quoted if priced else "",
        efficiency_source=_AS_REQUESTED if given.efficiency is not None else "assumed, all of the peak; efficiency=… changes that",
        node_source=_AS_REQUESTED if given.node is not None else "assumed, as in most machines; node=… changes that",
        link_source=_AS_REQUESTED if link is not None else device.source,
        network_source=_AS_REQUESTED if given.network is not None else _ALONE if alone else device.source,
    )  # fmt: skip


def _bandwidth(axis: str, choice: LayoutChoice) -> str:
    """The links of a node if a group of ranks fits one, else the network."""
    return f"Wi + (Wn - Wi)*Min(1, floor(R/({extent(axis, choice)})))"


_AXES = {"tensor": "t", "context": "k", "expert": "x", "pipeline": "p", "data": "d"}


def time_lines(model: ShardedModel, choice: LayoutChoice, stage: str, traffic: Sequence[Collective]) -> list[WorkedStep]:
    """Steps of a stage: its FLOPs per micro-batch, its time per step without the bubble (ts), and the time of its data traffic (td)."""
    lines = _flops(model, choice, stage)
    for axis, symbol in _AXES.items():
        of = [c.symbol for c in traffic if c.axis == axis]
        if of:
            lines.append(
                WorkedStep(
                    f"B{symbol}",
                    _bandwidth(axis, choice),
                    "bytes/s",
                    f"link of {axis} ranks",
                    "a node's links if all of a group are in one",
                )
            )
            lines.append(WorkedStep(f"T{symbol}", f"({total(of)})/B{symbol}", "s", f"{axis} traffic of a step", "bytes over bandwidth"))
    symbols = {line.symbol for line in lines}
    waited = [f"T{symbol}" for axis, symbol in _AXES.items() if axis not in ("data", "context") and f"T{symbol}" in symbols]
    if "Tk" in symbols:
        ring = choice.exchange == RING
        why = "what attention to the blocks does not hide" if ring else "exposed"
        lines.append(WorkedStep("tk", "Max(0, Tk - m*l*ta)" if ring else "Tk", "s", "exposed context traffic", why))
        waited.append("tk")
    lines.append(
        WorkedStep("ts", total(["m*tc", *waited]), "s", "a step of this stage, without the bubble", "compute, and exposed traffic")
    )
    lines.append(WorkedStep("td", "Td" if "Td" in symbols else "0", "s", "data traffic", "overlaps with compute"))
    return lines


def _flops(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[WorkedStep]:
    tokens = "b*(T/c)" if choice.has("c") else "b*T"
    scores = product("4", tokens, "T", "h", "k") + choice.over("t")
    dense = _per_token(in_layers(model.tensors, experts=False), choice)
    experts = _per_token(in_layers(model.tensors, experts=True), choice)
    products = [product("2", tokens, dense)] + ([product("2", tokens, "e", experts)] if experts != "0" else [])
    ends = _per_token([t for t in model.tensors if t.where != LAYER and t.where in _at(stage)], choice)
    lines = [
        WorkedStep("Fa", scores, "FLOP", "scores and values of a layer", "2 matmuls of T² each, 2 FLOP a multiply-add"),
        WorkedStep("Fl", total([*products, "Fa"]), "FLOP", "forward of a layer and micro-batch", "2 FLOP for each weight and token"),
    ]
    recomputed = {BLOCK: "Fl", "attention": "Fa"}.get(choice.checkpointing, "0")
    if model.attention == "fused" and choice.checkpointing != "attention":
        recomputed = "Fa/2" if recomputed == "0" else f"{recomputed} + Fa/2"
        why = "fused attention recomputes its scores" + ("; the layer is recomputed" if choice.checkpointing == BLOCK else "")
    else:
        why = {BLOCK: "the layer is recomputed", "attention": "scores and values are recomputed"}.get(
            choice.checkpointing, "nothing is recomputed"
        )
    lines.append(WorkedStep("Fr", recomputed, "FLOP", "recomputed in the backward of a layer", why))
    per_micro_batch = total(["l*(3*Fl + Fr)", *([product("6", tokens, ends)] if ends != "0" else [])])
    why = "backward is twice the forward: a matmul for each factor's gradient"
    lines.append(WorkedStep("F", per_micro_batch, "FLOP", "of a micro-batch, forward and backward", why))
    lines.append(WorkedStep("tc", "F/(eta*P)", "s", "compute of a micro-batch", "FLOPs over rate"))
    if choice.has("c"):
        lines.append(
            WorkedStep(
                "ta", "(3*Fa + Fa/2)/(eta*P)", "s", "attention of a layer and micro-batch", "forward, backward, and recomputed scores"
            )
        )
    return lines


def _at(stage: str) -> tuple[str, ...]:
    return {"only": ("first", "last"), "first": ("first",), "last": ("last",)}.get(stage, ())


def _per_token(tensors: Iterable[ShardedTensor], choice: LayoutChoice) -> str:
    """Elements of the matrices that multiply a token on a rank; of experts, only those of one."""
    return total(product(str(tensor.times), *local(tensor, choice)) for tensor in tensors if tensor.per_token)


def step_lines(choice: LayoutChoice, stages: int, machine: Machine) -> list[WorkedStep]:
    """The step time from the slowest stage: micro-batches in sequence, plus the bubble at both ends."""
    numbers = range(1, stages + 1)
    slowest = "t1" if stages == 1 else f"Max({', '.join(f't{n}' for n in numbers)})"
    data = "d1" if stages == 1 else f"Max({', '.join(f'd{n}' for n in numbers)})"
    bubble = "0" if stages == 1 else "(p - 1)/(v*m)" if choice.interleaved else "(p - 1)/m"
    lines = [
        WorkedStep("tm", slowest, "s", "the slowest stage", "all others wait for it"),
        WorkedStep(
            "beta",
            bubble,
            "1",
            "bubble, as a share of the time without it",
            "p − 1 micro-batches until the last stage has work, and as many at the end",
        ),
        WorkedStep("tw", "tm*(1 + beta)", "s", "compute and exposed traffic", "with the bubble"),
        WorkedStep("dt", data, "s", "data traffic", "of the stage with the most"),
        WorkedStep("step", "Max(tw, dt)", "s", "time of a step", "data traffic overlaps with compute: the longer of both counts"),
    ]
    if machine.price:
        lines.append(
            WorkedStep("cost", f"usd*n*t*p*c*x*step/{_SECONDS}", "USD", "price of a step", "every device for the time of the step")
        )
    return lines
