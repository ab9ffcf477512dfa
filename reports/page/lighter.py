"""Lighter versions of a page that would be too heavy to be loaded whole. What they leave out is in the Markdown report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reports.page.equations import elsewhere, matmuls_only, one_of_each_kind
from reports.page.model import Chapter
from reports.page.report import Page

# Quantities whose steps are left out, one more in each version. Later chapters refer to equal steps of earlier ones, never the other way.
_LEFT_OUT = ("flops.backward.matmul", "activations.bytes", "flops.forward.matmul")


def lighter(page: Page) -> Iterator[Page]:
    """Versions of ``page``, each lighter than the one before; each says where the rest is."""
    before = page
    for version in _lighter(page):
        if version != before:
            yield version
        before = version


def _lighter(page: Page) -> Iterator[Page]:
    page = replace(page, equations=one_of_each_kind(page.equations))
    yield page
    page = replace(page, chapters=tuple(map(_with_leading_candidates, page.chapters)))
    yield page
    page = replace(page, equations=matmuls_only(page.equations, "the other equations are in the Markdown report"))
    yield page
    for name in _LEFT_OUT:
        page = replace(page, chapters=tuple(replace(c, aside=True) if c.quantity == name else c for c in page.chapters))
        yield page
    page = replace(page, chapters=tuple(replace(c, otherwise=None) for c in page.chapters))
    yield page
    page = replace(page, chapters=tuple(map(_without_table, page.chapters)))
    yield page
    if page.equations.tables:
        yield replace(page, equations=elsewhere(page.equations))


def _without_table(chapter: Chapter) -> Chapter:
    """The chapter without its table by module path, where its steps are elsewhere; that of a total has the terms of its first step."""
    if chapter.quantity.endswith(".total") and chapter.derived and not chapter.aside:
        return replace(chapter, terms=(), same_table=None)
    if not chapter.aside or not chapter.terms or not chapter.derived:
        return chapter
    titles = {**chapter.titles, "aside": f"{chapter.titles['terms']} and {chapter.titles['aside']}"}
    return replace(chapter, terms=(), same_table=None, titles=titles)


def _with_leading_candidates(chapter: Chapter) -> Chapter:
    """The chapter with its largest peak candidates, and the steps that they need; with none where its steps are elsewhere, since those of
    a first step refer to candidates that are then left out."""
    if chapter.leading == chapter.candidates:
        return chapter
    if chapter.aside:
        return replace(chapter, candidates=())
    needed = {candidate.target for candidate in chapter.leading}
    steps = tuple(step for step in chapter.steps if not step.folded or step.anchor in needed)
    titles = {**chapter.titles, "candidates": chapter.titles["leading"], "others": "Steps of other peak candidates"}
    return replace(chapter, candidates=chapter.leading, steps=steps, titles=titles)
