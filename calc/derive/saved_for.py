"""As what an operator saves a tensor for its backward, and why: x for dW = dyᵀ x, or query, key and value of attention.

Reasons and names are a table, ``why_saved.toml``. Those of a matmul follow from how it uses its operands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from calc.derive.backward_matmuls import ForwardMatmuls, forward_matmuls, operand_saved
from calc.graph.step import Op, Saved, StepTrace, Tensor, bare_name, tensors

IN_GENERAL = "its backward reads it"
_STEP = 1  # autograd was watched in the first step
_USUAL = {"self": "x", "input": "x", "mat1": "x", "batch1": "x", "mat2": "W", "batch2": "W", "result 0": "y"}


@dataclass(frozen=True, slots=True)
class SavedAs:
    """The name of a saved tensor in the equations of the ``operator`` whose backward reads it, and why it does: the ``equation`` that needs
    it, or another ``reason``. Without either the table does not say."""

    operator: str
    name: str
    reason: str = ""
    equation: str = ""

    @property
    def because(self) -> str:
        return f"{self.equation} needs {self.name}" if self.equation else self.reason or IN_GENERAL


@dataclass
class SavedUses:
    """As what each saved tensor of a trace is saved."""

    trace: StepTrace
    _ran: dict[tuple[str, str, int], list[Op]] = field(default_factory=dict)
    """Operators that ran, by name, module path and each storage that they use."""
    _before: dict[tuple[int, str, str], int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[Saved, SavedAs]]:
        for op in self.trace.ops:
            if op.step == _STEP and op.phase in ("forward", "backward"):
                for storage in dict.fromkeys(tensor.storage for tensor in tensors((*op.args, op.outputs))):
                    self._ran.setdefault((op.name, op.module_path, storage), []).append(op)
        forward = forward_matmuls(self.trace)
        for saved in self.trace.saved:
            yield saved, self._use(saved, forward)

    def _use(self, saved: Saved, forward: ForwardMatmuls) -> SavedAs:
        key = (saved.tensor.storage, saved.module_path, saved.op)
        likely, before = self._likely(saved), self._before.get(key, 0)
        self._before[key] = before + 1
        op, argument = likely[min(before, len(likely) - 1)] if likely else (None, "")
        operator = base(saved.op)
        name, equation = operand_saved(op, argument, forward) if op is not None else ("", "")
        return SavedAs(operator, name, equation=equation) if equation else by_table(operator, argument)

    def _likely(self, saved: Saved) -> Sequence[tuple[Op, str]]:
        """The operator and the role of the tensor in it: the name of an argument, or the position of a result. Autograd has neither, and
        of several the table has a reason for the likely ones."""
        ran = self._ran.get((saved.op, saved.module_path, saved.tensor.storage), ())
        matches = [(op, place) for op in ran for place in _places(op, saved.tensor)]
        reasons = table().get(base(saved.op), {})
        return [match for match in matches if match[1] in reasons] or matches


def _places(op: Op, tensor: Tensor) -> list[str]:
    """Arguments and results of ``op`` on the tensor's storage: those with the same shape, if any."""
    arguments = [(name, value) for name, values in op.args for value in (values if isinstance(values, tuple) else (values,))]
    candidates = [*arguments, *((f"result {place}", value) for place, value in enumerate(op.outputs))]
    mine = [(place, value) for place, value in candidates if isinstance(value, Tensor) and value.storage == tensor.storage]
    return [place for place, value in mine if value == tensor] or [place for place, _ in mine]


def base(operator: str) -> str:
    """``aten.relu_.default`` → ``relu``; names outside of ATen are unchanged."""
    if not operator.startswith("aten."):
        return operator
    name = bare_name(operator)
    return name.rstrip("_") if not name.startswith("__") else name


@cache
def table() -> Mapping[str, Any]:
    """The table of reasons, by operator."""
    entries = tomllib.loads(resources.files("calc").joinpath("data/why_saved.toml").read_text(encoding="utf-8"))
    return {name: entries[entry["like"]] if "like" in entry else entry for name, entry in entries.items()}


def by_table(operator: str, argument: str) -> SavedAs:
    """As what ``operator`` saves that argument, or that result."""
    reasons, name = table().get(operator, {}), called(operator, argument)
    match reasons.get(argument, reasons.get("any", "")):
        case {"equation": equation}:
            return SavedAs(operator, name, equation=equation)
        case reason:
            return SavedAs(operator, name, reason)


def called(operator: str, argument: str) -> str:
    """The name of an argument or a result in the equations of ``operator``; empty where the tensor is neither."""
    entry = table().get(operator, {})
    results = {f"result {place}": name for place, name in enumerate(entry.get("names", ()))}
    names = {**_USUAL, **results, **entry.get("called", {})}
    return str(names.get(argument, "" if argument.startswith("result") else argument.replace("_", " ")))


def in_words(uses: Sequence[SavedAs]) -> str:
    """Why backwards read several tensors, each by its name; empty where the table does not say. Tensors of one equation are together."""
    together: dict[tuple[str, str, str], list[str]] = {}
    for use in dict.fromkeys(uses):
        if use.equation or use.reason:
            together.setdefault((use.operator, use.reason, use.equation), []).append(use.name)
    several = len({operator for operator, _, _ in together}) > 1
    reasons = [
        (f"{', '.join(names)}{f' of {operator}' if several else ''}", reason or f"{equation} needs {' and '.join(names)}")
        for (operator, reason, equation), names in together.items()
    ]
    one = len({names for names, _ in reasons}) == 1
    return "; ".join(because if one else f"{names}: {because}" for names, because in reasons)
