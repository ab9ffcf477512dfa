"""Activation checkpointing of any module: chosen submodules save only their arguments and are recomputed in the backward.

The module's structure determines which. Blocks are the children of the outermost lists of modules: all children of an
``nn.ModuleList``, and those children of an ``nn.Sequential`` whose class occurs more than once in it. A child without submodules
(a plain layer, which saves little besides its argument) is not a block; a block called several times is recomputed for each call.
The module itself is changed, so tracing and measuring run the same code.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from calc.errors import SpecError
from calc.experiment.built_before import own_module
from calc.options import interval
from calc.spec import Sizes, Spec

NONE, ATTENTION = "none", "attention"
_TABLE: dict[str, dict[str, list[str]]] = tomllib.loads((resources.files("calc") / "data" / "checkpointing.toml").read_text("utf-8"))


def built(spec: Spec, n: Sizes, choice: str = NONE) -> nn.Module:
    """The module that ``spec`` builds at sizes ``n``, with the activation checkpointing named ``choice``."""
    module = spec.build(n)
    return checkpointed(spec.name, own_module(module) if isinstance(module, nn.Module) else module, choice)


def checkpointed(name: str, module: nn.Module, choice: str) -> nn.Module:
    """``module``, changed in place: the submodules that ``choice`` selects are recomputed in the backward.

    Raises ``SpecError``, which names the model ``name``, if ``choice`` selects none.
    """
    if choice == NONE or not isinstance(module, nn.Module):
        return module  # the caller rejects a value that is not a module
    lists = _blocks(module)
    if not lists:
        raise SpecError(
            f"{name}: checkpointing {choice!r} finds no blocks, which are modules with parts of their own in an nn.ModuleList, or several"
            " of one class in an nn.Sequential"
        )
    if choice == ATTENTION:
        chosen = [part for blocks in lists for block in blocks for part in _attentions(block)]
        if not chosen:
            kinds = ", ".join(dict.fromkeys(type(block).__name__ for blocks in lists for block in blocks))
            names = " or ".join(f"{word!r}" for word in _TABLE[ATTENTION]["names"])
            raise SpecError(
                f"{name}: checkpointing 'attention' finds no attention: no part of {kinds} is of a class with {names} in its name"
            )
    else:
        chosen = [block for blocks in lists for block in blocks[:: interval(choice)]]
    for part in {id(part): part for part in chosen}.values():
        part.forward = _recomputed(part.forward)
    return module


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """``forward`` under torch's checkpoint. Wrapping the module's call instead would run its hooks twice."""

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    recomputed.is_recomputed = True  # type: ignore[attr-defined]  # marks recomputed operators in a trace
    return recomputed


def _blocks(module: nn.Module) -> list[list[nn.Module]]:
    """The blocks of each outermost list."""
    lists = ([part for part in parts if _has_parts(part)] for parts in _outermost(module))
    return [blocks for blocks in lists if blocks]


def _has_parts(module: nn.Module) -> bool:
    return any(True for _ in module.children())


def _outermost(module: nn.Module) -> Iterator[list[nn.Module]]:
    listed = _listed(module)
    if listed:
        yield listed
    for child in module.children():
        if not any(child is part for part in listed):
            yield from _outermost(child)


def _listed(module: nn.Module) -> list[nn.Module]:
    """The children of a list that may be blocks, with duplicates. Children that are lists themselves are left out: they are searched."""
    children = [child for child in module._modules.values() if child is not None and not _is_list(child)]
    if isinstance(module, nn.ModuleList):
        return children
    if isinstance(module, nn.Sequential):
        times = Counter(type(child) for child in children)
        return [child for child in children if times[type(child)] > 1]
    return []


def _is_list(module: nn.Module) -> bool:
    """Whether a module is only a container: an ``nn.ModuleList``, an ``nn.ModuleDict``, or a plain ``nn.Sequential`` of blocks."""
    if type(module) is nn.Sequential:
        return any(_has_parts(child) for child in _listed(module))
    return isinstance(module, nn.ModuleList | nn.ModuleDict)


def _attentions(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost attention modules inside a module."""
    for child in module.children():
        if _is_attention(type(child).__name__.lower()):
            yield child
        else:
            yield from _attentions(child)


def _is_attention(kind: str) -> bool:
    table = _TABLE[ATTENTION]
    return any(word in kind for word in table["names"]) and not any(word in kind for word in table["not_with"])
