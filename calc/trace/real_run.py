"""Whether a module that raises under symbolic tracing also raises without it: runs it once on real tensors at small sizes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import replace

import torch

from calc.errors import NapkinError, SizesError, UnbackedSizeError
from calc.experiment import optimizers, precision
from calc.experiment.inputs import inputs_at
from calc.experiment.uncompiled import uncompiled
from calc.options import Options
from calc.platform.torch_private import FakeTensorMode
from calc.spec import Sizes, Spec
from calc.symbolic.assignments import TYPED, sizes_text
from calc.trace import step, trace_at
from calc.trace.function_caches import bypassing_caches
from calc.trace.model_errors import refusing
from calc.trace.recorder import tensors_in

# A run only improves an error message, so parameters and input elements are limited to what runs in a moment.
_MOST_PARAMETERS, _MOST_ELEMENTS = 20_000_000, 2_000_000

_OF_SIZES = (
    'declare what that line requires of a size ("d": Dim(64, multiple_of="h"), or Dim("d/h", tied=True) for one that follows'
    " from others), or give the size as a plain number in build"
)
_OF_VALUES = "with plain numbers for sizes too, so it needs values of tensors, which a trace lacks; use torch operators instead"


def attributed(spec: Spec, requested: Mapping[str, int], options: Options, error: SizesError) -> SizesError:
    """``error``, attributed: either the module raises it as well on real tensors (with its own message), or only symbolic tracing does.

    The module runs at the ``requested`` sizes, or at the check sizes of the spec. If both are too large, ``error`` is returned unchanged.
    """
    if not error.said:  # the module itself raised nothing
        return error
    for sizes in ({**requested}, _to_check(spec, requested)):
        if sizes is not None and _is_small(spec, sizes):
            own = _raised(spec, sizes, options)
            if own is None:
                return _by_tracing(spec, sizes, options, error)
            # A trace knows more of where an exception was raised than a run of the same code, whose backward is not recorded.
            return own if isinstance(own, SizesError) and own.said != error.said else error
    return error


def _by_tracing(spec: Spec, sizes: Mapping[str, int], options: Options, error: SizesError) -> SizesError:
    advice = error.failure.advice or (_OF_SIZES if _traces(spec, sizes, options) else _OF_VALUES)
    runs = f" (under symbolic tracing; the module itself runs at {sizes_text(sizes, TYPED)})"
    *before, last = (error.failure.statement, *error.failure.details)
    statement, *details = (*before, last + runs)
    return SizesError(replace(error.failure, statement=statement, details=tuple(details), advice=advice))


def _traces(spec: Spec, sizes: Mapping[str, int], options: Options) -> bool:
    """Whether the step can be traced with numbers for all sizes."""
    try:
        trace_at(spec, {}, sizes, {}, options)
    except UnbackedSizeError:
        return True
    except NapkinError:
        return False
    return True


def _to_check(spec: Spec, requested: Mapping[str, int]) -> dict[str, int] | None:
    tied = {name for name, dim in spec.dimensions.items() if dim.tied}
    return spec.sizes({**{n: v for n, v in requested.items() if n not in tied}, **spec.check_at}) if spec.check_at else None


def _is_small(spec: Spec, sizes: Mapping[str, int]) -> bool:
    """Whether a run takes negligible time. A module that cannot be built on the meta device is run only at the check sizes."""
    try:
        quiet, same_random = contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng(devices=[])
        with FakeTensorMode(allow_non_fake_inputs=True), bypassing_caches(), uncompiled(), quiet, same_random:
            n = Sizes(**sizes)
            parameters = sum(p.numel() for p in spec.build(n).parameters())
            elements = sum(t.numel() for t in tensors_in(spec.inputs(n)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # of any type; the traced step reports it
        return all(sizes[name] == value for name, value in spec.check_at.items()) and bool(spec.check_at)
    return bool(parameters <= _MOST_PARAMETERS and elements <= _MOST_ELEMENTS)


def _raised(spec: Spec, sizes: Mapping[str, int], options: Options) -> NapkinError | None:
    """The exception that the module raises in a forward and, if it is trained, in the rest of the step; None if it runs."""
    try:
        with refusing(spec, None), contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            n = Sizes(**sizes)
            with uncompiled():
                built, inputs = step.module_of(spec, n, options.checkpointing), inputs_at(spec, n, options)
            module, inputs = precision.cast(built.train(options.trains), inputs, options.precision)
            with contextlib.nullcontext() if options.trains else torch.no_grad():
                with precision.autocast(options.precision):
                    result = step.result_of(spec, module, inputs, options)
                if options.trains and result.requires_grad:
                    result.backward()
                    optimizers.build(options, spec, module, [*module.parameters()]).step()
    except NapkinError as error:
        return error
    return None
