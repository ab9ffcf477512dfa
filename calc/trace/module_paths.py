"""The module path of an operator: the module whose forward is running."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from calc.graph.step import LOSS, TOP


class ModulePath:
    """The stack of running modules, maintained by torch's global forward hooks."""

    def __init__(self) -> None:
        # A forward may replace a submodule (BigBird's attention does), and the new one be at the address of the old one.
        self._names: dict[int, tuple[weakref.ref[nn.Module], tuple[str, ...]]] = {}
        self._watched: nn.Module | None = None
        self._stack: list[str] = []
        self._recomputed: list[str] = []
        self._outside = LOSS

    @property
    def current(self) -> str:
        return self._stack[-1] if self._stack else self._outside

    @property
    def inside(self) -> bool:
        """Whether a module of the model is running."""
        return bool(self._stack)

    def watch(self, module: nn.Module, outside: str = LOSS) -> _PathWatch:
        """Context in which forwards of ``module`` and its submodules set the module path, which is ``outside`` where none runs. A submodule
        that several modules share has the name by which the running one has it: what all layers share is in each of them."""
        self._watched, self._outside = module, outside
        self._name_parts(module)
        for name, part in module.named_modules():
            if getattr(part.forward, "is_recomputed", False):
                self._recomputed.append(name)
        return _PathWatch(self)

    def recomputed_part(self, module_path: str) -> str:
        """The submodule around ``module_path`` that the backward recomputes, where the activation checkpointing option selects one: its own
        operators then run outside of any module call."""
        return next((name for name in self._recomputed if module_path == name or module_path.startswith(f"{name}.")), module_path)

    @contextlib.contextmanager
    def within(self, part: str) -> Iterator[None]:
        """Context for a part of the running module that is not itself a module: a layer of an LSTM."""
        above = self.current
        self._stack.append(part if above == TOP else f"{above}.{part}")
        try:
            yield
        finally:
            self._stack.pop()

    def enter(self, module: nn.Module, _inputs: Any) -> None:
        if not self._has_entry(module):
            self._names[id(module)] = weakref.ref(module), ()
            if self._watched is not None:
                self._name_parts(self._watched)
        self._stack.append(name_inside(self._names[id(module)][1], self.current) or self.current)

    def _name_parts(self, module: nn.Module) -> None:
        names: dict[int, list[str]] = {}
        parts = {id(part): part for name, part in module.named_modules() if not self._has_entry(part) or not self._names[id(part)][1]}
        for name, part in module.named_modules(remove_duplicate=False):
            names.setdefault(id(part), []).append(name or TOP)
        self._names |= {key: (weakref.ref(part), tuple(names[key])) for key, part in parts.items()}

    def _has_entry(self, module: nn.Module) -> bool:
        of, _ = self._names.get(id(module), (None, None))
        return of is not None and of() is module

    def leave(self, module: nn.Module, _inputs: Any, _output: Any) -> None:
        self._stack.pop()


def name_inside(names: Sequence[str], running: str) -> str:
    """The name of a module by which the ``running`` module has it, else its first name; empty if it has none."""
    return next((name for name in names if name.startswith(f"{running}.")), names[0] if names else "")


class _PathWatch:
    def __init__(self, path: ModulePath) -> None:
        self._path = path
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        hooks = torch.nn.modules.module
        self._handles = [
            hooks.register_module_forward_pre_hook(self._path.enter),
            hooks.register_module_forward_hook(self._path.leave, always_call=True),
        ]

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._path._stack.clear()
