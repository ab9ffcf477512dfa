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

    places = kept.places(name, options)
    return None if places is None else kept.read(places.every_case) or kept.read(places.derived)


def form_of(
    name: str, options: Mapping[str, str] | None = None, *, cache: bool = True, progress: Callable[[str], None] = lambda _: None
) -> Stored:
    """The form of any model that ``calc.models.load`` loads, with every special case, whatever was derived before: the stored one, else one
    derived now, which needs torch and SymPy."""
    from calc.pipeline.precomputed import kept

    form = bundled(name, options) if cache else None
    places = kept.places(name, options) if cache and form is None else None
    if places is not None:
        form = kept.read(places.every_case)
    if form is not None:
        return form
    from calc.options import made as chosen
    from calc.pipeline.precomputed.writing import made

    form_here = made(name, chosen(**(options or {})), cache=cache, progress=progress)
    if places and places.are_of(form_here.spec) and form_here.accepts_all:
        kept.write(places.every_case, form_here.data)
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

    places = kept.places(name, derivation.options)
    if places and places.are_of(derivation.spec) and bundled(name, derivation.options) is None:
        from calc.pipeline.precomputed.writing import of_derivation

        data = of_derivation(name, derivation)
        if data is not None:
            kept.write(places.derived, data)
