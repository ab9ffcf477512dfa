"""Names of tensors and of peak candidates, as data: a page links or words their parts, ``str`` is the name as one text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MODEL_INPUT = "model input"


class WorkKind(StrEnum):
    """What is counted of an operator. FLOPs have it as the last part of the quantity's name: ``flops.forward.matmul``."""

    MATMUL = "matmul"
    CAUSAL = "causal"
    RECOMPUTE = "recompute"
    ELEMENTWISE = "elementwise"
    TRAFFIC = "bytes moved"


@dataclass(frozen=True, slots=True)
class AddendLabel:
    """What an addend of a quantity counts: ``text`` is a rule's name of it, a key of the optimizer's state or what a tensor is.

    ``dtype`` is that of a tensor; ``is_input``: the tensor is an input of the model. ``is_causal``: a matmul counts the positions of a
    causal mask alone. ``gradient``: a matmul of the backward computes ``dx`` or ``dw``. ``of_parameter``: a matmul multiplies by a
    parameter, or is the gradient of one that does. ``attention``: as of a ``Term``. ``product``: the matmul whose reads and writes are
    counted.
    """

    text: str
    dtype: str = ""
    is_input: bool = False
    is_causal: bool = False
    gradient: str = ""
    is_convolution: bool = False
    of_parameter: bool = False
    product: str = ""
    attention: str = ""

    def __str__(self) -> str:
        return f"{f'{self.dtype} ' if self.dtype else ''}{self.text}{' (causal)' if self.is_causal else ''}"


@dataclass(frozen=True, slots=True)
class TensorName:
    """What a tensor is called: ``exp_avg of w`` (a ``part`` of its ``owner``), or ``Y of gelu at mlp``, the output of an ``operator``."""

    part: str = ""
    owner: str = ""
    operator: str = ""
    module_path: str = ""

    def __str__(self) -> str:
        whole = f"{f'{self.part} of ' if self.part else ''}{self.owner or self.operator}"
        return f"{whole} at {self.module_path}" if self.module_path else whole


@dataclass(frozen=True, slots=True)
class SavedBefore:
    """The row of saved tensors that counts a storage: its tensor, and the module path at which that is saved."""

    tensor: TensorName
    module_path: str

    def __str__(self) -> str:
        return f"{self.tensor}, saved at {self.module_path}"


@dataclass(frozen=True, slots=True)
class StepPlace:
    """What a step is about: a module ``path``, or the quantity as a whole. ``detail``: which part of it, ``one layer``."""

    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.detail}" if self.detail else self.path


@dataclass(frozen=True, slots=True)
class PeakPlace:
    """Where in the step a peak candidate is: after an operator, without its overload. ``iteration`` says in which iterations and at which
    call: ``, last iteration, call 2``."""

    phase: str
    operator: str
    module_path: str
    iteration: str = ""

    @property
    def operation(self) -> str:
        """The operator and where it runs, without the phase."""
        return f"after {self.operator} at {self.module_path}{self.iteration}"

    def __str__(self) -> str:
        return f"{self.phase}, {self.operation}"
