"""Which parameters one token uses, read off a traced forward: all, except those of experts that its router does not choose.

A router chooses e of E experts for each token: an operator (``topk``, ``argmax``, …) returns their indices. This module follows the indices
to the rows and matrices that they select, and the rows to the parameters that multiply them. The count of experts per token is that of the
choice: it is exact although the choice is data-dependent. A choice that cannot be followed has a reason instead of a count.

Conventions: an embedding table belongs to a token as a whole, as in published counts of active parameters. Embeddings are the tables and
the head (Kaplan et al. 2020, arXiv 2001.08361, section 2.1: N leaves out embedding and de-embedding).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calc.derive.output_heads import last_matrices
from calc.graph.step import Op, Size, StepTrace, Tensor, tensors
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import free_names

Read = Callable[[Size], Any]

CHOOSING = frozenset(
    ("aten.topk.default", "aten.argmax.default", "aten.max.dim", "aten.sort.default", "aten.sort.stable", "aten.argsort.default")
)
TABLES = frozenset(("aten.embedding.default", "aten._embedding_bag.default", "aten._embedding_bag_forward_only.default"))
_SELECTING = frozenset(("aten.index.Tensor", "aten.index_select.default", "aten.gather.default", "aten.embedding.default"))
_COPYING = frozenset(("aten._to_copy.default", "aten.clone.default"))
_WHOLE_NUMBERS = ("int", "uint", "bool")
_GROUPED, _BATCHED = "aten._grouped_mm.default", ("aten.bmm.default", "aten.baddbmm.default")


@dataclass(frozen=True, slots=True)
class _Choice:
    """A choice of ``each`` of ``experts`` for every row of ``scores`` numbers. A sort leaves ``each`` open: its result is sliced.

    ``number`` is that of the experts in this trace, where it is a number in it: a trip count or a specialized size.
    """

    operator: int
    module_path: str
    experts: Any
    scores: Any
    each: Any | None
    number: int | None

    def per_token(self, rows: Any) -> Any | None:
        """Experts of one token if all tokens have ``rows`` pairs of token and expert together; None if that is no whole number."""
        each = _quotient(rows * self.experts, self.scores)
        return each if self.each is None or each == self.each else None


@dataclass(frozen=True, slots=True)
class _Use:
    """A use of ``elements`` of a parameter by the rows that chose an expert; ``group`` is the index tensor that selected them."""

    choice: _Choice
    group: int
    parameter: int
    shape: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ActiveElements:
    """The elements of one parameter that a token uses, as a product of ``factors``."""

    factors: tuple[Any, ...]
    routed: bool


@dataclass(frozen=True, slots=True)
class ParameterUse:
    """``active`` by parameter name; ``embeddings`` are the tables that are looked up, and last matrices of the sizes of the table of the
    input ids, which give the scores of the next id (the output embedding). ``reason``: why active is unknown.

    ``tables`` are those that are looked up. ``names`` of parameters by storage; ``copies``: storages of parameters and of their casts and
    copies, each with the parameter's storage.
    """

    active: Mapping[str, ActiveElements]
    embeddings: frozenset[str]
    reason: str
    tables: frozenset[str]
    names: Mapping[int, str]
    copies: Mapping[int, int]


def parameter_use(trace: StepTrace, read: Read) -> ParameterUse:
    """What one token uses of each parameter of ``trace``; ``read`` makes a number or a polynomial of a size."""
    flow = _Flow(trace, read)
    for op in trace.ops:
        if op.step == 2 and op.phase == "forward":
            flow.follow(op)
    return flow.result()


@dataclass
class _Flow:
    """Follows choices through the forward, by storage.

    ``_choices``  indices and masks that say which experts were chosen.
    ``_rows``     tensors of the rows that chose an expert, with the index tensor that selected them.
    ``_copies``   casts and copies of a parameter or of a part of it, with the parameter's storage.
    ``_tables``   tables that are looked up, and whether by an input of the model.
    ``_shares``   factors of a parameter whose experts one operator runs, (e, …) for (E, …).
    ``_learned``  parameters, and what is computed of them and of other tensors.
    """

    trace: StepTrace
    read: Read
    _choices: dict[int, _Choice] = field(default_factory=dict)
    _rows: dict[int, tuple[_Choice, int]] = field(default_factory=dict)
    _copies: dict[int, int] = field(default_factory=dict)
    _tables: dict[int, bool] = field(default_factory=dict)
    _shares: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _learned: set[int] = field(default_factory=set)
    _whole: set[int] = field(default_factory=set)
    _uses: dict[int, list[_Use]] = field(default_factory=dict)
    _reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._copies |= {tensor.storage: tensor.storage for _, tensor in self.trace.parameters}
        self._learned |= {*self._copies}

    def follow(self, op: Op) -> None:
        operands = list(tensors(value for _, value in op.args))
        if any(tensor.storage in self._learned for tensor in operands):
            self._learned |= {out.storage for out in op.outputs}
        if op.outputs and all(any(out.storage == t.storage for t in operands) for out in op.outputs) and not op.mutates:
            return  # a view
        if not self._copied(op, operands):
            for tensor in operands:
                if tensor.storage in self._copies:
                    self._use(op, tensor, operands)
        self._propagate(op, operands)

    # -- parameters -----------------------------------------------------------------------------------------------

    def _copied(self, op: Op, operands: Sequence[Tensor]) -> bool:
        """Whether the operator copies (a part of) a parameter: a cast, or one matrix of a stack by a chosen index."""
        of = [t for t in operands if t.storage in self._copies]
        if len(of) != 1 or len(op.outputs) != 1:
            return False
        out = op.outputs[0]
        same = op.name in _COPYING and bool(self._elements(out) == self._elements(of[0]))
        chosen = op.name in _SELECTING and self._chosen(operands) is not None
        one = chosen and len(of[0].shape) > 2 and bool(self._elements(operands[-1]) == 1)
        if same or one:
            self._copies[out.storage] = self._copies[of[0].storage]
        return same or one

    def _use(self, op: Op, tensor: Tensor, operands: Sequence[Tensor]) -> None:
        parameter, choice = self._copies[tensor.storage], self._chosen(operands)
        looked_up = op.name in (*TABLES, *_SELECTING) and tensor.storage == operands[0].storage  # and no weights of its rows
        if looked_up and choice is None and operands[-1].dtype != "bool":
            by_input = any(self.trace.storages[t.storage].role == "input" for t in operands)
            self._tables[parameter] = by_input or self._tables.get(parameter, False)
            self._whole.add(parameter)
        elif op.name == _GROUPED:
            self._share(op, parameter, tensor, choice, self.read(operands[0].shape[0]))
        elif op.name in _SELECTING and choice is not None:
            self._share(op, parameter, tensor, choice, self._elements(operands[-1]))
        elif (rows := self._routed(operands)) is not None:
            use = _Use(*rows, parameter, tuple(self.read(size) for size in tensor.shape))
            self._uses.setdefault(rows[0].operator, []).append(use)
        else:
            self._require_all_rows(op, tensor, operands)
            self._whole.add(parameter)

    def _share(self, op: Op, parameter: int, tensor: Tensor, choice: _Choice | None, rows: Any) -> None:
        """One operator gives each of ``rows`` rows its own matrix of the stack ``tensor``."""
        experts = self.read(tensor.shape[0])
        each = None if choice is None or choice.experts != experts else choice.per_token(rows)
        if each is None:
            self._refuse(op, f"{op.name} runs groups of rows, and no choice of the traced step says how many groups a token is in")
        else:
            self._shares[parameter] = (each, *(self.read(size) for size in tensor.shape[1:]))

    def _require_all_rows(self, op: Op, tensor: Tensor, operands: Sequence[Tensor]) -> None:
        """Refuse a stack of E matrices that multiplies slots: how many slots a token gets depends on data."""
        if op.name not in _BATCHED or len(tensor.shape) != 3:
            return
        batch, path = self.read(tensor.shape[0]), op.module_path.rpartition(".")[0]
        chosen = [c for c in self._choices.values() if c.experts == batch and c.module_path.startswith(path)]
        rows = {self._elements(t) for t in operands if t is not tensor}
        for choice in chosen:
            if not any(_quotient(elements, choice.scores) is not None for elements in rows):
                self._refuse(op, "experts multiply slots that a capacity limits: how many a token gets depends on data")
                return

    def _refuse(self, op: Op, why: str) -> None:
        self._reasons.append(f"{op.module_path or 'the model'}: {why}")

    # -- choices and rows -----------------------------------------------------------------------------------------

    def _chosen(self, operands: Sequence[Tensor]) -> _Choice | None:
        return next((self._choices[t.storage] for t in operands if t.storage in self._choices), None)

    def _routed(self, operands: Sequence[Tensor]) -> tuple[_Choice, int] | None:
        """The routed rows among operands, unless they are one for each token."""
        for tensor in operands:
            rows = self._rows.get(tensor.storage)
            if rows is not None and self._elements(tensor, but_last=True) * rows[0].experts != rows[0].scores:
                return rows
        return None

    def _propagate(self, op: Op, operands: Sequence[Tensor]) -> None:
        choice, rows = self._chosen(operands), self._routed(operands)
        if op.name in CHOOSING and choice is None:
            self._choose(op)
            return
        chosen_first = bool(operands) and operands[0].storage in self._choices
        for out in op.outputs:
            whole_numbers = out.dtype.startswith(_WHOLE_NUMBERS)
            if choice is not None and (whole_numbers or chosen_first or self._all_chosen(operands)):
                self._choices[out.storage] = choice
            elif op.name == _GROUPED and choice is not None:
                self._rows[out.storage] = rows or (choice, operands[-1].storage)
            elif op.name in _SELECTING and choice is not None and operands[0].storage not in self._rows:
                self._rows[out.storage] = (choice, operands[-1].storage)
            elif rows is not None and choice is None:
                self._rows[out.storage] = rows
            elif rows is not None:
                self._rows.pop(out.storage, None)  # results of the experts, put back in the order of tokens

    def _all_chosen(self, operands: Sequence[Tensor]) -> bool:
        return all(t.storage in self._choices for t in operands if not t.dtype.startswith(_WHOLE_NUMBERS))

    def _choose(self, op: Op) -> None:
        scores, indices = dict(op.args)["self"], op.outputs[-1]
        dim = dict(op.args).get("dim")
        if not scores.shape or (dim is None and op.name == "aten.argmax.default"):
            return
        if scores.dtype.startswith(_WHOLE_NUMBERS) or scores.storage not in self._learned:
            return  # lengths, ids, buckets, or an order at random: a router's scores are fractions that its parameters give
        axis = dim if isinstance(dim, int) else -1
        experts = self.read(scores.shape[axis])
        each = 1 if op.name in ("aten.argmax.default", "aten.max.dim") else None
        if op.name == "aten.topk.default":
            each = self.read(indices.shape[axis])
        number = self._number(scores.shape[axis])
        self._choices[indices.storage] = _Choice(op.index, op.module_path, experts, self._elements(scores), each, number)

    def _number(self, size: Size) -> int | None:
        fixed = isinstance(size, int) or free_names(size) <= self.trace.sizes.keys()
        return int(evaluate_text(str(size), self.trace.sizes)) if fixed else None

    def _elements(self, tensor: Tensor, *, but_last: bool = False) -> Any:
        return math.prod(self.read(size) for size in (tensor.shape[:-1] if but_last else tensor.shape))

    # -- result ---------------------------------------------------------------------------------------------------

    def result(self) -> ParameterUse:
        names: dict[int, str] = {}
        for name, tensor in self.trace.parameters:
            names.setdefault(tensor.storage, name)
        shapes = {tensor.storage: tuple(self.read(size) for size in tensor.shape) for _, tensor in self.trace.parameters}
        routed = {s: factors for s, factors in self._shares.items() if s not in self._whole}
        for uses in self._uses.values():
            routed |= self._of_loop([use for use in uses if use.parameter not in self._whole], shapes)
        active = {name: ActiveElements(routed.get(s, shapes[s] or (1,)), s in routed) for s, name in names.items()}
        vocabulary = {frozenset(shapes[s]) for s, by_input in self._tables.items() if by_input}
        heads = (s for s in last_matrices(self.trace) if len(shapes[s]) == 2 and frozenset(shapes[s]) in vocabulary)
        embeddings = frozenset(names[s] for s in (*self._tables, *heads))
        tables = frozenset(names[s] for s in self._tables)
        return ParameterUse(active, embeddings, min(self._reasons, default=""), tables, names, self._copies)

    def _of_loop(self, uses: Sequence[_Use], shapes: Mapping[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
        """Experts that run one after the other, each on the rows that chose it: as many of them as a token chooses count.

        Each is one matrix of a stack, or its own parameters: then the first expert's count e times, if all E experts are alike.
        """
        if not uses:
            return {}
        choice, shares = uses[0].choice, dict[int, tuple[Any, ...]]()
        each, owners = choice.each, dict[Any, dict[int, tuple[Any, ...]]]()
        for use in uses:
            if math.prod(use.shape) * choice.experts == math.prod(shapes[use.parameter]):
                shares[use.parameter] = (each, *use.shape)
            else:
                owners.setdefault(use.group, {})[use.parameter] = shapes[use.parameter]
        if len(owners) == 1:
            owners = self._by_name(*owners.values())
        idle = self._never_chosen([*map(list, owners.values())], shapes) if len(owners) > 1 else []
        if each is None or (owners and not self._alike(choice, owners, len(idle))):
            self._reasons.append(
                f"{choice.module_path or 'the model'}: the chosen rows go to modules that are not equal experts"
            )
            return {}
        for i, own in enumerate(owners.values()):  # a token uses e experts: the first one counts e times, the others 0 times
            shares |= {parameter: (0,) if i else (each, *shape) for parameter, shape in own.items()}
        return shares | dict.fromkeys((parameter for expert in idle for parameter in expert), (0,))

    def _by_name(self, own: Mapping[int, tuple[Any, ...]]) -> dict[Any, dict[int, tuple[Any, ...]]]:
        """The parameters of experts that take parts of one tensor of rows, in the order of the experts: by the part of their names in which
        they first differ."""
        names = {tensor.storage: name.split(".") for name, tensor in self.trace.parameters if tensor.storage in own}
        first = next((i for i, parts in enumerate(zip(*names.values(), strict=False)) if len({*parts}) > 1), 0)
        experts: dict[Any, dict[int, tuple[Any, ...]]] = {}
        for parameter, shape in own.items():
            experts.setdefault(names[parameter][first], {})[parameter] = shape
        return experts

    def _alike(self, choice: _Choice, owners: Mapping[int, Mapping[int, tuple[Any, ...]]], idle: int) -> bool:
        shapes = [list(group.values()) for group in owners.values()]
        separate = sum(map(len, owners.values())) == len({p for group in owners.values() for p in group})
        return separate and len(owners) + idle == choice.number and all(own == shapes[0] for own in shapes)

    def _never_chosen(self, experts: Sequence[Sequence[int]], shapes: Mapping[int, tuple[Any, ...]]) -> list[list[int]]:
        """The parameters of each expert that no row chose in this trace, where a loop runs those alone that were chosen: they have the
        shapes of ``experts``, and their names but for one part."""
        by_name = {tuple(name.split(".")): tensor.storage for name, tensor in self.trace.parameters}
        names = {storage: name for name, storage in by_name.items()}
        first, second = ([names[parameter] for parameter in expert] for expert in experts[:2])
        differs = [i for i, (a, b) in enumerate(zip(first[0], second[0], strict=False)) if a != b]
        if len(differs) != 1:
            return []
        [place] = differs

        def of(expert: str, name: tuple[str, ...]) -> tuple[str, ...]:
            return (*name[:place], expert, *name[place + 1 :])

        used = self._whole.union(use.parameter for uses in self._uses.values() for use in uses)
        siblings = [name[place] for name in by_name if len(name) > place and of("", name) == of("", first[0])]
        groups = [[by_name.get(of(sibling, name), -1) for name in first] for sibling in siblings]
        alike = [shapes[parameter] for parameter in experts[0]]
        return [group for group in groups if not used & {*group} and [shapes.get(parameter) for parameter in group] == alike]


def _quotient(a: Any, b: Any) -> Any | None:
    """``a / b``, or None where that is no integer or no polynomial."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    quotient, rest = (b.ring(a) if isinstance(a, int) else a).div(b)
    return None if rest else quotient
