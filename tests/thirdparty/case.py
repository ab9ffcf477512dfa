"""One published module with sizes, and what becomes of it: derived at each set of sizes, measured there for real, compared."""

from __future__ import annotations

import importlib
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.dimensions import Dim
    from calc.spec import Spec

EXACT, REFUSED, WRONG, ERROR = "exact", "refused", "wrong", "error"

# What has to be equal, as integers.
REQUIRED = ("parameters", "flops.forward.matmul", "flops.backward.matmul", "activations.bytes", "optimizer_state.bytes", "memory.peak")


def squares(module: Any, *inputs: Any) -> Any:
    """The mean square of the first tensor that the module returns."""
    return mean_square(module(*inputs))


def mean_square(result: Any) -> Any:
    """Of the first tensor in a result, its mean square."""
    import torch

    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    return (result * result).mean()


@dataclass(frozen=True, slots=True)
class Case:
    """A module of a ``package``, built by ``build`` from the imported ``namespace`` and the sizes."""

    package: str
    namespace: str
    module: str
    dims: Mapping[str, int | str | Dim]
    build: Callable[[Any, Any], Any]
    inputs: Callable[[Any], tuple[Any, ...]]
    sizes: tuple[Mapping[str, int], ...]
    loss: Callable[..., Any] = squares

    @property
    def name(self) -> str:
        return f"{self.package}:{self.module}"

    def spec(self) -> Spec:
        """The spec, its package imported: what a package makes when it is imported is no part of a step."""
        from calc.spec import Spec

        library = importlib.import_module(self.namespace)
        return Spec(self.module, self.dims, lambda n: self.build(library, n), self.inputs, self.loss, key=self.name)


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one module. ``symbolic`` and ``specialized`` are its dimensions; ``why`` is the refusal or the difference."""

    package: str
    version: str
    module: str
    verdict: str
    why: str = ""
    symbolic: tuple[str, ...] = ()
    specialized: tuple[str, ...] = ()
    parameters: int = 0
    checked: int = 0
    seconds: float = 0.0


def judged(case: Case) -> Row:
    """The row of a module: derived and measured at its default sizes, then at each other set."""
    from importlib import metadata

    start = time.monotonic()
    version = metadata.version(case.package)

    def row(verdict: str, why: str = "", **more: Any) -> Row:
        return Row(case.package, version, case.module, verdict, why, seconds=round(time.monotonic() - start, 1), **more)

    from calc.errors import NapkinError

    at: Mapping[str, int] = {}
    try:
        spec = case.spec()
        results = []
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NAPKIN_CACHE"] = folder  # a module is traced once for all its sizes, where they run alike
            for at in ({}, *case.sizes):
                results.append(_at(spec, at))
                if results[-1].why:
                    break
    except NapkinError as error:
        return row(REFUSED, f"{_sizes(at)}{_line(error)}")
    except Exception as error:  # what no refusal foresaw
        place = traceback.extract_tb(error.__traceback__)[-1]
        return row(ERROR, f"{_sizes(at)}{_line(error)} ({'/'.join(Path(place.filename).parts[-2:])}:{place.lineno})")
    last = results[-1]
    more = {
        "symbolic": results[0].symbolic,
        "specialized": results[0].specialized,
        "parameters": results[0].parameters,
        "checked": sum(result.checked for result in results),
    }
    return row(last.verdict, f"{_sizes(at)}{last.why}" if last.why else "", **more)


@dataclass(frozen=True, slots=True)
class _Result:
    verdict: str
    why: str
    symbolic: tuple[str, ...]
    specialized: tuple[str, ...]
    parameters: int
    checked: int


def _at(spec: Spec, sizes: Mapping[str, int]) -> _Result:
    import calc
    from calc.pipeline.verdict import EXACT as EQUAL
    from calc.pipeline.verdict import FAILED, NOT_MEASURED

    derivation = calc.derive(spec, sizes)
    report = calc.check(derivation)
    wrong = [v for v in report.verdicts if v.verdict == FAILED]
    missing = [v for v in (report[name] for name in REQUIRED) if v.verdict == NOT_MEASURED]
    differences = [f"{v.quantity}: derived {v.derived}, measured {v.measured}" for v in wrong]
    specialized = tuple(name for name in derivation.sizes if name in derivation.specialized)
    return _Result(
        WRONG if wrong else REFUSED if missing else EXACT,
        "; ".join([*differences, *(f"{v.quantity}: {v.because}" for v in missing)]),
        tuple(d.name for d in derivation.dims if d.name not in specialized and not d.tied),
        specialized,
        derivation["parameters"].value or 0,
        sum(v.verdict == EQUAL for v in report.verdicts),
    )


def _sizes(at: Mapping[str, int]) -> str:
    return f"at {', '.join(f'{name} = {value}' for name, value in at.items())}: " if at else ""


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
