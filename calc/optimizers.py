"""The optimizers by name: class, what is given to it, what it keeps. Torch-free, for lists and refusals; the routes build their own.

What a class keeps is stated here and counted nowhere from here: a test holds it against the state of real optimizers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """One name. ``kind`` is the class of torch.optim, ``given`` what it gets beside its ``defaults``.

    ``state`` are the bytes kept for a parameter tensor: of n elements, s bytes each, its last two sizes r and c. Step counters and
    other single numbers are 4 bytes each. ``vectors`` is the state of one of fewer than two dimensions, where it is another.
    ``ways`` are the implementations that torch has beside the loop.
    """

    name: str
    kind: str
    defaults: str
    state: str
    given: str = ""
    vectors: str = ""
    ways: tuple[str, ...] = ("foreach",)
    about: str = ""

    @property
    def call(self) -> str:
        """The class as it is called: its defaults, and over them what is given."""
        given = dict(_pairs(self.given))
        pairs = dict(_pairs(self.defaults)) | given
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in pairs.items())})"

    @property
    def words(self) -> str:
        """What it keeps, in a line."""
        vectors = f", {self.vectors} where it has fewer than two dimensions" if self.vectors else ""
        return f"{self.state} bytes{vectors}" if self.state != "0" else "nothing"


def _pairs(text: str) -> list[tuple[str, str]]:
    """``lr=0.1, betas=(0.9, 0.999)`` taken apart at the commas outside brackets."""
    found: list[tuple[str, str]] = []
    depth, start = 0, 0
    for at, sign in enumerate(f"{text},"):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            name, equals, value = text[start:at].strip().partition("=")
            found += [(name, value)] if equals else []
            start = at + 1
    return found


_SGD = "lr=0.001, momentum=0, dampening=0, weight_decay=0, nesterov=False"
_RMSPROP = "lr=0.01, alpha=0.99, eps=1e-08, weight_decay=0, momentum=0, centered=False"
_ADAMW = "lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01, amsgrad=False"
_ALL = ("foreach", "fused")

_NAMED = (
    Known("sgd", "SGD", _SGD, "0", ways=_ALL),
    Known("momentum", "SGD", _SGD, "s*n", "momentum=0.9", ways=_ALL),
    Known("nesterov", "SGD", _SGD, "s*n", "momentum=0.9, nesterov=True", ways=_ALL),
    Known("adagrad", "Adagrad", "lr=0.01, lr_decay=0, weight_decay=0, eps=1e-10", "s*n + 4", ways=_ALL),
    Known("rmsprop", "RMSprop", _RMSPROP, "s*n + 4"),
    Known("rmsprop-momentum", "RMSprop", _RMSPROP, "2*s*n + 4", "momentum=0.9"),
    Known("rmsprop-centered", "RMSprop", _RMSPROP, "2*s*n + 4", "centered=True"),
    Known("adam", "Adam", "lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0, amsgrad=False", "2*s*n + 4", ways=_ALL),
    Known("adamw", "AdamW", _ADAMW, "2*s*n + 4", ways=_ALL),
    Known("amsgrad", "AdamW", _ADAMW, "3*s*n + 4", "amsgrad=True", ways=_ALL),
    Known("adamax", "Adamax", "lr=0.002, betas=(0.9, 0.999), eps=1e-08, weight_decay=0", "2*s*n + 4"),
    Known("nadam", "NAdam", "lr=0.002, betas=(0.9, 0.999), eps=1e-08, weight_decay=0, momentum_decay=0.004", "2*s*n + 8"),
    Known("radam", "RAdam", "lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0", "2*s*n + 4"),
    Known("adadelta", "Adadelta", "lr=1.0, rho=0.9, eps=1e-06, weight_decay=0", "2*s*n + 4"),
    Known("asgd", "ASGD", "lr=0.01, lambd=0.0001, alpha=0.75, t0=1000000.0, weight_decay=0", "s*n + 12"),
    Known("rprop", "Rprop", "lr=0.01, etas=(0.5, 1.2), step_sizes=(1e-06, 50)", "2*s*n + 4"),
    Known(
        "adafactor",
        "Adafactor",
        "lr=0.01, beta2_decay=-0.8, eps=(None, 0.001), d=1.0, weight_decay=0.0",
        "s*(n/c + n/r) + 4",
        vectors="s*n + 4",
    ),
    Known(
        "muon",
        "Muon",
        "lr=0.001, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-07, ns_steps=5,"
        " adjust_lr_fn=None",
        "s*n",
        ways=(),
        about="for hidden matrices: parameters of two dimensions that belong to no embedding and not to the last linear layer;"
        " AdamW has the others",
    ),
)
KNOWN: Mapping[str, Known] = {known.name: known for known in _NAMED}

# Classes of torch.optim that no closed form of a step follows for, each with the reason and the way out.
REFUSED: Mapping[str, str] = {
    "lbfgs": "optimizer 'lbfgs' is refused: it runs forward and backward again, up to 20 times a step, until the data let it stop, so a"
    " step has no closed form; what it keeps once its history of m = 100 is full, with N elements in all, is in napkin list optimizers",
    "sparse-adam": "optimizer 'sparse-adam' is refused: torch's SparseAdam takes sparse gradients only, and the size of one depends on the"
    " data; use adam or adamw with dense gradients",
}

# torch.optim.LBFGS, from its source: 100 directions and 100 differences of gradients, the last direction and the last gradient, each
# of all N trained elements; per pair of the history one product kept and one made on the way; the scale of the first direction.
LBFGS_STATE = "(2*m + 2)*s*N + (2*m + 1)*s"


def named(name: str) -> str:
    """The line that ``napkin list optimizers`` has for a name."""
    known = KNOWN[name]
    ways = f"; also {' and '.join(known.ways)}" if known.ways else "; loop only"
    about = f"; {known.about}" if known.about else ""
    return f"{known.call}{ways}{about}"
