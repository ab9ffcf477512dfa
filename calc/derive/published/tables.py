"""The published tables, each cell as an expression in a model's own dimensions.

``{n}`` is the number of positions: of the table of learned ones where the model has it, else the sequence length.

Where they are from. Kaplan et al.: section 2.1, table 1, both columns, beside copies of the table in public notes and in Casson's article;
the rows of a layer add up to its equation 2.2, C ≈ 2·N + 2·n_layer·n_ctx·d_model, where the table writes d_attn for d_model, and d_embd in
one cell. Hoffmann et al.: appendix F. ZeRO: section 3.2 with its footnote, as public notes quote both: "about 12 × hidden dim × batch × seq
length × transformer layers", which the example of 60 GB in that section takes in 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.derive import part_names as parts
from calc.units import Unit

_FLOPS = ("flops.forward.matmul",)


@dataclass(frozen=True, slots=True)
class PublishedCell:
    """A printed expression and what it stands for: ``quantities``, of them only the ``parts`` of the model, or all if there are none.
    ``but`` reverses it: all parts except these."""

    expr: str
    quantities: tuple[str, ...]
    parts: tuple[str, ...] = ()
    unit: Unit = Unit.FLOP
    but: bool = False

    def has(self, part: str) -> bool:
        """Whether the cell stands for this part of the model."""
        return not self.parts or (part in self.parts) != self.but


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """An operation and its cells, by column. ``because``: the convention of the publication that the cells follow, if it needs one."""

    operation: str
    cells: tuple[PublishedCell | None, ...]
    because: str = ""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table. ``needs``: the dimensions that it is stated in. ``per_token``: its FLOPs are of one token, else of a step."""

    name: str
    title: str
    source: str
    link: str
    letters: str
    needs: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    per_token: bool = False


def _parameters(expr: str, *of: str) -> PublishedCell:
    return PublishedCell(expr, ("parameters",), of, Unit.ELEMENT)


def _flops(expr: str, *of: str, quantities: tuple[str, ...] = _FLOPS) -> PublishedCell:
    return PublishedCell(expr, quantities, of)


def _bytes(expr: str, *quantities: str) -> PublishedCell:
    return PublishedCell(expr, quantities, (), Unit.BYTE)


_DECODER = ("B", "T", "d", "h", "k", "f", "L", "V")
_FEED_FORWARD = (parts.FEED_FORWARD, parts.EXPERTS)
_LAYER_PARTS = (parts.QKV, parts.SCORES, parts.MIX, parts.PROJECT, *_FEED_FORWARD)
_N = "2*d*L*(2*h*k + f)"

KAPLAN = PublishedTable(
    "kaplan-1",
    "Parameters and forward FLOPs of a Transformer",
    "Kaplan et al. 2020, Scaling Laws for Neural Language Models (arXiv 2001.08361), table 1",
    "https://arxiv.org/abs/2001.08361",
    "n_layer = L, d_model = d_embd = d, d_attn = h·k, d_ff = f, n_vocab = V, n_ctx = T, and C in the table of positions",
    _DECODER,
    ("Parameters", "FLOPs per token"),
    (
        PublishedRow(
            "Embed",
            (_parameters("(V + {n})*d", parts.EMBEDDING), _flops("4*d", parts.EMBEDDING)),
            "the table has learned positions, and counts looking up and adding two embeddings as FLOPs; a lookup does no arithmetic",
        ),
        PublishedRow("Attention: QKV", (_parameters("L*d*3*h*k", parts.QKV), _flops("2*L*d*3*h*k", parts.QKV))),
        PublishedRow(
            "Attention: mask",
            (None, _flops("2*L*T*h*k", parts.SCORES, parts.MIX)),
            "the table counts half of both matmuls, query keyᵀ and probs value, as if the causal mask saved the other half; kernels and"
            " torch's counter take all T² scores",
        ),
        PublishedRow("Attention: project", (_parameters("L*h*k*d", parts.PROJECT), _flops("2*L*h*k*d", parts.PROJECT))),
        PublishedRow("Feedforward", (_parameters("L*2*d*f", *_FEED_FORWARD), _flops("2*L*2*d*f", *_FEED_FORWARD))),
        PublishedRow("De-embed", (None, _flops("2*d*V", parts.HEAD)), "the head; its weights are those of the embedding"),
        PublishedRow(
            "Total (non-embedding)",
            (_parameters(_N, parts.QKV, parts.PROJECT, *_FEED_FORWARD), _flops(f"2*{_N} + 2*L*T*h*k", *_LAYER_PARTS)),
            "N = 2·d_model·n_layer·(2·d_attn + d_ff), and C = 2·N + 2·n_layer·n_ctx·d_attn, without Embed and De-embed",
        ),
        PublishedRow(
            "In no row",
            (
                PublishedCell("0", ("parameters",), (parts.EMBEDDING, *_LAYER_PARTS), Unit.ELEMENT, but=True),
                PublishedCell("0", _FLOPS, (parts.HEAD, *_LAYER_PARTS), but=True),
            ),
            "the table has no norms, head of its own or router",
        ),
    ),
    per_token=True,
)

_LAYERS = "2*3*B*T*d*h*k*L + 4*B*T**2*h*k*L + 3*h*B*T**2*L + 2*B*T*h*k*d*L + 4*B*T*d*f*L"
_HOFFMANN = f"2*B*T*V*d + {_LAYERS} + 2*B*T*d*V"
_HOFFMANN_PER_TOKEN = "2*V*d + 2*3*d*h*k*L + 4*T*h*k*L + 3*h*T*L + 2*h*k*d*L + 4*d*f*L + 2*d*V"

CHINCHILLA = PublishedTable(
    "chinchilla-f",
    "FLOPs of a training step",
    "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models (arXiv 2203.15556), appendix F",
    "https://arxiv.org/abs/2203.15556",
    "seq_len = T, vocab_size = V, d_model = d, key_size = k, num_heads = h, ffw_size = f; B sequences, all layers",
    _DECODER,
    ("FLOPs of a step",),
    (
        PublishedRow(
            "Embeddings",
            (_flops("2*B*T*V*d", parts.EMBEDDING),),
            "the appendix counts the lookup as a matmul with one-hot vectors; a lookup does no arithmetic",
        ),
        PublishedRow("Attention: key, query and value projections", (_flops("2*3*B*T*d*h*k*L", parts.QKV),)),
        PublishedRow("Attention: key @ query logits", (_flops("2*B*T**2*h*k*L", parts.SCORES),)),
        PublishedRow(
            "Attention: softmax",
            (_flops("3*h*B*T**2*L", parts.SOFTMAX, quantities=("flops.forward.elementwise",)),),
            "the appendix counts three operations a score; torch's reference scales it, finds the maximum, subtracts, takes exp, adds and"
            " divides",
        ),
        PublishedRow("Attention: softmax @ query reductions", (_flops("2*B*T**2*h*k*L", parts.MIX),)),
        PublishedRow("Attention: final linear", (_flops("2*B*T*h*k*d*L", parts.PROJECT),)),
        PublishedRow("Dense block", (_flops("2*B*T*(d*f + d*f)*L", *_FEED_FORWARD),)),
        PublishedRow("Final logits", (_flops("2*B*T*d*V", parts.HEAD),)),
        PublishedRow(
            "Total forward pass",
            (_flops(_HOFFMANN),),
            "beside the matmuls that run: the appendix has the embeddings and the softmax as well",
        ),
        PublishedRow(
            "Backward pass",
            (_flops(f"2*({_HOFFMANN})", quantities=("flops.backward.matmul",)),),
            "twice the forward, beside the matmuls that autograd runs",
        ),
    ),
)

CASSON = PublishedTable(
    "casson",
    "Forward FLOPs per token of a decoder, by both accounts",
    "Adam Casson, Transformer FLOPs",
    "https://www.adamcasson.com/posts/transformer-flops",
    "d_model = d, d_attn = h·k, d_ff = f, n_ctx = T, n_vocab = V, n_layer = L",
    _DECODER,
    ("FLOPs per token",),
    (
        PublishedRow(
            "OpenAI's: 2·N + 2·n_layer·n_ctx·d_attn",
            (_flops(f"2*{_N} + 2*L*T*h*k"),),
            "N without embeddings, no head, and half of the attention matmuls",
        ),
        PublishedRow(
            "DeepMind's: embeddings, layers and logits", (_flops(_HOFFMANN_PER_TOKEN),), "a lookup as a matmul, the whole T², and a softmax"
        ),
    ),
    per_token=True,
)

_REES_LAYER = "4*B*T*d + 6*B*T*d + 2*B*h*T**2 + 4*B*h*T**2 + 2*B*T*d + 2*B*T*d + 4*B*T*d + 2*B*T*d + 8*B*T*d + 8*B*T*d"
_REES_ACTIVATIONS = f"L*({_REES_LAYER}) + 4*B*T*d + 2*B*T*d + 2*B*T*V + 4*B*T*V"
_REES_N = "L*(4*d**2 + 8*d**2 + 4*d) + 2*d + d*V + {n}*d"

REES = PublishedTable(
    "rees",
    "Bytes of training nanoGPT under autocast",
    "erees.dev, Transformer Memory Arithmetic: Understanding all the Bytes in nanoGPT; formulas as in code that adapts its notebook",
    "https://erees.dev/transformer-memory/",
    "weights in fp32, matmuls in 16 bits, norms and softmax in fp32; attention scores are stored, dropout is 0: the nearest step here is"
    " --precision bf16-autocast --attention math",
    _DECODER,
    ("Bytes",),
    (
        PublishedRow(
            "Weights", (_bytes(f"4*({_REES_N})", "parameters.bytes"),), "two norms a layer and a last one, no biases, and a tied head"
        ),
        PublishedRow("Gradients", (_bytes(f"4*({_REES_N})", "gradients.bytes"),)),
        PublishedRow("Adam", (_bytes(f"8*({_REES_N})", "optimizer_state.bytes"),), "two moments; step counters are left out"),
        PublishedRow(
            "Activations",
            (_bytes(_REES_ACTIVATIONS, "activations.bytes"),),
            "each layer: norms, query, key and value, scores and softmax, outputs, and the hidden layer twice; then logits in 16 and 32"
            " bits",
        ),
        PublishedRow(
            "Peak",
            (_bytes(f"16*({_REES_N}) + 16*B*T + {_REES_ACTIVATIONS} + 4*B*T*V", "memory.peak"),),
            "all of these when the backward begins, ids and targets, and the gradient of the logits in 32 bits; masks of attention and"
            " workspaces of cuBLAS, which the code adds, are left out",
        ),
    ),
)

ZERO = PublishedTable(
    "zero-activations",
    "Activations of a GPT-2-like model",
    "Rajbhandari et al. 2019, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models (arXiv 1910.02054), section 3.2",
    "https://arxiv.org/abs/1910.02054",
    "12 · hidden · batch · length · layers elements of 2 bytes, as of --precision bf16-autocast; its example, 1.5e9 parameters at length"
    " 1,024 and batch 32, is 60 GB",
    ("B", "T", "d", "L"),
    ("Bytes",),
    (
        PublishedRow(
            "Activations",
            (_bytes("2*12*d*B*T*L", "activations.bytes"),),
            "a rule in proportion to the width alone: no attention scores, and nothing for the head and the loss",
        ),
    ),
)

TABLES = {table.name: table for table in (KAPLAN, CHINCHILLA, CASSON, REES, ZERO)}
