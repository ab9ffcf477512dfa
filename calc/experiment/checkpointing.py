"""Activation checkpointing of any module: some of its parts keep only their arguments and run again in the backward.

Which parts they are is read off the structure. Blocks are the children of the outermost lists of modules: of every
``nn.ModuleList``, and those of an ``nn.Sequential`` that are of one class with another of its children. One without parts of its
own (a plain layer, which keeps little but its argument anyway) is none; one that runs several times runs again each time. It is
the module that is changed, so whoever builds it, to record or to measure it, runs the same.
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
from calc.spec import Sizes, Spec

NONE, ATTENTION = "none", "attention"
_TABLE: dict[str, dict[str, list[str]]] = tomllib.loads((resources.files("calc") / "data" / "checkpointing.toml").read_text("utf-8"))


def built(spec: Spec, n: Sizes, choice: str = NONE) -> nn.Module:
    """The module of ``spec``, with the checkpointing that ``choice`` names: the same for whoever traces or measures it."""
    return checkpointed(spec.name, spec.build(n), choice)


def checkpointed(name: str, module: nn.Module, choice: str) -> nn.Module:
    """``module``, of which the parts that ``choice`` names run again in the backward; ``name`` is how a refusal calls it."""
    if choice == NONE or not isinstance(module, nn.Module):
        return module  # what is no module is refused by whoever asked for one
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
            named = " or ".join(f"{word!r}" for word in _TABLE[ATTENTION]["names"])
            raise SpecError(f"{name}: checkpointing 'attention' finds none: no part of {kinds} is of a class with {named} in its name")
    else:
        every = int(choice.partition("/")[2] or 1)
        chosen = [block for blocks in lists for block in blocks[::every]]
    for part in {id(part): part for part in chosen}.values():
        part.forward = _recomputed(part.forward)
    return module


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """``forward`` as torch checkpoints it. Not the call of the module, whose hooks would then run twice."""

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    recomputed.runs_again = True  # type: ignore[attr-defined]  # a mark, by which a recording names what runs then
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
    """The repeated children of a list, each as often as it is there. What is a list itself is looked into instead."""
    children = [child for child in module._modules.values() if child is not None and not _is_list(child)]
    if isinstance(module, nn.ModuleList):
        return children
    if isinstance(module, nn.Sequential):
        times = Counter(type(child) for child in children)
        return [child for child in children if times[type(child)] > 1]
    return []


def _is_list(module: nn.Module) -> bool:
    """Whether a module only holds others: it cannot be called, or is a plain sequence of blocks."""
    if type(module) is nn.Sequential:
        return any(_has_parts(child) for child in _listed(module))
    return isinstance(module, nn.ModuleList | nn.ModuleDict)


def _attentions(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost attentions inside a module."""
    for child in module.children():
        if _is_attention(type(child).__name__.lower()):
            yield child
        else:
            yield from _attentions(child)


def _is_attention(kind: str) -> bool:
    words = _TABLE[ATTENTION]
    return any(word in kind for word in words["names"]) and not any(word in kind for word in words["not_with"])
