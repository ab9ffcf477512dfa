"""Options that change what a training step costs, besides its sizes. Torch-free; shared by the trace and the measurement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from calc.errors import BadInputError, suggestion
from calc.platform.arguments import given, shown
from calc.symbolic.assignments import TYPED, sizes_text


@dataclass(frozen=True, slots=True)
class NamedOptimizer:
    """A named optimizer. ``kind`` is its class in torch.optim; ``overrides`` are arguments that override the ``defaults``.

    It stores so many ``values`` for each element of a parameter, and ``counters`` bytes for each parameter tensor: step counters and other
    scalars. Where it is ``factored``, a tensor of at least two dimensions has one value for each row and each column instead. ``ways`` are
    the implementations that torch has besides the loop.
    """

    name: str
    kind: str
    defaults: Mapping[str, Any]
    values: int
    counters: int = 0
    factored: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    ways: tuple[str, ...] = ("foreach",)
    about: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of torch's class."""
        return {**self.defaults, **self.overrides}

    @property
    def call(self) -> str:
        """The constructor call as text."""
        return f"{self.kind}({sizes_text(self.arguments, TYPED)})"

    @property
    def state(self) -> str:
        """The optimizer state in bytes of a parameter tensor of n elements, s bytes each, with last two sizes r and c."""
        return self._state("s*(n/c + n/r)") if self.factored else self._state(self._each)

    @property
    def vectors(self) -> str:
        """The state of a tensor with fewer than two dimensions, where it differs."""
        return self._state(self._each) if self.factored else ""

    @property
    def words(self) -> str:
        """The optimizer state in bytes, as text."""
        from calc.symbolic.readable import readable  # only a list of optimizers shows it

        vectors = f", {readable(self.vectors)} where it has fewer than two dimensions" if self.vectors else ""
        return f"{readable(self.state)} bytes{vectors}" if self.values else "nothing"

    @property
    def _each(self) -> str:
        return "s*n" if self.values == 1 else f"{self.values}*s*n" if self.values else "0"

    def _state(self, values: str) -> str:
        return f"{values} + {self.counters}" if self.counters else values


_SGD = {"lr": 0.001, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False}
_RMSPROP = {"lr": 0.01, "alpha": 0.99, "eps": 1e-08, "weight_decay": 0, "momentum": 0, "centered": False}
_BETAS = {"betas": (0.9, 0.999), "eps": 1e-08}
_ADAM = {"lr": 0.001, **_BETAS, "weight_decay": 0}
_ADAMW = {"lr": 0.001, **_BETAS, "weight_decay": 0.01, "amsgrad": False}
_ASGD = {"lr": 0.01, "lambd": 0.0001, "alpha": 0.75, "t0": 1000000.0, "weight_decay": 0}
_MUON = {
    "lr": 0.001, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "ns_coefficients": (3.4445, -4.775, 2.0315), "eps": 1e-07,
    "ns_steps": 5, "adjust_lr_fn": None,
}  # fmt: skip
_ALL = ("foreach", "fused")

_NAMED = (
    NamedOptimizer("sgd", "SGD", _SGD, 0, ways=_ALL),
    NamedOptimizer("momentum", "SGD", _SGD, 1, overrides={"momentum": 0.9}, ways=_ALL),
    NamedOptimizer("nesterov", "SGD", _SGD, 1, overrides={"momentum": 0.9, "nesterov": True}, ways=_ALL),
    NamedOptimizer("adagrad", "Adagrad", {"lr": 0.01, "lr_decay": 0, "weight_decay": 0, "eps": 1e-10}, 1, 4, ways=_ALL),
    NamedOptimizer("rmsprop", "RMSprop", _RMSPROP, 1, 4),
    NamedOptimizer("rmsprop-momentum", "RMSprop", _RMSPROP, 2, 4, overrides={"momentum": 0.9}),
    NamedOptimizer("rmsprop-centered", "RMSprop", _RMSPROP, 2, 4, overrides={"centered": True}),
    NamedOptimizer("adam", "Adam", {**_ADAM, "amsgrad": False}, 2, 4, ways=_ALL),
    NamedOptimizer("adamw", "AdamW", _ADAMW, 2, 4, ways=_ALL),
    NamedOptimizer("amsgrad", "AdamW", _ADAMW, 3, 4, overrides={"amsgrad": True}, ways=_ALL),
    NamedOptimizer("adamax", "Adamax", {"lr": 0.002, **_BETAS, "weight_decay": 0}, 2, 4),
    NamedOptimizer("nadam", "NAdam", {"lr": 0.002, **_BETAS, "weight_decay": 0, "momentum_decay": 0.004}, 2, 8),
    NamedOptimizer("radam", "RAdam", _ADAM, 2, 4),
    NamedOptimizer("adadelta", "Adadelta", {"lr": 1.0, "rho": 0.9, "eps": 1e-06, "weight_decay": 0}, 2, 4),
    NamedOptimizer("asgd", "ASGD", _ASGD, 1, 12),
    NamedOptimizer("rprop", "Rprop", {"lr": 0.01, "etas": (0.5, 1.2), "step_sizes": (1e-06, 50)}, 2, 4),
    NamedOptimizer(
        "adafactor",
        "Adafactor",
        {"lr": 0.01, "beta2_decay": -0.8, "eps": (None, 0.001), "d": 1.0, "weight_decay": 0.0},
        1,
        4,
        factored=True,
    ),
    NamedOptimizer(
        "muon",
        "Muon",
        _MUON,
        1,
        ways=(),
        about="for hidden matrices: parameters of two dimensions that belong to no embedding and not to the last linear layer;"
        " AdamW updates the others",
    ),
)
NAMED_OPTIMIZERS: Mapping[str, NamedOptimizer] = {row.name: row for row in _NAMED}

# Classes of torch.optim whose step has no closed form, each with the reason and the alternative.
REFUSED: Mapping[str, str] = {
    "lbfgs": "it repeats forward and backward up to 20 times a step, until a data-dependent criterion is"
    " met, so a step has no closed form; its state with a full history of m = 100 and N elements in all is in napkin list optimizers",
    "sparse-adam": "torch's SparseAdam takes sparse gradients only, and the size of one depends on the"
    " data; use adam or adamw with dense gradients",
}

# Bytes of state of torch.optim.LBFGS, from its source: m = 100 directions and m differences of gradients, the last direction and the last
# gradient, each of all N trained elements; two scalars per pair of the history (one stored, one temporary); the first direction's scale.
LBFGS_STATE = "(2*m + 2)*s*N + (2*m + 1)*s"


def refusal(name: str) -> str:
    """Why an optimizer of ``REFUSED`` is refused, as a message."""
    return f"optimizer {name!r} is refused: {REFUSED[name]}"


def named(name: str) -> str:
    """The line of ``napkin list optimizers`` for the optimizer ``name``."""
    entry = NAMED_OPTIMIZERS[name]
    ways = f"; also {' and '.join(entry.ways)}" if entry.ways else "; loop only"
    about = f"; {entry.about}" if entry.about else ""
    return f"{entry.call}{ways}{about}"


# Every class of torch.optim whose step has a closed form, by its usual name; "spec" is the one that a model's own spec builds.
OPTIMIZERS = (*NAMED_OPTIMIZERS, "spec")
MASTER = "bf16-master"
FP8_REFUSED = (
    "no step runs in fp8: torch multiplies in fp8, but has no derivative of that, no autocast to fp8, and no optimizer on fp8 tensors; use "
    "bf16-master, or see napkin bytes-per-parameter for published recipes and for a linear layer with an fp8 forward"
)
PRECISIONS = ("fp32", "bf16-autocast", "fp16-autocast", "bf16", MASTER)
ATTENTIONS = ("fused", "math")
TRAIN = "train"
MODES = ("train", "eval", "infer")
IMPLEMENTATIONS = ("loop", "foreach", "fused")
ZEROING = ("none", "zero")
KERNELS = ("cpu", "cuda")
_CHECKPOINTING = re.compile(r"none|attention|block(/[1-9]\d{0,5})?")
_MOST_ACCUMULATED = 64

# Named by the design and refused as "not built yet" rather than as unknown.
_PLANNED = {"precision": ("fp32-tf32",)}


@dataclass(frozen=True, slots=True)
class Options:
    """How the step runs.

    ``optimizer``       one of ``OPTIMIZERS``, with its class's defaults.
    ``precision``       dtypes: ``fp32``; ``bf16-autocast`` and ``fp16-autocast`` (fp32 weights, the latter with a gradient
                        scaler); ``bf16`` for everything; ``bf16-master``: a bf16 model whose optimizer steps fp32 copies.
    ``attention``       ``fused``: what torch's dispatch picks by itself; ``math``: the math backend for every attention.
    ``mode``            ``train``: forward, backward and optimizer step; ``eval``: the loss of a module in evaluation mode, without
                        gradients; ``infer``: the spec's prediction (else its loss) in inference mode.
    ``implementation``  of the optimizer: ``loop`` over the parameters (torch's default on CPU), ``foreach`` or ``fused``.
    ``checkpointing``   what is recomputed in the backward instead of being saved: ``none``, every ``block``, ``block/2`` every second one,
                        the ``attention`` of each block.
    ``accumulation``    micro-batches per optimizer step, each of size B.
    ``zero_grad``       ``none``: gradients are released after the step; ``zero``: they stay allocated and are set to 0.
    ``kernels``         whose kernels and autocast lists torch uses: those of the ``cpu``, on which a check runs, or of a ``cuda`` device.
    """

    optimizer: str = "adamw"
    precision: str = "fp32"
    attention: str = "fused"
    mode: str = "train"
    implementation: str = "loop"
    checkpointing: str = "none"
    accumulation: str = "1"
    zero_grad: str = "none"
    kernels: str = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str) and self.optimizer in REFUSED:
            raise BadInputError(refusal(self.optimizer))
        _check("optimizer", self.optimizer, OPTIMIZERS)
        if isinstance(self.precision, str) and self.precision.startswith(("fp8", "float8")):
            raise BadInputError(FP8_REFUSED)
        _check("precision", self.precision, PRECISIONS)
        _check("attention", self.attention, ATTENTIONS)
        _check("mode", self.mode, MODES)
        _check("implementation", self.implementation, IMPLEMENTATIONS)
        _check("zero_grad", self.zero_grad, ZEROING)
        _check("kernels", self.kernels, KERNELS)
        if not isinstance(self.checkpointing, str) or not _CHECKPOINTING.fullmatch(self.checkpointing):
            choices = "none, block, block/2 (every second block) or attention"
            raise BadInputError(f"unknown checkpointing {_clipped(self.checkpointing)}: use {choices}")
        object.__setattr__(self, "accumulation", _count("accumulation", self.accumulation, _MOST_ACCUMULATED))

    @property
    def trains(self) -> bool:
        """Whether the step has a backward and an optimizer."""
        return self.mode == TRAIN

    @property
    def every(self) -> int:
        """The interval between recomputed blocks: 2 for ``block/2``, 1 otherwise."""
        return interval(self.checkpointing)

    def to_json(self) -> dict[str, str]:
        """The options as plain data, in a fixed order: those in ``_ALWAYS``, and others that differ from their default. No optimizer unless
        the mode is ``train``."""
        default = {f.name: f.default for f in fields(self)}
        return {
            name: value
            for name, value in asdict(self).items()
            if (self.trains or name != "optimizer") and (name in _ALWAYS or value != default[name])
        }


_ALWAYS = ("optimizer", "precision", "attention", "mode")


def interval(checkpointing: str) -> int:
    """The interval between recomputed blocks, as ``Options.every``."""
    return int(checkpointing.partition("/")[2] or 1)


def trains(options: Mapping[str, str]) -> bool:
    """Whether the step of these options, as ``Options.to_json`` gives them, has a backward and an optimizer."""
    return options.get("mode", TRAIN) == TRAIN


def by_cuda(options: Mapping[str, str]) -> bool:
    """Whether the step of these options, as ``Options.to_json`` gives them, is by the kernels of a CUDA device."""
    return options.get("kernels") == "cuda"


def made(**options: Any) -> Options:
    """``Options`` from keyword arguments. Raises BadInputError, with the valid names, for an unknown one."""
    names = [f.name for f in fields(Options)]
    for name, value in options.items():
        if name not in names:
            size = f"; sizes are a dictionary, {{{_clipped(name)}: {value}}}" if type(value) is int else ""
            raise BadInputError(f"unknown option {_clipped(name)}: {suggestion(name, names)}{size}")
    return Options(**options)


def _check(option: str, value: object, choices: tuple[str, ...]) -> None:
    if isinstance(value, str) and value in choices:
        return
    if isinstance(value, str) and value in _PLANNED.get(option, ()):
        raise BadInputError(f"{option} {value!r} is not built yet: use {', '.join(choices)}")
    raise BadInputError(f"unknown {option} {_clipped(value)}: {suggestion(value, choices)}")


def _count(option: str, value: object, most: int) -> str:
    count = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and re.fullmatch(r"[1-9]\d{0,5}", value, re.ASCII):
        count = int(value)
    if count is None or not 1 <= count <= most:
        message = f"{option} = {value[:40]} is not a count" if isinstance(value, str) else given(option, value)
        raise BadInputError(f"{message}: give an integer from 1 to {most}")
    return str(count)


def _clipped(value: object) -> str:
    return repr(f"{value[:39]}…") if isinstance(value, str) and len(value) > 40 else shown(value)
