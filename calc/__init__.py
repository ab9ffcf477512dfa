"""Resource accounting of PyTorch training steps: closed forms derived in visible steps, each checked against a real run.

    spec = calc.load("gpt2")                       # or "hf:path/to/config.json", or "my_model.py:spec"
    result = calc.derive(spec, optimizer="adamw")  # traces the real step with symbols for sizes (torch)
    result                                         # prints every quantity, a line each
    result["memory.peak"].at(B=8, T=1024)          # an exact integer with its unit
    result["memory.peak"].subs("B", 8)             # the closed form with B = 8, in SymPy
    result.largest("B", 80 * 10**9)                # the largest batch whose peak is at most 80 GB
    calc.check(result, B=2, T=64)                  # runs the step for real and compares
    calc.ask("largest-batch", model="gpt2", memory="80GB")  # the same, with its steps

All public names are below: ask, check, derive, gradients, load, sweep, trace, Dim, NapkinError, Progress, Spec.

Importing this package imports neither torch nor SymPy: each function imports what it needs when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calc.dimensions import Dim as Dim
from calc.errors import BadInputError
from calc.errors import NapkinError as NapkinError
from calc.platform import arguments
from calc.platform.progress import Progress
from calc.spec import Spec as Spec

if TYPE_CHECKING:
    from fractions import Fraction

    from calc.capacity.questions import Answer
    from calc.derive.result import Derivation
    from calc.graph.step import Graph
    from calc.mathematics.autodiff.derived import Derived
    from calc.pipeline.check import Report
    from calc.pipeline.sweep import Sweep

__all__ = ["Dim", "NapkinError", "Progress", "Spec", "ask", "check", "derive", "gradients", "load", "sweep", "trace"]

_SPEC = (
    "a spec, e.g. calc.load('gpt2'), or of a module calc.Spec('mine', {'B': 8}, lambda n: module, lambda n: (torch.randn(n.B, 512),),"
    " lambda module, x: module(x).sum())"
)
_NAME_OF_MODEL = "the name of a model, e.g. 'gpt2' or 'my_model.py:spec'"


def load(name: str) -> Spec:
    """The spec that ``name`` stands for: a built-in name, ``hf:PATH`` or ``FILE.py:NAME``, whose file is run.

    Raises ``BadInputError`` for an unknown name or a missing file, ``ConfigError`` for a config that Napkin refuses, and ``SpecError`` for
    a file that raises or holds no such spec.
    """
    from calc.models.load import load as load_spec

    arguments.instance("name", name, str, "the name of a model, e.g. 'gpt2', 'hf:PATH' or 'FILE.py:NAME'")
    return load_spec(name)


def trace(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    cache: bool = True,
    progress: Progress | None = None,
    **options: str | int,
) -> Graph:
    """The graph of one training step of ``spec``, traced with symbolic sizes. ``sizes`` sets values; the others keep their defaults.

    ``options`` are those of ``calc.options.Options`` by name: optimizer, precision, attention, mode and so on. Needs torch, unless the
    trace is cached. Raises ``DimensionError`` for invalid sizes, and ``TraceError`` if the step cannot be traced.
    """
    from calc.options import made
    from calc.pipeline.pipeline import trace as trace_step

    arguments.instance("spec", spec, Spec, _SPEC)
    arguments.flag("cache", cache)
    return trace_step(spec, arguments.sizes(sizes), options=made(**options), cache=cache, progress=arguments.progress(progress))


def derive(
    source: Graph | Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    cache: bool = True,
    progress: Progress | None = None,
    **options: str | int,
) -> Derivation:
    """Every quantity of the step, in elements, bytes or FLOPs, with the steps that derive it: from a spec, or without torch from a graph,
    which has its options.

    ``options`` are those of ``calc.options.Options`` by name: optimizer, precision, attention, mode and so on. Raises what ``trace``
    raises, and ``RefusedOperatorError`` if the step runs an operator that cannot be counted.
    """
    from calc.graph.step import Graph
    from calc.options import made
    from calc.pipeline.pipeline import derive as derive_step

    arguments.instance("source", source, Spec | Graph, f"a graph or {_SPEC}")
    if options and isinstance(source, Graph):
        raise BadInputError("a graph has its own options: leave them out, or derive from a spec")
    arguments.flag("cache", cache)
    chosen, say = made(**options), arguments.progress(progress)
    return derive_step(source, arguments.sizes(sizes), options=chosen, cache=cache, progress=say)


def check(derivation: Derivation, *, device: str = "cpu", progress: Progress | None = None, seed: int = 0, **sizes: int) -> Report:
    """One verdict for each quantity: the step is run for real at ``sizes`` and compared with what was derived from its spec.

    Sizes not given are the spec's sizes for checks. ``seed`` draws weights and inputs. Raises ``DimensionError`` for invalid sizes, and
    ``MeasurementError`` if the run fails or needs more memory than is free.
    """
    from calc.derive.result import Derivation
    from calc.pipeline.check import check as check_derivation

    arguments.instance("derivation", derivation, Derivation, "what calc.derive returns")
    arguments.instance("device", device, str, "'cpu' or 'cuda'")
    arguments.seed(seed)
    return check_derivation(derivation, device=device, progress=arguments.progress(progress), seed=seed, **arguments.sizes(sizes))


def ask(question: str, /, *, progress: Progress | None = None, **given: int | float | str | Fraction) -> Answer:
    """The answer to a capacity question, with its steps: ``ask("training-time", parameters=70e9, …)``; ``solve="gpus"`` solves for it.

    Keys are those of ``napkin list questions``, with _ for -; values as numbers or as text with a unit (``"80GB"``, ``"30days"``).
    Raises ``BadInputError`` if a value is invalid or missing, or if there is no solution. Needs neither torch nor SymPy, except for a
    model without stored closed forms.
    """
    from fractions import Fraction

    from calc.capacity.questions import ask as answer

    arguments.instance("question", question, str, "the name of a question, e.g. 'training-time'")
    for key, value in given.items():
        give = _NAME_OF_MODEL if key == "model" else "a number, or a text with a unit, e.g. '80GB'"
        arguments.instance(key, value, int | float | str | Fraction, give)
    return answer(question, progress=arguments.progress(progress), **given)


def sweep(
    model: str,
    sizes: Mapping[str, Sequence[int]] | None = None,
    quantities: Sequence[str] = ("memory.peak",),
    *,
    listed: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
    **options: str | int,
) -> Sweep:
    """Exact integers of a model's quantities over many sizes: of a grid, or ``listed`` point by point. ``model`` is a name as for ``load``.

    The arrays of ``values`` have one axis for each entry of ``sizes``, in order, or a single one if ``listed``; ``units`` has their units.
    Uses stored closed forms where there are some, else a derivation; where the step runs other operators, it is traced there.
    ``options`` are those of ``calc.options.Options``. Raises ``DimensionError`` for an invalid size, and ``UnknownQuantityError``.
    """
    from calc.options import made
    from calc.pipeline.sweep import SweptSizes, of_model

    arguments.instance("model", model, str, _NAME_OF_MODEL)
    axes = arguments.keys("sizes", sizes, "a dictionary of lists of integers by dimension, e.g. {'B': [1, 2, 4]}")
    names, say = arguments.names("quantities", quantities, "memory.peak"), arguments.progress(progress)
    arguments.flag("listed", listed)
    arguments.flag("cache", cache)
    return of_model(model, SweptSizes(axes, listed), names, made(**options), cache=cache, progress=say)


def gradients(spec: Spec, sizes: Mapping[str, int] | None = None, *, progress: Progress | None = None, **options: str | int) -> Derived:
    """The equations of a model's forward and of the gradients of its loss, by the chain rule, with symbols for sizes.

    Depths are numbers: those of ``sizes``, else 2. ``options`` are those of ``calc.options.Options`` by name (``attention``). A gradient
    has the shape of its tensor. Raises ``UnknownOperatorError`` for an operator without an equation.
    """
    from calc.mathematics.gradients import gradients as derive_gradients
    from calc.options import made

    arguments.instance("spec", spec, Spec, _SPEC)
    return derive_gradients(spec, arguments.sizes(sizes), made(**options), arguments.progress(progress))


def load_ipython_extension(shell: Any) -> None:
    """Show results as tables and formulas in a notebook. Done at import where IPython runs; ``%load_ext calc`` does it later."""
    from calc.notebook.formatters import register

    register(shell.display_formatter.formatters)


class _Package(ModuleType):
    """This package, in which ``calc.trace`` stays the function: importing the submodule of that name would replace it."""

    def __dir__(self) -> list[str]:
        """The public names, which ``help(calc)`` shows."""
        return sorted({*__all__, *(name for name in self.__dict__ if name.startswith("__"))})

    @property
    def __path__(self) -> list[str]:  # type: ignore[override]  # typeshed has a variable
        """Where the submodules are. None for ``help``, which would list every one of them, and all are internal."""
        if sys._getframe(1).f_globals.get("__name__") == "pydoc":
            raise AttributeError("__path__")
        path: list[str] = self.__dict__["__path__"]
        return path

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and callable(self.__dict__.get(name))):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

_ipython = sys.modules.get("IPython")
_shell = _ipython.get_ipython() if _ipython else None
if _shell is not None:
    load_ipython_extension(_shell)
