"""Stored closed forms: derivations kept as data, so that a question about them needs neither torch nor SymPy. Those of known models are
bundled; what a command derives is kept in the user's cache.

    form = calc.pipeline.precomputed.stored("llama3-8b")          # None where there is none that holds here
    form.quantity("flops.forward.matmul").at(B=8, T=1024)         # an exact integer
    form.quantity("memory.peak").expr_text                        # its closed form

``python -m calc.pipeline.precomputed.make`` re-derives the bundled ones. A form is used only where it is what a derivation would give: the
code means what it meant when the form was made, and the torch and transformers installed here, if any, are of the versions it was traced
with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from calc.pipeline.precomputed.forms import Stored, StoredQuantity
from calc.pipeline.precomputed.index import bundled, names, why_not

if TYPE_CHECKING:
    from calc.derive.result import Derivation

__all__ = ["Stored", "StoredQuantity", "bundled", "form_of", "forms_elsewhere", "keep", "names", "stored", "why_not"]


def stored(name: str, options: Mapping[str, str] | None = None) -> Stored | None:
    """The stored form of a model as ``calc.models.load`` names it, for ``options`` as ``Options.to_json`` gives them (default: the
    defaults): the bundled one, else one that an earlier command derived. ``None`` if there is none that is valid here.
    """
    form = bundled(name, options)
    if form is not None:
        return form
    from calc.pipeline.precomputed import kept

    return kept.read(name, options, every_case=True) or kept.read(name, options)


def form_of(
    name: str, options: Mapping[str, str] | None = None, *, cache: bool = True, progress: Callable[[str], None] = lambda _: None
) -> Stored:
    """The form of any model that ``calc.models.load`` loads, with every special case, whatever was derived before: the stored one, else one
    derived now, which needs torch and SymPy."""
    from calc.pipeline.precomputed import kept

    form = (bundled(name, options) or kept.read(name, options, every_case=True)) if cache else None
    if form is not None:
        return form
    from calc.options import made as chosen
    from calc.pipeline.precomputed.writing import made

    form_here = made(name, chosen(**(options or {})), cache=cache, progress=progress)
    if cache and form_here.accepts_all:
        kept.write(name, options, form_here.data, every_case=True)
    return Stored(form_here.data)


def forms_elsewhere(
    form: Stored, *, cache: bool = True, progress: Callable[[str], None] = lambda _: None
) -> Callable[[Mapping[str, int]], Stored]:
    """A function that returns the form of the same model at other sizes: it traces the model there, which needs torch and SymPy."""
    from calc.options import made as chosen
    from calc.pipeline.precomputed.writing import made_elsewhere

    make = made_elsewhere(form.name, chosen(**form.options), cache=cache, progress=progress)
    return lambda sizes: Stored(make(sizes))


def keep(name: str, derivation: Derivation) -> None:
    """Keep the closed forms of a derivation in the user's cache, for later commands. A model whose content its name does not tell is not
    kept, nor is what is bundled."""
    from calc.pipeline.precomputed import kept

    if kept.has_place(name, derivation.options) and bundled(name, derivation.options) is None:
        from calc.pipeline.precomputed.writing import of_derivation

        data = of_derivation(name, derivation)
        if data is not None:
            kept.write(name, derivation.options, data)
