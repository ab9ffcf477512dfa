"""Bytes that a device sends per step, by collective, and the time they take on their link.

An all-reduce of S bytes among n ranks sends 2(n - 1)/n S from each; an all-gather or reduce-scatter to or from S bytes sends (n - 1)/n S,
and so does an all-to-all (ring, optimal in bytes). A group of ranks that fits a node uses the links of the node, any other one the network.
Latency is not included. Tests compare the bytes of all of these with real ranks, except a table on two stages (Ce). Sources: Thakur et al.
2005 (collectives); Rajbhandari et al. 2020 (arXiv 1910.02054), section 7; Shoeybi et al. 2019 (arXiv 1909.08053), section 3; Korthikanti et
al. 2022 (arXiv 2205.05198), section 4.2; Narayanan et al. 2021 (arXiv 2104.04473), section 3; Liu et al. 2023 (arXiv 2310.01889); Lepikhin
et al. 2020 (arXiv 2006.16668).
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.capacity.sharding.layout import BLOCK, OFF, REGATHERED, RING
from calc.capacity.sharding.memory import groups_of, shares
from calc.capacity.sharding.model import FIRST, LAST, WHOLE, ShardedModel
from calc.capacity.sharding.parts import INNER, ONLY, LayoutChoice, elements, passed, product, total
from calc.symbolic.worked import WorkedStep

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND = "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "point to point"
_FP32 = 4  # bytes: gradients summed around the ring
_ROUNDS = {ALL_REDUCE: "2*", ALL_GATHER: "", REDUCE_SCATTER: "", ALL_TO_ALL: ""}


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of traffic of a device: the collectives of a step transfer ``payload`` bytes, of which the device sends ``sent``.

    ``over`` is the number of ranks in a group, ``axis`` the kind of parallelism; ``once`` per step, else per micro-batch.
    """

    symbol: str
    kind: str
    axis: str
    over: str
    payload: str
    because: str
    once: bool = False

    @property
    def sent(self) -> str:
        if self.kind == SEND:
            return self.payload
        return f"{_ROUNDS[self.kind]}({self.over} - 1)/{_ranks(self.over)}*{product(self.payload)}"


def collectives(model: ShardedModel, choice: LayoutChoice, stage: str) -> tuple[Collective, ...]:
    """All traffic of a device of this stage. Expressions use the steps of ``memory`` (l, Nl, Sl, …) and Y, the stream."""
    traffic: list[Collective] = []
    if not model.only_data:
        for group in (_tensor, _context, _expert, _pipeline):
            traffic += group(model, choice, stage)
    return (*traffic, *_data(model, choice, stage))


def stream(model: ShardedModel, choice: LayoutChoice) -> WorkedStep:
    """The bytes that pass from layer to layer (Y); most traffic is a multiple of them."""
    return WorkedStep("Y", passed(model, choice), "bytes", "stream of a micro-batch", "one tensor passes from a layer to the next")


def _tensor(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[Collective]:
    """Two all-reduces per layer forward and two backward; with sequence parallelism each is an all-gather and a reduce-scatter."""
    if not choice.has("t"):
        return []
    recomputed = 1 if choice.checkpointing == BLOCK else 0
    ends = {ONLY: 2, FIRST: 1, LAST: 1, INNER: 0}[stage]
    loss = product("m", f"3*4*b*{'(T/c)' if choice.has('c') else 'T'}") if stage in (ONLY, LAST) else ""
    because_loss = "the loss over a divided vocabulary: largest logit, sum of exponentials, logit of the target, in fp32"
    if choice.sequence == OFF:
        why = "one after attention and one after the feed-forward; in the backward as many, at their inputs" + _beside(ends)
        passes = f"{4 + 2 * recomputed}*l" + (f" + {ends}" if ends else "")
        traffic = [Collective("Ct", ALL_REDUCE, "tensor", "t", product("m", passes, "Y"), why)]
    else:
        gathers = 4 + 2 * recomputed + (2 if choice.sequence == REGATHERED else 0)
        scatters = 4 + 2 * recomputed
        extra = "; gathered again for the gradients of weights" if choice.sequence == REGATHERED else ""
        ahead = ends + (1 if choice.sequence == REGATHERED and stage in (ONLY, LAST) else 0)
        traffic = [
            Collective(
                "Cg", ALL_GATHER, "tensor", "t", product("m", _plus(f"{gathers}*l", ahead), "Y"), f"before each pair of matmuls{extra}"
            ),
            Collective("Cs", REDUCE_SCATTER, "tensor", "t", product("m", _plus(f"{scatters}*l", ends), "Y"), "after each pair of matmuls"),
        ]
    if choice.sequence != OFF:
        traffic += _whole_vectors(model, choice, stage)
    if loss:
        traffic.append(Collective("Cl", ALL_REDUCE, "tensor", "t", loss, because_loss))
    return traffic


def _whole_vectors(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[Collective]:
    """Each tensor rank has whole norms and biases but only its part of the stream, so their gradients are all-reduced."""
    groups = {name: [t for t in tensors if t.divided == WHOLE] for name, tensors in groups_of(model, choice, stage).items()}
    parts = [product("l", elements(groups[name], choice)) for name in ("l", "e") if groups.get(name)]
    parts += [elements(groups["o"], choice)] if groups.get("o") else []
    why = "gradients of norms and other replicated vectors: each rank has only its part of the stream"
    return [Collective("Cn", ALL_REDUCE, "tensor", "t", product("q", total(parts)), why, once=True)]


def _plus(text: str, addend: int) -> str:
    return f"{text} + {addend}" if addend else text


def _beside(ends: int) -> str:
    return "; at the embedding and at the head" if ends == 2 else "; at this end of the model" if ends else ""


def _context(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[Collective]:
    """Keys and values circulate (ring attention) or are gathered, again in the backward; their gradients are returned.

    A ring sums gradients from rank to rank in fp32, the default of torch's context parallelism and of ring-flash-attention
    (github.com/zhuzilin/ring-flash-attention).
    """
    if not choice.has("c"):
        return []
    heads = "g" if "g" in model.values else "h"
    divisor = ("Min(t, g)" if heads == "g" else "t") if choice.has("t") else ""
    numbers = f"2*b*(T/c)*{heads}*k" + (f"/{divisor}" if divisor else "")
    if choice.exchange == RING:
        hops = f"{model.element * _runs(choice)}*(c - 1) + {_FP32}*c"
        why = "every block of keys and values visits every rank, forward and backward; their gradients travel the whole ring, in fp32"
        return [Collective("Ck", SEND, "context", "c", product("m", "l", hops, numbers), why)]
    gathered = product("m", "l", "c", f"{model.element}*{numbers}")
    return [
        Collective("Ck", ALL_GATHER, "context", "c", product(str(_runs(choice)), gathered), "keys and values of all, forward and backward"),
        Collective("Cv", REDUCE_SCATTER, "context", "c", gathered, "their gradients"),
    ]


def _runs(choice: LayoutChoice) -> int:
    """How often a layer's exchange runs: forward, backward, and once more if the layer is recomputed."""
    return 3 if choice.checkpointing == BLOCK else 2


def _expert(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[Collective]:
    """Tokens go to their experts and back, forward and backward; balanced, so that each rank receives as many as it sends."""
    if not choice.has("x"):
        return []
    divided = choice.has("t") and choice.sequence != OFF
    number = 6 if choice.checkpointing == BLOCK else 4
    payload = product("m", f"{number}*l", "e", "Y") + ("/t" if divided else "")
    return [Collective("Cx", ALL_TO_ALL, "expert", "x", payload, "to the experts and back, forward and backward; a token goes e times")]


def _pipeline(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[Collective]:
    """Each model chunk sends its output to the next one, and the gradient of its input back."""
    if stage == ONLY:
        return []
    chunks = "v" if choice.interleaved else "1"
    number = {INNER: product("2", chunks), FIRST: "1", LAST: "1"}[stage]
    if choice.interleaved and stage != INNER:
        number = "2*v - 1"
    divided = choice.has("t") and choice.sequence != OFF
    traffic = [
        Collective(
            "Cp", SEND, "pipeline", "p", product("m", number, "Y") + ("/t" if divided else ""), "results forward, gradients backward"
        )
    ]
    if model.tied and stage in (FIRST, LAST):
        table = next(t for t in model.tensors if t.label == "embedding")
        why = "one table on two stages: its gradients are added up"
        traffic.append(Collective("Ce", SEND, "pipeline", "p", product("q", elements((table,), choice)), why, once=True))
    return traffic


def _data(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[Collective]:
    """Ranks with the same weights all-reduce their gradients; ZeRO reduce-scatters them and all-gathers weights."""
    traffic: list[Collective] = []
    groups = [("d", choice.ranks("n", "c", "x"), False)]
    if model.has_experts and not model.only_data:
        groups = [("d", choice.ranks("n", "c", "x"), False), ("f", choice.ranks("n", "c"), True)]
    for suffix, over, experts in groups:
        if over != "1":
            traffic += _of_group(model, choice, stage, suffix, over, experts)
    return traffic


def _of_group(model: ShardedModel, choice: LayoutChoice, stage: str, suffix: str, over: str, experts: bool) -> list[Collective]:
    shared = shares(choice)
    letter_of = "S" if shared else "N"
    groups = groups_of(model, choice, stage)
    layer = "e" if experts else "l"
    in_layer = f"{letter_of}{layer}" if layer in groups else ""
    at_ends = f"{letter_of}o" if "o" in groups and not experts else ""
    number = total(part for part in (product("l", in_layer) if in_layer else "", at_ends) if part)
    padded = product(number) if not shared else product(_ranks(over), number)
    if choice.zero == 0 or not shared:
        return [Collective(f"D{suffix}", ALL_REDUCE, "data", over, product("q", number), "gradients, summed once a step", once=True)]
    if choice.zero == 1:
        return [
            Collective(f"D{suffix}", REDUCE_SCATTER, "data", over, product("q", padded), "gradients, each rank its shard", once=True),
            Collective(
                f"G{suffix}", ALL_GATHER, "data", over, product("w", padded), "updated weights, from the shard of each rank", once=True
            ),
        ]
    scattered = Collective(f"D{suffix}", REDUCE_SCATTER, "data", over, product("m", "q", padded), "gradients, with every micro-batch")
    if choice.zero == 2:
        return [scattered, Collective(f"G{suffix}", ALL_GATHER, "data", over, product("w", padded), "weights, once a step", once=True)]
    if model.only_data and not model.items:  # a model given by its number of parameters: all of it counts as layers, as in the paper
        twice, why = f"2*{at_ends}", "weights, forward and backward"
    else:
        twice = total(part for part in (f"2*l*{in_layer}" if in_layer else "", at_ends) if part)
        why = "weights, forward and backward; those outside the layers stay gathered in between"
    return [scattered, Collective(f"G{suffix}", ALL_GATHER, "data", over, product("m", "w", _ranks(over), twice), why)]


def _ranks(over: str) -> str:
    return over if over.isalnum() else f"({over})"


def extent(axis: str, choice: LayoutChoice) -> str:
    """How many adjacent devices a group of this kind spans, with ranks placed in the order tensor, expert, context, data, pipeline."""
    axes = {"tensor": ("t",), "expert": ("t", "x"), "context": ("t", "x", "c"), "data": ("t", "x", "c", "n")}.get(axis)
    if axes is None:
        return product("2", choice.ranks("t", "x", "c", "n"))
    return choice.ranks(*axes)
