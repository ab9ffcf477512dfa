"""A device that only pretends: what measurements ask of ``torch.cuda``, answered on a CPU, for a rehearsal without a GPU.

Tensors "on cuda" lie in the program's memory, events are read off the host's clock, and memory runs out above a limit. Nothing that is
read here is a measurement: the device is called simulated, and every record says rehearsal.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from calc.measure import copies, queued

NAME = "simulated GPU (rehearsal)"
CAPABILITY = (9, 0)
TOTAL = 2**28
LARGEST = 2**18  # bytes of inputs, above which memory "runs out"
_DRIVER = "000.00"
_CUDA = re.compile(r"cuda(:\d+)?")


class _OnCPU(TorchFunctionMode):
    """Whatever is asked for on a CUDA device is made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.device:  # torch asks by it which of its own modules is meant
            return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(_here, (args, kwargs or {}))
        out = func(*args, **kwargs)
        if func is torch.randn and out.nbytes > LARGEST:
            raise torch.OutOfMemoryError("CUDA out of memory (simulated)")
        return out


def _here(value: Any) -> Any:
    if isinstance(value, str) and _CUDA.fullmatch(value):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


class _Event:
    """A moment on the host's clock."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing
        self.at = 0

    def record(self, stream: Any = None) -> None:
        del stream
        self.at = time.perf_counter_ns()

    def query(self) -> bool:
        """Whether the device has passed it: this one is always behind."""
        return False

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds."""
        return (end.at - self.at) / 10**6


class _Stream:
    def __init__(self, device: Any = None) -> None:
        self.device = device

    def wait_stream(self, stream: _Stream) -> None:
        del stream


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> _Generator:
        made: _Generator = super().__new__(cls, _here(device))
        return made


class _Autocast(torch.autocast):
    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(_here(device_type), *args, **kwargs)


_ANSWERS: dict[str, Any] = {
    "is_available": True,
    "is_current_stream_capturing": False,
    "is_bf16_supported": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_properties": SimpleNamespace(name=NAME, total_memory=TOTAL, uuid="00000000-0000-0000-0000-000000000000", major=9, minor=0),
    "get_device_capability": CAPABILITY,
    "get_device_name": NAME,
    "mem_get_info": (TOTAL // 2, TOTAL),
    "memory_allocated": 1_000,
    "memory_reserved": 2**21,
    "max_memory_allocated": 70_000,
    "max_memory_reserved": 2**21,
    "reset_peak_memory_stats": None,
    "synchronize": None,
    "empty_cache": None,
    "set_rng_state": None,
}


@contextmanager
def installed() -> Iterator[None]:
    """Context in which torch says that it has a CUDA device, and there is a driver's tool to ask."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        patch = stack.enter_context
        for name, answer in _ANSWERS.items():
            patch(mock.patch.object(torch.cuda, name, _constant(answer)))
        patch(mock.patch.object(torch.cuda, "get_rng_state", _generator_state))
        patch(mock.patch.object(torch.cuda, "Event", _Event))
        patch(mock.patch.object(torch.cuda, "Stream", _Stream))
        patch(mock.patch.object(torch.cuda, "current_stream", _Stream))
        patch(mock.patch.object(torch.cuda, "stream", _no_stream))
        patch(mock.patch.object(torch, "Generator", _Generator))
        patch(mock.patch.object(torch, "autocast", _Autocast))
        patch(mock.patch.object(torch, "compile", _as_it_is))  # a compiler would ask the driver itself
        patch(mock.patch.dict(os.environ, {"PATH": f"{_driver_tool(Path(folder))}{os.pathsep}{os.environ.get('PATH', '')}"}))
        patch(mock.patch.object(copies, "_SQUARE", 64))
        patch(mock.patch.object(queued, "_SIDE", 64))
        patch(_OnCPU())
        yield


def _constant(answer: Any) -> Any:
    return lambda *_, **__: answer


def _generator_state(*_: Any) -> torch.Tensor:
    return torch.get_rng_state()


def _as_it_is(module: Any) -> Any:
    return module


def _no_stream(_: Any) -> Any:
    return nullcontext()


def _driver_tool(folder: Path) -> Path:
    """A program that answers as the driver's own does, one fact of which it does not tell."""
    answers = f'case "$1" in *driver_version*) echo {_DRIVER};; *) echo "1980, 3201, 35, [N/A]";; esac'
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{answers}\n", encoding="utf-8")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return folder
