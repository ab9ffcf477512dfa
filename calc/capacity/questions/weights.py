"""A model's weights in inference: their bytes in a number format, and how many of them one token reads.

Bytes are those of ``napkin inference``. The reads of a token follow from the traced forward: rows of a looked-up table count as zero, and
where a module multiplies a token by only part of its weights, as experts do, only that share counts. Deriving needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.platform.progress import Progress

if TYPE_CHECKING:
    from calc.derive.result import Derivation
    from calc.graph.step import Graph

_LOOKUPS = ("aten.embedding.default", "aten.index.Tensor", "aten.index_select.default")


@dataclass(frozen=True, slots=True)
class WeightRead:
    """The weights of one parameter term: ``nbytes`` bytes, of which a token reads a ``share``."""

    module_path: str
    nbytes: int
    share: Fraction


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights in one number format, by parameter term."""

    places: tuple[WeightRead, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(place.nbytes for place in self.places)

    @property
    def partial(self) -> tuple[WeightRead, ...]:
        """Terms of which a token reads only a part: the experts."""
        return tuple(place for place in self.places if 0 < place.share < 1)

    def read(self, tokens: int | Fraction = 1) -> Fraction:
        """Upper bound on the bytes that ``tokens`` read: no two share an expert. The bytes of one token are the lower bound for any number.
        """
        return sum((place.nbytes * min(Fraction(1), place.share * tokens) for place in self.places), start=Fraction(0))


@dataclass(frozen=True, slots=True)
class InUse:
    """The forward of a model in inference mode: its weights in any number format, and the FLOPs of one token without earlier tokens,
    derived in ``one_token``."""

    graph: Graph
    derivation: Derivation
    one_token: Derivation
    sizes: Mapping[str, int]

    def weights(self, name: str) -> Weights:
        """The weights in the number format of that name."""
        from calc.memory.inference import weights

        shares = self._shares()
        lines = weights(self.graph, self.derivation, self.sizes, name).lines
        return Weights(tuple(WeightRead(line.label, line.value, shares[line.label]) for line in lines))

    @property
    def flops(self) -> int:
        """Matmul FLOPs of the forward of one token."""
        return int(sum(self._products().values()))

    def _products(self) -> dict[str, Fraction]:
        """FLOPs of one token by module path."""
        flops: dict[str, Fraction] = {}
        for term in self.one_token["flops.forward.matmul"].terms:
            flops[term.module_path] = flops.get(term.module_path, Fraction(0)) + term.value
        return flops

    def _shares(self) -> dict[str, Fraction]:
        """The share of each term's weights that a token reads: each weight used costs 2 FLOP."""
        terms = {term.module_path: term.value for term in self.derivation["parameters"].terms}
        products, matrices, tables = self._products(), set(self._places(_is_matrix)), set(self._places(self._is_table()))
        elements: dict[str, Fraction] = {}
        for module_path in matrices:
            module = _module(module_path)
            elements[module] = elements.get(module, Fraction(0)) + terms[module_path]
        shares = {}
        for module_path in terms:
            flops = products.get(_module(module_path), Fraction(0)) if module_path in matrices else Fraction(0)
            share = min(Fraction(1), flops / (2 * elements[_module(module_path)])) if flops else Fraction(1)
            shares[module_path] = Fraction(0) if module_path in tables else share
        return shares

    def _places(self, condition: Callable[[Any], bool]) -> Iterator[str]:
        """Module paths of the parameter terms whose traced tensors all satisfy ``condition``."""
        for term in self.derivation["parameters"].terms:
            tensors = [tensor for name, tensor in self.graph.traces[0].parameters if term.stands_for(name)]
            if tensors and all(map(condition, tensors)):
                yield term.module_path

    def _is_table(self) -> Callable[[Any], bool]:
        """A predicate: whether a tensor is only looked up. A tied head also multiplies its table, so it does not qualify."""
        used: dict[int, set[str]] = {}
        for op in self.graph.traces[0].ops:
            for storage in _storages(value for _, value in op.args):
                used.setdefault(storage, set()).add(op.name)
        return lambda tensor: bool(used.get(tensor.storage)) and used[tensor.storage] <= set(_LOOKUPS)


def in_use(name: str, sizes: Mapping[str, int], progress: Progress) -> InUse:
    """The model ``name`` in inference mode. Weights do not depend on batch and length, which stay at their defaults."""
    from calc.models.load import load
    from calc.options import Options
    from calc.pipeline.pipeline import derive, graph_at

    spec = load(name)
    own = {name: size for name, size in sizes.items() if name not in ("B", "T")}
    options = Options(mode="infer")
    graph = graph_at(spec, own, options, progress=progress)
    derivation = derive(spec, own, options=options, progress=progress)
    one_token = derivation.at_sizes({name: 1 for name in ("B", "T") if name in derivation.sizes})
    return InUse(graph, derivation, one_token, {**derivation.sizes, **spec.sizes(own)})


def _is_matrix(tensor: Any) -> bool:
    return len(tensor.shape) > 1


def _module(module_path: str) -> str:
    return module_path.rpartition(".")[0]


def _storages(values: Iterable[Any]) -> Iterator[int]:
    """Storages of the tensors among arguments."""
    for value in values:
        if isinstance(value, tuple):
            yield from _storages(value)
        elif hasattr(value, "storage"):
            yield value.storage
