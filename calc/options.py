"""The choices that change what a training step costs, beside its sizes. Torch-free; one record for both routes."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from calc.arguments import given, shown
from calc.errors import BadInputError
from calc.optimizers import KNOWN, REFUSED

# Every class of torch.optim whose step has a closed form, by its usual name; "spec" is the one that a model's own spec builds.
OPTIMIZERS = (*KNOWN, "spec")
MASTER = "bf16-master"
PRECISIONS = ("fp32", "bf16-autocast", "fp16-autocast", "bf16", MASTER)
ATTENTIONS = ("fused", "math")
TRAIN = "train"
MODES = ("train", "eval", "infer")
IMPLEMENTATIONS = ("loop", "foreach", "fused")
ZEROING = ("none", "zero")
_CHECKPOINTING = re.compile(r"none|attention|block(/[1-9]\d{0,5})?")
_MOST_ACCUMULATED = 64

# Named by the design and refused as "not built yet" rather than as unknown.
_PLANNED = {"precision": ("fp32-tf32",)}


@dataclass(frozen=True, slots=True)
class Options:
    """How the step runs.

    ``optimizer``       one of ``OPTIMIZERS``, with its class's defaults.
    ``precision``       number formats: ``fp32``; ``bf16-autocast`` and ``fp16-autocast`` (fp32 weights, the latter with a gradient
                        scaler); ``bf16`` for everything; ``bf16-master``: a bf16 model whose optimizer steps fp32 copies.
    ``attention``       ``fused``: what torch's dispatch picks by itself; ``math``: the math backend for every attention.
    ``mode``            ``train``: forward, backward and optimizer step; ``eval``: the loss of a module in evaluation mode, without
                        gradients; ``infer``: the spec's prediction (else its loss) in inference mode.
    ``implementation``  of the optimizer: ``loop`` over the parameters (torch's default on CPU), ``foreach`` or ``fused``.
    ``checkpointing``   what runs again in the backward instead of being kept: ``none``, every ``block``, ``block/2`` every second one,
                        the ``attention`` of each block.
    ``accumulation``    forwards and backwards to one optimizer step, each on a batch of B.
    ``zero_grad``       ``none``: gradients are released after the step; ``zero``: they are kept and set to 0.
    """

    optimizer: str = "adamw"
    precision: str = "fp32"
    attention: str = "fused"
    mode: str = "train"
    implementation: str = "loop"
    checkpointing: str = "none"
    accumulation: str = "1"
    zero_grad: str = "none"

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str) and self.optimizer in REFUSED:
            raise BadInputError(REFUSED[self.optimizer])
        _check("optimizer", self.optimizer, OPTIMIZERS)
        _check("precision", self.precision, PRECISIONS)
        _check("attention", self.attention, ATTENTIONS)
        _check("mode", self.mode, MODES)
        _check("implementation", self.implementation, IMPLEMENTATIONS)
        _check("zero_grad", self.zero_grad, ZEROING)
        if not isinstance(self.checkpointing, str) or not _CHECKPOINTING.fullmatch(self.checkpointing):
            known = "none, block, block/2 and so on, attention"
            raise BadInputError(f"unknown checkpointing {_clipped(self.checkpointing)}: known are {known}")
        object.__setattr__(self, "accumulation", _count("accumulation", self.accumulation, _MOST_ACCUMULATED))

    @property
    def trains(self) -> bool:
        """Whether the step has a backward and an optimizer."""
        return self.mode == TRAIN

    @property
    def every(self) -> int:
        """Of how many blocks one runs again in the backward: 2 of ``block/2``; 1 where none are told apart."""
        return int(self.checkpointing.partition("/")[2] or 1)

    def to_json(self) -> dict[str, str]:
        """The options as plain data, in a fixed order: the four that are always said, and others where they are not the default.
        A step that updates nothing has no optimizer."""
        default = {f.name: f.default for f in fields(self)}
        return {
            name: value
            for name, value in asdict(self).items()
            if (self.trains or name != "optimizer") and (name in _ALWAYS or value != default[name])
        }


_ALWAYS = ("optimizer", "precision", "attention", "mode")


def made(**given: Any) -> Options:
    """Options by name; one that does not exist is refused in a line that names those that do."""
    known = [f.name for f in fields(Options)]
    for name in given:
        if name not in known:
            raise BadInputError(f"unknown option {_clipped(name)}: known are {', '.join(known)}")
    return Options(**given)


def _check(option: str, value: object, known: tuple[str, ...]) -> None:
    if isinstance(value, str) and value in known:
        return
    if isinstance(value, str) and value in _PLANNED.get(option, ()):
        raise BadInputError(f"{option} {value!r} is not built yet: use {', '.join(known)}")
    raise BadInputError(f"unknown {option} {_clipped(value)}: known are {', '.join(known)}")


def _count(option: str, value: object, most: int) -> str:
    count = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and re.fullmatch(r"[1-9]\d{0,5}", value, re.ASCII):
        count = int(value)
    if count is None or not 1 <= count <= most:
        said = f"{option} = {value[:40]} is no count" if isinstance(value, str) else given(option, value)
        raise BadInputError(f"{said}: give an integer from 1 to {most}")
    return str(count)


def _clipped(value: object) -> str:
    return repr(f"{value[:39]}…") if isinstance(value, str) and len(value) > 40 else shown(value)
