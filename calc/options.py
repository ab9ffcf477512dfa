"""The choices that change what a training step costs, beside its sizes. Torch-free; one record for both routes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from calc.errors import BadInputError

# "spec" is the optimizer that a model's own specification builds.
OPTIMIZERS = ("sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw", "spec")
PRECISIONS = ("fp32",)
ATTENTIONS = ("fused", "math")
TRAIN = "train"
MODES = ("train", "eval", "infer")

# Named by the design and refused as "not built yet" rather than as unknown.
_PLANNED = {"precision": ("fp32-tf32", "bf16-autocast", "fp16-autocast", "bf16", "bf16-master")}


@dataclass(frozen=True, slots=True)
class Options:
    """How the step runs.

    ``optimizer``  one of ``OPTIMIZERS``, with its class's defaults and the per-tensor implementation.
    ``precision``  number format of weights and arithmetic.
    ``attention``  ``fused``: what torch's dispatch picks by itself; ``math``: the math backend for every attention.
    ``mode``       ``train``: forward, backward and optimizer step; ``eval``: the loss of a module in evaluation mode, without
                   gradients; ``infer``: the spec's prediction (else its loss) in inference mode.
    """

    optimizer: str = "adamw"
    precision: str = "fp32"
    attention: str = "fused"
    mode: str = "train"

    def __post_init__(self) -> None:
        _check("optimizer", self.optimizer, OPTIMIZERS)
        _check("precision", self.precision, PRECISIONS)
        _check("attention", self.attention, ATTENTIONS)
        _check("mode", self.mode, MODES)

    @property
    def trains(self) -> bool:
        """Whether the step has a backward and an optimizer."""
        return self.mode == TRAIN

    def to_json(self) -> dict[str, str]:
        """The options as plain data, in a fixed order. A step that updates nothing has no optimizer."""
        return {name: value for name, value in asdict(self).items() if self.trains or name != "optimizer"}


def _check(option: str, value: object, known: tuple[str, ...]) -> None:
    if value in known:
        return
    if value in _PLANNED.get(option, ()):
        raise BadInputError(f"{option} {value!r} is not built yet: use {', '.join(known)}")
    written = str(value)
    clipped = written if len(written) <= 40 else f"{written[:39]}…"
    raise BadInputError(f"unknown {option} {clipped!r}: known are {', '.join(known)}")
