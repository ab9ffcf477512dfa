"""The context in which a step is traced: its sizes are symbols or numbers, its tensors fake, its operators noted."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.autograd import forward_ad

from calc.errors import TraceError
from calc.experiment.threads import one_thread
from calc.graph.basis import Basis
from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensorMode
from calc.spec import Sizes, Spec
from calc.symbolic.evaluation import PythonOperators
from calc.symbolic.parser import parse
from calc.trace.function_caches import bypassing_caches
from calc.trace.kernels import composites, hide_tracing
from calc.trace.kernels.matmul import by_symbols
from calc.trace.kernels.result_cache import Repeats
from calc.trace.kernels.view_aliases import aliasing_views
from calc.trace.model_errors import refusing
from calc.trace.real_tensors import of_one_storage
from calc.trace.recorder import Recorder
from calc.trace.source_lines import doing, user_line
from calc.trace.symbolic_sizes import SizeEnv, refusing_torch_reads
from calc.trace.values.doubles import preserving_order
from calc.trace.values.integers import like_integers
from calc.trace.values.size_arithmetic import symbolic_numbers
from calc.trace.values.size_cache import caching_sizes


@dataclass(frozen=True, slots=True)
class StepSizes:
    """The sizes of one run, by the symbols of ``basis``.

    ``hints`` has the hint of each symbol, ``fixed`` those that are plain integers in this run (trip counts; all of them in a concrete run).
    Those ``trip_counts`` that are sizes as well remain symbols, which are read as these numbers. ``observed`` has the data-dependent sizes
    by place, one for each occurrence, where they differ between occurrences.
    """

    basis: Basis
    hints: Mapping[str, int]
    fixed: Mapping[str, int]
    trip_counts: Collection[str] = ()
    observed: Mapping[str, Sequence[int]] | None = None

    @property
    def symbolic(self) -> dict[str, int]:
        """The hint of each symbol of this run."""
        values = {**self.hints, **{name: self.fixed[name] for name in self.trip_counts}}
        return {name: values[name] for name in self.basis.symbols if name in self.trip_counts or name not in self.fixed}


@contextlib.contextmanager
def tracing(spec: Spec, at: StepSizes, mutates_tracked: bool, like: Repeats | None) -> Iterator[tuple[Recorder, Sizes]]:
    """Context in which tensors are fake and operators are traced: the recorder, and the sizes to build the module with."""
    basis, fixed = at.basis, at.fixed
    repeats = Repeats.begun(at.symbolic, at.trip_counts, like)
    env = repeats.env
    values: dict[str, Any] = {**fixed, **(env.symbols if env is not None else {})}
    sizes = Sizes(**{name: parse(text).value_in(PythonOperators(values)) for name, text in basis.define.items()})
    unbacked = {dim.unbacked_at: getattr(sizes, name) for name, dim in spec.dimensions.items() if dim.unbacked_at}
    recorder = Recorder(repeats, unbacked, at.observed, mutates_tracked)
    # Redirects what the model prints: stdout is for data.
    with (
        recorder.stopping(),
        contextlib.redirect_stdout(sys.stderr),
        _warning_once(env),
        doing(recorder.where),
        refusing(spec, env),
        fake_tensors(env) as mode,
        of_one_storage(mode, recorder.same_storage),
        recorder,
        aliasing_views(recorder.returning_view) if mutates_tracked else contextlib.nullcontext(),
        by_symbols(),
        replaced(forward_ad, make_dual=_no_tangent),
    ):
        try:
            yield recorder, sizes
        finally:
            recorder.release()


def _no_tangent(*_: Any, **__: Any) -> Any:
    """Refused: a tangent without storage (``_efficientzerotensor``) is an ordinary tensor in a trace, which would run other operators."""
    raise TraceError(
        f"the step calls torch.func.jvp, jacfwd or another forward-mode derivative at {user_line()}: Napkin derives no forward mode; take"
        " the derivative with torch.autograd.grad, create_graph=True (of a product with a vector: the gradient of a gradient)"
    )


_WARNED: set[tuple[type[Warning], str, int]] = set()


@contextlib.contextmanager
def _warning_once(env: SizeEnv | None) -> Iterator[None]:
    """Context in which a line warns once in a process, and not in every trace, with sizes by their names."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def once(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
            if (category, filename, lineno) not in _WARNED:
                _WARNED.add((category, filename, lineno))
                show(env.named(str(message)) if env is not None else message, category, filename, lineno)

        warnings.showwarning = once  # type: ignore[assignment]  # as called: the remaining arguments are those of a file to write to
        yield


@contextlib.contextmanager
def fake_tensors(env: SizeEnv | None) -> Iterator[FakeTensorMode]:
    """Context in which tensors are fake, of the sizes of ``env``, or of numbers alone."""
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    mode.cache_enabled = False  # results of repeated operators are cached already, and torch's keys and checks take longer than the rest
    arithmetic = env.arithmetic if env is not None else {}
    with (
        mode,
        hide_tracing.unrecognised(),
        _convolving(env),
        preserving_order(),  # before anything is cached
        caching_sizes(arithmetic),
        refusing_torch_reads(env),
        symbolic_numbers(),
        bypassing_caches(),
        _quiet(),
        _no_collection(),
        one_thread(),  # only constants are computed
    ):
        yield mode


@contextlib.contextmanager
def _convolving(env: SizeEnv | None) -> Iterator[None]:
    if env is None:
        yield
        return
    with composites.of_symbols(), hide_tracing.any_kernel(env.unrecorded), like_integers():
        yield


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disables garbage collection: it would free tensors in reference cycles at times that depend on Napkin's own work."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _quiet() -> contextlib.AbstractContextManager[None]:
    """Silences torch's log of operators that raise under fake tensors: some are attempted on purpose, the others become errors of
    Napkin. To set its level would clear what all loggers of torch and transformers cache."""
    return replaced(logging.getLogger("torch._subclasses.fake_tensor"), disabled=True)
