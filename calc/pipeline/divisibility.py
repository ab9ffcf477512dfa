"""Infers divisors that a model does not declare: sizes that must be multiples of something for the step to run.

Symbols divide only what is declared to be a multiple of them. If the step raises with symbols but runs at the requested sizes, Napkin
declares a size a multiple of a divisor that the requested sizes have (an image of 32 halved twice is a multiple of 4), traces the step once
more, and lists the assumption. A size may need a second divisor: a width whose heads each rotate pairs is a multiple of twice the heads. If
no divisor helps, sizes are specialized, which the assumptions list as well. Torch-free.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from calc.dimensions import Dim, quotient
from calc.errors import NapkinError, RoundedShareError, SizesError, SpecializationError, TraceError
from calc.graph import unbacked_sizes
from calc.graph.basis import basis_of
from calc.graph.folds import named_quotient, quotient_name
from calc.graph.plan import DivisorSearch, Inferred, Level, Refusal, TracePlan, outcome_of
from calc.graph.step import Graph, Guard
from calc.spec import Spec
from calc.symbolic.exact import Exact
from calc.symbolic.expression import Expression, FunctionCall, Name, Number, Product, Quotient, Remainder, rewritten, walk
from calc.symbolic.expression import names as names_in
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text

_POWERS = (2, 4, 8, 16, 32, 64)
_DIVISION = re.compile(r"([A-Za-z_]\w*)\)* *//? *\(*(\w+)")
# ``(d + 1)//2``, or ``(d - 1)//2 + 1``: every second element of d, also of an odd one.
_CEILING = re.compile(r"([A-Za-z_]\w*)\)* *([+-] *\d+)\)* *// *\(*(\d+)")
# torch's message for two sizes that should be equal: one may be repeated to be the other, or cut into it.
_UNEQUAL = re.compile(r"size of tensor a \((\w+)\) must match the size of tensor b \((\w+)\)")
# Maximum number of further divisors to try.
_MOST_TRIED = 40
# Used as a divisor only where the failing line itself asks for it: the batch.
_NEVER_DIVIDES = ("B",)


def first_search(spec: Spec, sizes: Mapping[str, int], failure: SizesError) -> DivisorSearch:
    """The search for divisors of ``sizes``, for a ``spec`` that failed with ``failure`` without any."""
    return DivisorSearch((_level(spec, sizes, failure),))


def with_next_divisor(plan: TracePlan, search: DivisorSearch, sizes: Mapping[str, int], error: NapkinError | None) -> TracePlan | None:
    """The plan with the next divisor to try, after the last one was refused with ``error``; None if none is left or too many were tried.
    The search descends if the step fails at another line, for another reason, or because of other dimensions than without that divisor."""
    levels = search.levels
    if search.trying is not None and isinstance(error, SizesError):
        top = levels[-1]
        if _situation(top.spec, error) != _situation(top.spec, top.failure) or _settles(search.trying, top, error):
            levels = (*levels, _level(search.trying, sizes, error))
        elif str(error) != str(top.failure):
            levels = (*levels[:-1], replace(top, later=(*top.later, (search.trying, error))))
    while levels and search.tries < _MOST_TRIED:
        *outer, top = levels
        if top.left:
            more, *left = top.left
            reached = DivisorSearch((*outer, replace(top, left=tuple(left))), more.spec, search.tries + 1)
            return replace(plan.of(more.spec, more.reason), search=reached)
        levels = tuple(outer)
        if top.later:
            (nearer, failure), *later = top.later
            levels = (*outer, replace(top, later=tuple(later)), _level(nearer, sizes, failure))
    return None


def _settles(trying: Spec, top: Level, error: SizesError) -> bool:
    """Whether a dimension that ``trying`` declares a multiple was to blame without it, and now others alone are: an image that may be any
    number of pixels wide, but not high; heads that share keys, and then a width of which each has a part."""
    declared = _declared_by(trying, top)
    before, after = said_by(top.failure), said_by(error)
    named = set(named_in(trying, after))
    if named and declared.keys() & named_in(top.spec, before) and not declared.keys() & named:
        return True
    earlier = top.failure.causes if isinstance(top.failure, SizesError) else frozenset()
    if not named and error.causes and declared.keys() & earlier and not declared.keys() & error.causes:
        return True
    divides = any(pair in declared.items() for pair in _divided(top.spec, before))
    return divides and not any(name in declared for name, _ in _divided(trying, after))


def is_settled(search: DivisorSearch) -> bool:
    """Whether what is tried declares a multiple of what the failing line divides a dimension by: it is what that line needs."""
    if search.trying is None or not search.levels:
        return False
    top = search.levels[-1]
    return any(pair in _declared_by(search.trying, top).items() for pair in _divided(top.spec, said_by(top.failure)))


def _declared_by(trying: Spec, top: Level) -> dict[str, int | str | None]:
    """What ``trying`` declares dimensions to be multiples of that the spec of ``top`` does not."""
    return {name: dim.multiple_of for name, dim in trying.dims.items() if isinstance(dim, Dim) and dim != top.spec.dims.get(name)}


def said_by(error: TraceError) -> str:
    """What the failing operator says, without the line that runs it, which has the model's own names."""
    return _last_sentence(error.said) if isinstance(error, SizesError) and error.said else _searched(error)


def _level(spec: Spec, sizes: Mapping[str, int], failure: TraceError) -> Level:
    return Level(spec, failure, tuple(itertools.islice(candidates(spec, sizes, failure), _MOST_TRIED)))


def with_less(plan: TracePlan, name: str) -> Iterator[TracePlan]:
    """Plans that declare less about the dimension ``name`` than ``plan`` inferred."""
    search, given = plan.search, plan.given
    if search is None or search.trying is None or given is None or name not in _inferred(given, search.trying):
        return
    for tries, smaller in enumerate(_smaller(given, search.trying, name), search.tries + 1):
        if tries > _MOST_TRIED:
            return
        multiple = smaller.dimensions[name].multiple_of if name in smaller.dims else None
        reason = f"trying {name} {'as it is declared' if multiple is None else f'as a multiple of {multiple}'}"
        yield replace(plan.of(smaller, reason), search=replace(search, trying=smaller, tries=tries))


def inferred(plan: TracePlan) -> list[str]:
    """The dimensions that were inferred to be multiples."""
    search, given = plan.search, plan.given
    return [] if search is None or search.trying is None or given is None else [*_inferred(given, search.trying)]


def _inferred(given: Spec, spec: Spec) -> dict[str, Dim]:
    """The dimensions about which ``spec`` declares a multiple that ``given`` does not."""
    reasons = {name: dim.because for name, dim in given.dimensions.items()}
    return {name: dim for name, dim in spec.dimensions.items() if dim.because and dim.because != reasons.get(name)}


def _smaller(given: Spec, spec: Spec, name: str) -> Iterator[Spec]:
    """``spec`` with less declared about ``name``: only what ``given`` declares, unless it is the only inferred multiple; then the largest
    divisors of the multiple, since a step that needs them needs multiples of none that are smaller."""
    dim, before = spec.dimensions[name], given.dimensions.get(name)
    others = {n: d for n, d in _inferred(given, spec).items() if n != name}
    if others and not any((quotient(d.default) or ("", ""))[0] == name for d in others.values()):
        rest = {n: d for n, d in spec.dims.items() if n != name}
        yield replace(spec, dims=rest if before is None else {**spec.dims, name: before})
    if isinstance(dim.multiple_of, int):
        declared = before.multiple_of if before and isinstance(before.multiple_of, int) else 1
        for part in _largest_divisors(dim.multiple_of):
            if part % declared == 0 and part > declared:
                yield replace(spec, dims={**spec.dims, name: replace(dim, multiple_of=part)})


def _largest_divisors(number: int) -> list[int]:
    """The divisors from 2 on of ``number``, without itself, that divide no other of them."""
    divisors = [part for part in range(2, number) if number % part == 0]
    return [part for part in divisors if not any(larger % part == 0 for larger in divisors if larger > part)]


def divided(spec: Spec, sizes: Mapping[str, int], failure: SizesError | SpecializationError) -> Inferred | None:
    """``spec`` with a size declared a multiple of what the line that failed divides it by; None if there is no such size."""
    reason = failure.failure.statement
    if isinstance(failure, SpecializationError | RoundedShareError):
        pairs = failure.pairs if isinstance(failure, RoundedShareError) else failure.divided or ()
        return next(_multiples(spec, sizes, reason, _rounded(spec, pairs)), None)
    return next(_multiples(spec, sizes, reason, _divided(spec, _searched(failure))), None)


def required(spec: Spec, graph: Graph, guards: Sequence[Guard], sizes: Mapping[str, int]) -> Inferred | None:
    """``spec`` with the multiples at which ``guards`` of ``graph`` have the other outcome, as at ``sizes``: a width is even where the
    step asks whether it is odd. None if multiples decide none of them."""
    reasons: list[str] = []
    for guard in guards:
        if _is_decided(spec, graph, guard):
            continue
        reason = f"{guard.expr} is {guard.outcome} at {guard.where}, and the step runs other operators"
        more = next(_multiples(spec, sizes, reason, _exact_divisions(spec, graph, guard, sizes)), None)
        if more is None or not _has_own_sizes(more.spec) or not _is_decided(more.spec, graph, guard):
            continue  # an equality that also depends on how many chunks there are, for example
        spec = more.spec
        reasons.append(more.reason)
    if not reasons:
        return None
    reason = ", ".join(reasons)
    # The graph without these multiples is in the cache under the model's own key: it holds at other sizes.
    return Inferred(replace(spec, key=f"{spec.key}, {reason}" if spec.key else ""), reason)


def unrounded(spec: Spec, graph: Graph, guards: Sequence[Guard], sizes: Mapping[str, int]) -> Inferred | None:
    """As ``required``, for those ``guards`` that compare rounded quotients: what was halved and doubled is padded where it is odd."""
    return required(spec, graph, [guard for guard in guards if is_about(guard) and not guard.divides], sizes)


def is_about(guard: Guard) -> bool:
    """Whether a guard compares remainders or rounded quotients."""
    return guard.divides or any(isinstance(node, FunctionCall) and node.function == "floor" for node in walk(parse(guard.expr)))


def _exact_divisions(spec: Spec, graph: Graph, guard: Guard, sizes: Mapping[str, int]) -> list[tuple[str, int | str]]:
    """The dimensions that ``guard`` divides without a remainder at ``sizes``, with their divisors, of remainders and of rounded quotients.
    Of ``(h*k)//2``, where the product is no dimension, the last factor is divided."""
    divisions: list[tuple[Expression, Expression]] = []
    for node in walk(parse(guard.expr)):
        match node:
            case FunctionCall("Mod", (top, bottom)) | Remainder(top, bottom) | FunctionCall("floor", (Quotient(top, bottom),)):
                divisions.append((top, bottom))
    at = Exact(graph.as_basis().values(sizes))
    exact = [(top, by) for top, by in divisions if by.value_in(at) and Remainder(top, by).value_in(at) == 0]
    by_factors = {_factors(parse(product)): Name(name) for name, product in basis_of(spec.dimensions).define.items()}
    by_factors.pop((), None)
    quotients: list[tuple[str, str]] = []
    for top, by in exact:
        *_, last = (node for node in walk(rewritten(top, lambda node: by_factors.get(_factors(node)))) if isinstance(node, Name | Number))
        if not isinstance(last, Name) or not isinstance(by, Name | Number):
            continue
        mentioned = {_dimension(spec, name) for name in names_in(top)}
        quotients += [(n, as_text(by)) for n in spec.dims if n in mentioned] if last == by else [_whole(spec, last.name, as_text(by))]
    return _of_dimensions(spec, quotients)


def _factors(product: Expression) -> tuple[str, ...]:
    """The names and numbers of a product, in one order; empty for anything else."""
    nodes = [node for node in walk(product) if not isinstance(node, Product)]
    return tuple(sorted(map(as_text, nodes))) if len(nodes) > 1 and all(isinstance(node, Name | Number) for node in nodes) else ()


def _has_own_sizes(spec: Spec) -> bool:
    """Whether the default sizes of ``spec`` satisfy its multiples: the step is traced with symbols near them."""
    return not isinstance(outcome_of(spec.sizes), Refusal)


_SAMPLES = 20


def _is_decided(spec: Spec, graph: Graph, guard: Guard) -> bool:
    """Whether a guard has the other outcome at all sizes from 2 on that ``spec`` allows (one chunk is a special case), tested at random
    ones."""
    basis, generator = basis_of(spec.dimensions), random.Random(0)
    points = [{name: generator.randint(2, 10 ** generator.randint(1, 4)) for name in basis.symbols} for _ in range(_SAMPLES)]
    return not any(guard.holds_at(graph.as_basis().values(basis.sizes(at))) for at in points)


def candidates(spec: Spec, sizes: Mapping[str, int], failure: TraceError) -> Iterator[Inferred]:
    """``spec`` with one more size declared a multiple: first those that ``failure`` divides, then others it names, then all."""
    stated = _divided(spec, "; ".join(failure.failure.details))
    return _multiples(spec, sizes, failure.failure.statement, dict.fromkeys((*stated, *_pairs(spec, failure))), stated)


def _multiples(
    spec: Spec,
    sizes: Mapping[str, int],
    reason: str,
    pairs: Iterable[tuple[str, int | str]],
    stated: Collection[tuple[str, int | str]] = (),
) -> Iterator[Inferred]:
    """``spec`` with the first size of each of ``pairs`` declared a multiple of the second, where ``sizes`` allow it; of the batch only
    where the failing line has ``stated`` it: a queue of whole batches."""
    for name, part in pairs:
        dim = spec.dimensions[name]
        if dim.tied or dim.plus or dim.unbacked_at or (part in _NEVER_DIVIDES and (name, part) not in stated):
            continue
        multiples = _finer(spec, sizes, name, part)
        if multiples:
            yield _declared(spec, multiples, reason)


def _pairs(spec: Spec, failure: TraceError) -> Iterable[tuple[str, int | str]]:
    """Pairs of a dimension and its possible divisor."""
    if isinstance(failure, RoundedShareError):
        return _rounded(spec, failure.pairs)
    error = _searched(failure)
    compared = failure.causes if isinstance(failure, SizesError) else frozenset()
    named = named_in(spec, error) or [name for name in spec.dims if name in compared]  # "embed_dim must be divisible by num_heads"
    numbers = sorted(int(word) for word in _words(error) if word.isdigit() and 1 < int(word) <= 4096)
    parts: list[int | str] = [*numbers, *named, *_POWERS, *spec.dims]
    others = () if unbacked_sizes.is_named(spec, error) else spec.dims  # no other size is at fault for what data determine
    wholes = sorted((*named, *others), key=_NEVER_DIVIDES.__contains__)
    return dict.fromkeys((*_divided(spec, error), *_unequal(spec, error), *((name, part) for name in wholes for part in parts)))


def _unequal(spec: Spec, error: str) -> list[tuple[str, int | str]]:
    """The two dimensions that ``error`` says are not equal, each with the other as its divisor: heads, and the groups they share. They come
    before numbers of the model's line, such as that of ``transpose(-2, -1)``."""
    pairs = [(_dimension(spec, left), _dimension(spec, right)) for left, right in _UNEQUAL.findall(error)]
    return [ordered for pair in pairs if all(pair) for ordered in (pair, pair[::-1])]


def _rounded(spec: Spec, pairs: Sequence[tuple[str, str | int]]) -> list[tuple[str, int | str]]:
    """The dimensions of symbols that are divided and rounded, with their divisors."""
    divided = [(_dimension(spec, name), part if isinstance(part, int) else _dimension(spec, part)) for name, part in pairs]
    return [(name, part) for name, part in divided if name and part]


def _divided(spec: Spec, text: str) -> list[tuple[str, int | str]]:
    """Sizes that are divided and rounded in ``text``, with their divisors: ``(S - P)//P`` would be exact for multiples of P."""
    named, text = named_in(spec, text), _in_dimensions(spec, text)
    ceilings = [(whole, int(more.replace(" ", "")), part) for whole, more, part in _CEILING.findall(text)]
    rounded_up = [_whole(spec, whole, part) for whole, more, part in ceilings if int(part) > 1 and more in (-1, int(part) - 1)]
    quotients: list[tuple[str, str]] = []
    for whole, part in _DIVISION.findall(text):
        quotients += [(name, part) for name in named] if whole == part else [_whole(spec, whole, part)]
    return _of_dimensions(spec, (*quotients, *sorted(rounded_up, key=lambda pair: -int(pair[1]))))


def _of_dimensions(spec: Spec, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, int | str]]:
    """Those of ``pairs`` that are a dimension and a number or another dimension."""
    dims = [(name, part) for name, part in pairs if name and (part.isdigit() or part in spec.dims)]
    return [(name, int(part) if part.isdigit() else part) for name, part in dims]


def _whole(spec: Spec, symbol: str, part: str) -> tuple[str, str]:
    """The dimension that ``symbol`` is a quotient of, with what it must be a multiple of for ``part`` to divide the symbol: of ``k_per_2``,
    where ``k = d/h``, it is ``d``, and each head's share of it a multiple of twice ``part``; of ``d_per_g``, which ``h_per_g`` divides, it
    is ``d``, a multiple of ``h``."""
    name = _dimension(spec, symbol)
    dim, named = spec.dimensions.get(name), named_quotient(symbol)
    divided = quotient(dim.default) if dim is not None and dim.tied else None
    if divided is not None:
        dividend, divisor = divided
        name = dividend if dividend in spec.dims and spec.dimensions[dividend].multiple_of == divisor else name
    match named, named_quotient(part):
        case Quotient(bottom=Number(int() as by)), _ if part.isdigit():
            return name, str(int(part) * by)
        case Quotient(bottom=of_both), Quotient(Name(divides), of_part) if of_both == of_part:
            return name, divides
    return name, part


def _in_dimensions(spec: Spec, text: str) -> str:
    """``text`` with ``(g*h_per_g)`` as ``h``, which the basis defines as that product."""
    for name, product in basis_of(spec.dimensions).define.items():
        if factors := _factors(parse(product)):
            text = text.replace(f"({'*'.join(factors)})", name)
    return text


def _dimension(spec: Spec, symbol: str) -> str:
    """The dimension that a symbol is, or is a quotient of; empty if none."""
    match named_quotient(symbol):
        case Quotient(Name(whole)) if symbol not in spec.dims or quotient(spec.dimensions[symbol].default):
            return _dimension(spec, whole)
    return symbol if symbol in spec.dims else ""


def _finer(spec: Spec, sizes: Mapping[str, int], name: str, part: int | str) -> dict[str, Dim]:
    """``name`` as a multiple of ``part`` too, if that adds to the declaration and ``sizes`` satisfy it; else empty."""
    dim = spec.dimensions[name]
    if isinstance(part, int) and isinstance(dim.multiple_of, str):
        quotient, declared = _quotient(spec, name, dim.multiple_of)
        share = sizes[name] // sizes[dim.multiple_of]
        return {quotient: replace(declared, multiple_of=part)} if _says_more(declared, part) and share % part == 0 else {}
    if isinstance(part, int):
        return {name: _as_multiple(dim, part)} if _says_more(dim, part) and sizes[name] % part == 0 else {}
    if isinstance(dim.multiple_of, str) or sizes.get(part, 1) == 1 or _is_made_of(spec, part, name):
        return {}
    return _split(spec, name, dim, part) if sizes[name] % ((dim.multiple_of or 1) * sizes[part]) == 0 else {}


def _as_multiple(dim: Dim, part: int) -> Dim:
    """``dim`` as a multiple of ``part``. Its default becomes one too: the step is traced with symbols near the defaults."""
    default = -(-dim.default // part) * part if isinstance(dim.default, int) else dim.default
    return replace(dim, default=default, multiple_of=part)


def _is_made_of(spec: Spec, name: int | str | None, part: str) -> bool:
    """Whether ``name`` is ``part``, or is declared a multiple of it, directly or through other dimensions."""
    return name == part or (isinstance(name, str) and _is_made_of(spec, spec.dimensions[name].multiple_of, part))


def _split(spec: Spec, name: str, dim: Dim, divisor: str) -> dict[str, Dim]:
    """``name`` as a multiple of ``divisor``; its previous divisor becomes a divisor of the quotient."""
    quotient, declared = _quotient(spec, name, divisor)
    rest = {quotient: replace(declared, multiple_of=dim.multiple_of)} if dim.multiple_of else {}
    return {name: replace(dim, multiple_of=divisor), **rest}


def _quotient(spec: Spec, whole: str, part: str) -> tuple[str, Dim]:
    """The dimension defined as ``whole/part``; a new one if the model has none."""
    dims = spec.dimensions
    of = f"{whole}/{part}"
    name = next((n for n, d in dims.items() if d.tied and quotient(d.default) == (whole, part)), quotient_name(whole, part))
    return name, dims.get(name, Dim(of, of, tied=True))


def as_numbers(spec: Spec, error: TraceError, counts: Collection[str]) -> Spec:
    """``spec`` whose sizes may be specialized one at a time: first the divisors in ``error``, then others it names, then the rest, without
    those that were read as ``counts`` of iterations, which may be so again."""
    named = named_in(spec, _searched(error)) + ([error.dimension] if isinstance(error, SpecializationError) else [])
    names = dict.fromkeys((*named, *(name for name in spec.dims if name not in counts)))
    why = error.failure.why
    order = sorted(names, key=lambda name: (name in _NEVER_DIVIDES, not re.search(rf"// *{name}\b", why)))
    return replace(spec, may_specialize=tuple((name,) for name in order if not spec.dimensions[name].tied))


def _searched(error: TraceError) -> str:
    """What an error says of sizes, without its location and without Napkin's advice, which names other sizes."""
    return _last_sentence(error.failure.searched)


def _last_sentence(message: str) -> str:
    """Of a message of einops its last sentence, since those before it name every size of the tensor; other messages as they are."""
    return message.rpartition("Shape mismatch, ")[2]


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*|\d+", text)


def named_in(spec: Spec, text: str) -> list[str]:
    """The dimensions that a text names."""
    named = {_dimension(spec, word) for word in _words(text)}
    return [name for name in spec.dims if name in named]


def _says_more(dim: Dim, part: int) -> bool:
    """Whether being a multiple of ``part`` adds to the declaration."""
    declared = dim.multiple_of
    return declared is None or (isinstance(declared, int) and part > declared and part % declared == 0)


def _declared(spec: Spec, multiples: Mapping[str, Dim], why: str) -> Inferred:
    dims = {name: replace(dim, because=f"inferred by tracing: without it {why}") for name, dim in multiples.items()}
    requirements = " and ".join(f"{dim.default if dim.tied else name} to be a multiple of {dim.multiple_of}" for name, dim in dims.items())
    return Inferred(replace(spec, dims={**spec.dims, **dims}), f"assuming {requirements}")


def _situation(spec: Spec, error: TraceError) -> tuple[str, tuple[str, ...]]:
    """The line that an error names, and its words without sizes."""
    return error.line, tuple(word for word in _words(_searched(error)) if not word.isdigit() and not _dimension(spec, word))
