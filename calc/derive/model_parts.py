"""Which part of the model an operator, a parameter or a saved tensor belongs to: scores, mix, feed-forward, head, norms, …

Parts follow from the operators of a traced forward and from what their operands are computed from, never from names or sizes. A matmul is
of activations alone (a softmax, or an exponential over its sum, follows the scores query keyᵀ and precedes the mix probs value), or it has
a weight, and then it is

* a projection of queries, keys or values where a product of attention takes what it alone computes, and the attention output where it takes
  what attention alone computes;
* the router where experts follow that are chosen by its result, and the head where the loss does, unless no weight is in a module;
* feed-forward where only an activation function is between two of them, unless the model has nothing else.

Every other matmul is a part of its own, by its module path. An operator without a matmul belongs to the part of its module. In a module of
several parts, a tensor that it saves for backward belongs to the part of that module that alone it is computed from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from calc.derive.active import CHOOSING, TABLES, ParameterUse
from calc.derive.backward_matmuls import ForwardMatmuls, differentiated
from calc.derive.names import AddendLabel, WorkKind
from calc.derive.part_names import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    HEAD,
    LOSS,
    MIX,
    NAMES,
    NORMS,
    OF_ATTENTION,
    OUTSIDE,
    PROJECT,
    QKV,
    REMAINDER,
    ROUTER,
    SCORES,
    SOFTMAX,
)
from calc.graph.step import LOSS as LOSS_PATH
from calc.graph.step import RECOMPUTED, Op, Saved, StepTrace, Tensor, tensors
from calc.rules.registry import Cost

# A part by module path: which one is known when the paths of all traces are.
_OWN = ""
_OF_FEED_FORWARD = frozenset((FEED_FORWARD, EXPERTS, ROUTER))
# Addends of fused attention, by ``Term.attention``.
_FUSED = {"scores": SCORES, "mix": MIX}
# What a matmul of unfused attention computes, by its part and its name as any matmul. The query is the left operand of the scores.
_UNFUSED = {
    (SCORES, "x W"): "query keyᵀ", (SCORES, "dx = dy Wᵀ"): "dquery = dscores key", (SCORES, "dW = xᵀ dy"): "dkeyᵀ = queryᵀ dscores",
    (MIX, "x W"): "probs value", (MIX, "dx = dy Wᵀ"): "dprobs = dO valueᵀ", (MIX, "dW = xᵀ dy"): "dvalue = probsᵀ dO",
}  # fmt: skip
_OF_MATMULS = frozenset((WorkKind.MATMUL, WorkKind.CAUSAL, WorkKind.RECOMPUTE))
_SOFTMAX = re.compile(r"(?<!log)_softmax")
_DETACH = "aten.detach.default"
_WHOLE_NORM = re.compile(r"(layer|batch|group|instance|rms)_norm")
_NORM = re.compile(rf"{_WHOLE_NORM.pattern}|r?sqrt")
_LOSS = re.compile(r"loss|log_softmax")
_ACTIVATION = re.compile(r"(elu|silu|mish|sigmoid|tanh|softplus|threshold|hardswish|glu|erf)_?\.")


@dataclass(frozen=True, slots=True)
class _Matmul:
    """A matmul of the forward. ``weight`` is the storage of its parameter, or None; ``sources`` are the operators nearest before each other
    operand, and ``is_activated`` says whether an activation function is between."""

    index: int
    module_path: str
    weight: int | None
    sources: tuple[frozenset[int], ...]
    is_activated: bool
    is_linear: bool
    is_fused: bool

    @property
    def every_source(self) -> frozenset[int]:
        return frozenset().union(*self.sources)


@dataclass
class _Sources:
    """What each tensor of a forward is computed from, by storage: the nearest matmuls, lookups and softmaxes of scores.

    ``residual``: storages computed from a lookup or an input of the model without a matmul between, as the residual stream is; ``before``:
    the sources of each other operator whose module has all of them, by its index. ``exponentials`` and ``normalizers``: storages of
    exponentials of scores, and of their sums; ``chosen``: storages of indices, with the sources of what they were chosen by; ``choosing``:
    those of the indices that some operator uses.
    """

    use: ParameterUse
    cost: Callable[[Op], Cost]
    residual: set[int] = field(default_factory=set)
    exponentials: set[int] = field(default_factory=set)
    normalizers: set[int] = field(default_factory=set)
    chosen: dict[int, frozenset[int]] = field(default_factory=dict)
    before: dict[int, frozenset[int]] = field(default_factory=dict)
    sources: dict[int, frozenset[int]] = field(default_factory=dict)
    activated: set[int] = field(default_factory=set)
    matmuls: dict[int, _Matmul] = field(default_factory=dict)
    scores: set[int] = field(default_factory=set)
    softmaxes: set[int] = field(default_factory=set)
    choosing: set[int] = field(default_factory=set)
    last: frozenset[int] = frozenset()

    @property
    def routers(self) -> frozenset[int]:
        """Matmuls by whose results something is chosen that later matmuls compute with: the choice of a class has no experts."""
        return frozenset(self.choosing) & frozenset[int]().union(*(m.every_source for m in self.matmuls.values()))

    def follow(self, op: Op) -> None:
        operands = list(tensors(value for _, value in op.args))
        if not op.mutates and all(any(out.storage == t.storage for t in operands) for out in op.outputs):
            return  # a view
        if any(out.storage in self.use.copies for out in op.outputs) and not op.mutates:
            return  # a cast of a parameter
        inputs = [t for t in operands if t.storage not in self.use.copies]
        weights = [t for t in operands if t.storage in self.use.copies and len(t.shape) > 1]
        sources, is_activated = self._after(op, inputs, weights)
        self._follow_residual(op, inputs, sources)
        for out in op.outputs:
            self.sources[out.storage] = sources
            (self.activated.add if is_activated else self.activated.discard)(out.storage)
        if sources:
            self.last = sources

    def _follow_residual(self, op: Op, inputs: list[Tensor], sources: frozenset[int]) -> None:
        if op.index in self.matmuls:
            return
        if op.name in TABLES or any(t.storage in self.residual for t in inputs):
            self.residual.update(out.storage for out in op.outputs)
        elif sources and all(i not in self.matmuls or _is_inside(self.matmuls[i].module_path, op.module_path) for i in sources):
            self.before[op.index] = sources

    def _after(self, op: Op, inputs: list[Tensor], weights: list[Tensor]) -> tuple[frozenset[int], bool]:
        """The sources of the results of ``op``, and whether an activation function is between."""
        of_inputs = tuple(self.sources.get(t.storage, frozenset()) for t in inputs)
        nearest, is_activated = frozenset[int]().union(*of_inputs), any(t.storage in self.activated for t in inputs)
        own = frozenset((op.index,))
        if terms := self.cost(op).matmul:
            weight = self.use.copies[weights[0].storage] if weights else None
            linear, fused = "conv" not in op.name, any(term.attention for term in terms)
            self.matmuls[op.index] = _Matmul(op.index, op.module_path, weight, of_inputs, is_activated, linear, fused)
            return own, False
        if op.name in TABLES and weights:
            return own, False
        if products := {i for i in nearest if i in self.matmuls and self.matmuls[i].weight is None}:
            self._follow_exponentials(op, inputs)
            if _SOFTMAX.search(op.name) or self._normalizes(op, inputs):
                self.scores |= products
                self.softmaxes.add(op.index)
                return own, False
        self.choosing |= {i for t in inputs for i in self.chosen.get(t.storage, ())}
        if op.name in CHOOSING and len(nearest) == 1:
            self.chosen[op.outputs[-1].storage] = nearest
        return nearest, is_activated or bool(_ACTIVATION.search(op.name))

    def _follow_exponentials(self, op: Op, inputs: list[Tensor]) -> None:
        if op.name == "aten.exp.default":
            self.exponentials.update(out.storage for out in op.outputs)
        elif op.name.startswith("aten.sum.") and inputs[0].storage in self.exponentials:
            self.normalizers.update(out.storage for out in op.outputs)

    def _normalizes(self, op: Op, inputs: list[Tensor]) -> bool:
        """Whether the operator divides exponentials by their sum, as a softmax does that a model writes itself."""
        if not op.name.startswith("aten.div") or len(inputs) != 2:
            return False
        return inputs[0].storage in self.exponentials and inputs[1].storage in self.normalizers


def _forward(trace: StepTrace, step: int = 2) -> Iterator[Op]:
    return (op for op in trace.ops if op.step == step and op.phase == "forward")


def _by_operator(flow: _Sources) -> dict[int, str]:
    """The part of each matmul of the forward, by the operator's index."""
    products = {i: m for i, m in flow.matmuls.items() if m.weight is None and not m.is_fused}
    mixes = {i for i, m in products.items() if m.every_source & flow.softmaxes and i not in flow.scores}
    attending = {i for i, m in flow.matmuls.items() if m.is_fused} | mixes
    weighted = {i: m for i, m in flow.matmuls.items() if m.weight is not None and not m.is_fused}
    routed = _routed(flow.use)
    parts = {i: EXPERTS for i, m in weighted.items() if flow.use.names.get(m.weight or 0) in routed}
    parts |= {i: PROJECT for i, m in weighted.items() if m.every_source and m.every_source <= attending}
    both = [flow.matmuls[i] for i in sorted(flow.scores | attending)]
    parts |= {i: QKV for product in both for of in product.sources if len(of) == 1 for i in of if i in weighted}
    heads = {*_heads(flow, weighted)} if parts or not _are_of_no_module(flow) else set()
    parts |= dict.fromkeys(heads if flow.matmuls.keys() - heads else (), HEAD) | {i: ROUTER for i in flow.routers if i in weighted}
    feed_forward = {*_feed_forward({i: m for i, m in weighted.items() if i not in parts}, flow.routers)}
    if any(i not in feed_forward and parts.get(i) != HEAD for i in flow.matmuls):
        parts |= dict.fromkeys(feed_forward, FEED_FORWARD)
    parts |= dict.fromkeys(flow.scores & products.keys(), SCORES) | dict.fromkeys(mixes, MIX) | dict.fromkeys(attending - mixes, ATTENTION)
    unplaced = {i: m for i, m in weighted.items() if i not in parts}
    return parts | dict(_inside_attention(unplaced, both, _paths_of(flow, parts)))


def _are_of_no_module(flow: _Sources) -> bool:
    """Whether all weights are the model's own, in no module: without attention or experts, the last of them is one more factor."""
    return all("." not in flow.use.names.get(m.weight or 0, "") for m in flow.matmuls.values())


def _routed(use: ParameterUse) -> frozenset[str]:
    """Names of the parameters of which a token uses those of its experts."""
    return frozenset(name for name, elements in use.active.items() if elements.routed)


def _feed_forward(unplaced: Mapping[int, _Matmul], routers: Collection[int]) -> Iterator[int]:
    """Linear layers with only an activation function between them; not those of a recurrence, or after one. A gate makes two before one:
    three are a mixture of keys, values and gates over time."""
    sources = {i: [unplaced.get(source) for source in m.every_source.difference(routers)] for i, m in unplaced.items()}
    recurrent = {m.weight for i, m in unplaced.items() if any(b is not None and b.weight == m.weight for b in sources[i])}
    for i, m in unplaced.items():
        before = [b for b in sources[i] if b is not None and b.is_linear and b.weight not in recurrent]
        if m.is_linear and m.is_activated and 1 <= len(before) == len(sources[i]) <= 2:
            yield i
            yield from (b.index for b in before)


def _heads(flow: _Sources, weighted: Mapping[int, _Matmul]) -> Iterator[int]:
    """Matmuls from which the last result is computed, in modules of which there is only one: not the last of equal layers."""
    patterns = {m.module_path: re.sub(r"\d+", "*", m.module_path) for m in weighted.values()}
    for i in flow.last - flow.routers:
        if i in weighted and [*patterns.values()].count(patterns[weighted[i].module_path]) == 1:
            yield i


def _paths_of(flow: _Sources, parts: Mapping[int, str]) -> list[str]:
    """Module paths of matmuls that are in no attention."""
    return [flow.matmuls[i].module_path for i, part in parts.items() if part not in OF_ATTENTION]


def _inside_attention(unplaced: Mapping[int, _Matmul], attending: Iterable[_Matmul], others: Collection[str]) -> Iterator[tuple[int, str]]:
    """Matmuls in a module of attention alone: before its products they lead to queries, keys and values."""
    modules = {m.module_path: m.index for m in attending if m.module_path and not any(_is_inside(o, m.module_path) for o in others)}
    for i, m in unplaced.items():
        for module_path, index in modules.items():
            if _is_inside(m.module_path, module_path):
                yield i, QKV if i < index else PROJECT


def _is_inside(module_path: str, of: str) -> bool:
    return not of or module_path == of or module_path.startswith(of + ".")


@dataclass(frozen=True, slots=True)
class ModelParts:
    """The parts of one traced step. ``operators``: matmuls of the forward by index; ``recomputed``: those of each module path and operator,
    in order; ``below``: parts of matmuls in each module and in those inside it; ``parameters`` by name; ``norms``: module paths; ``saved``:
    tensors that modules of several parts save, by module path, operator and storage; ``products``: parts whose matmuls have names of their
    own, as probs value has where probs is the left operand."""

    operators: Mapping[int, str]
    below: Mapping[str, frozenset[str]]
    norms: frozenset[str]
    parameters: Mapping[str, str]
    softmaxes: frozenset[str]
    saved: Mapping[tuple[str, str, int], str] = field(default_factory=dict)
    products: frozenset[str] = frozenset()

    def label(self, part: str, label: AddendLabel) -> AddendLabel:
        """The label of an addend in its part: ``probs value`` for the ``x W`` of a mix, under a causal mask too."""
        name = _UNFUSED.get((part, label.text), "") if part in self.products else ""
        return replace(label, text=name, gradient="") if name else label

    def of_operator(self, op: Op, work: WorkKind | None, attention: str, forward: ForwardMatmuls) -> str:
        """The part of an addend of an operator's cost, or a module path. ``attention``: as of a ``Term``."""
        if op.phase == "optimizer":
            return self.of_tensor(op.module_path)
        if work in _OF_MATMULS:
            return _FUSED.get(attention) or self._of_matmul(op, forward)
        if "attention" in op.name and work is WorkKind.ELEMENTWISE:
            return SOFTMAX
        if op.index in self.operators:
            return self.operators[op.index]
        return self._of_other(op.module_path, op.name)

    def of_saved(self, saved: Saved) -> str:
        """The part of a tensor that an operator saves for its backward, or a module path."""
        part = self._of_other(saved.module_path, saved.op)
        return self.saved.get((saved.module_path, saved.op, saved.tensor.storage), part) if part == REMAINDER else part

    def _of_other(self, module_path: str, operator: str) -> str:
        if _SOFTMAX.search(operator) and module_path in self.softmaxes:
            return SOFTMAX
        return self._of_module(module_path, operator)

    def of_tensor(self, name: str) -> str:
        """The part of a parameter or buffer, or its name."""
        return self.parameters.get(name) or OUTSIDE.get(name, name)

    def _of_matmul(self, op: Op, forward: ForwardMatmuls) -> str:
        if op.index in self.operators:
            return self.operators[op.index]
        parts = {self.operators[matmul.operator] for matmul in differentiated(op, forward) if matmul.operator in self.operators}
        return parts.pop() if len(parts) == 1 else self._of_module(op.module_path, op.name)

    def _of_module(self, module_path: str, operator: str) -> str:
        if "embedding" in operator:
            return EMBEDDING
        if _LOSS.search(operator) or module_path.endswith(LOSS_PATH):
            return LOSS
        if module_path in self.norms or (_NORM.search(operator) and module_path not in self.below):
            return NORMS
        return self._of_place(module_path)

    def _of_place(self, module_path: str) -> str:
        """The part of the matmuls of the innermost module around ``module_path`` that has some."""
        around = module_path
        while around and around not in self.below:
            around = around.rpartition(".")[0]
        part = _joint(self.below[around]) if around else REMAINDER
        return part or module_path


def _joint(parts: frozenset[str]) -> str:
    """One part for several: attention, or feed-forward with its router."""
    if len(parts) == 1:
        return next(iter(parts))
    if parts <= OF_ATTENTION:
        return ATTENTION
    if parts <= _OF_FEED_FORWARD:
        return EXPERTS if EXPERTS in parts else FEED_FORWARD
    return REMAINDER


def model_parts(trace: StepTrace, use: ParameterUse, cost: Callable[[Op], Cost]) -> ModelParts:
    """The parts of the forward of ``trace``, and of all that follows from it."""
    flow = _Sources(use, cost, {storage.index for storage in trace.storages if storage.role == "input"})
    for op in _forward(trace):
        flow.follow(op)
    operators = dict(_modules(flow)) | _by_operator(flow)
    operators |= _recomputed(trace, operators)
    below = _below(flow, operators)
    norms = frozenset(op.module_path for op in _forward(trace) if _NORM.search(op.name) and op.module_path not in below)
    softmaxes = frozenset(op.module_path for op in _forward(trace) if op.index in flow.softmaxes)
    matmuls = {i for i, matmul in flow.matmuls.items() if not matmul.is_fused}
    saved = dict(_saved(trace, _by_source(trace, flow, operators), matmuls))
    parts = ModelParts(operators, below, norms, {}, softmaxes, saved, frozenset(_named_products(flow, operators)))
    return replace(parts, parameters=dict(_parameters(trace, flow, parts)))


def _named_products(flow: _Sources, operators: Mapping[int, str]) -> Iterator[str]:
    """The parts of attention whose matmuls are certain to have their factors in the usual order."""
    yield SCORES
    if all(flow.matmuls[i].sources[0] & flow.softmaxes for i in flow.matmuls if operators[i] == MIX):
        yield MIX


def _by_source(trace: StepTrace, flow: _Sources, operators: Mapping[int, str]) -> dict[int, str]:
    """The part of each operator of the forward that is computed from one part alone, and of each norm and matmul, by its index."""
    parts = {i: of.pop() for i, sources in flow.before.items() if len(of := {operators.get(source, REMAINDER) for source in sources}) == 1}
    norms = {op.index: NORMS for op in _forward(trace) if _WHOLE_NORM.search(op.name)}
    return parts | dict.fromkeys(flow.softmaxes, SOFTMAX) | norms | dict(operators)


def _saved(trace: StepTrace, parts: Mapping[int, str], only_operands: Collection[int]) -> Iterator[tuple[tuple[str, str, int], str]]:
    """The part of each saved tensor whose operators are all of one part. Tensors are saved in the first step and parts are of the second,
    whose forward runs the same operators but for a ``detach`` where autograd keeps a result. ``only_operands``: operators that save no
    result."""
    first, second = ([op for op in _forward(trace, step) if op.name != _DETACH] for step in (1, 2))
    if [(op.name, op.module_path) for op in first] != [(op.name, op.module_path) for op in second]:
        return
    of_tensor: dict[tuple[str, str, int], set[str]] = {}
    for op, counted in zip(first, second, strict=True):
        results = () if counted.index in only_operands else op.outputs
        for storage in {t.storage for t in (*tensors(value for _, value in op.args), *results)}:
            of_tensor.setdefault((op.module_path, op.name, storage), set()).add(parts.get(counted.index, REMAINDER))
    for key, several in of_tensor.items():
        if len(several) == 1:
            yield key, several.pop()


def _modules(flow: _Sources) -> Iterator[tuple[int, str]]:
    """The module of each matmul's weight, else the one that runs it. Of several weights that no module has, each is named itself."""
    names = {i: flow.use.names.get(m.weight, "") if m.weight is not None else "" for i, m in flow.matmuls.items()}
    several = len({name for name in names.values() if name and "." not in name}) > 1
    for i, name in names.items():
        runs_it = flow.matmuls[i].module_path
        yield i, name.rpartition(".")[0] or (name if several else "") or (LOSS if runs_it == LOSS_PATH else runs_it)


def _recomputed(trace: StepTrace, operators: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """The matmuls that the backward recomputes, which run in the order of the forward."""
    ordered: dict[tuple[str, str], list[str]] = {}
    for op in _forward(trace):
        if op.index in operators:
            ordered.setdefault((op.module_path, op.name), []).append(operators[op.index])
    for op in trace.ops:
        if op.step == 2 and op.node == RECOMPUTED and (remaining := ordered.get((op.module_path, op.name))):
            yield op.index, remaining.pop(0)


def _below(flow: _Sources, operators: Mapping[int, str]) -> dict[str, frozenset[str]]:
    """The parts of the matmuls in each module, and in all modules around it."""
    below: dict[str, set[str]] = {}
    named = {*NAMES, *flow.use.names.values()}  # a weight of no module has its own name
    for i, matmul in flow.matmuls.items():
        around = matmul.module_path
        while around:
            below.setdefault(around, set()).add(operators[i] if operators[i] in named else _OWN)
            around = around.rpartition(".")[0]
    return {path: frozenset(parts) for path, parts in below.items()}


def _parameters(trace: StepTrace, flow: _Sources, parts: ModelParts) -> Iterator[tuple[str, str]]:
    """The part of each parameter: that of its lookup or matmul, or of the experts that it is of; of a vector that of its module."""
    of_weight = {m.weight: parts.operators[i] for i, m in reversed(flow.matmuls.items())}
    owners: dict[str, set[str]] = {}
    routed = _routed(flow.use)
    for name, tensor in trace.parameters:
        if tensor.storage in of_weight:
            owners.setdefault(name.rpartition(".")[0], set()).add(of_weight[tensor.storage])
    for name, tensor in (*trace.parameters, *trace.buffers):
        owner, is_vector = name.rpartition(".")[0], len(tensor.shape) < 2
        inside = frozenset(owners.get(owner, ())) or parts.below.get(owner, frozenset())
        if name in flow.use.tables:
            yield name, EMBEDDING
        elif tensor.storage in of_weight:
            yield name, of_weight[tensor.storage]
        elif name in routed:
            yield name, EXPERTS
        elif owner in parts.norms:
            yield name, NORMS
        elif is_vector and inside and (part := _joint(inside)) != REMAINDER:
            yield name, part or owner
        else:
            yield name, name
