"""Graphs, equations, signals, and whatever else a package trains."""

from __future__ import annotations

from typing import Any

import torch

from tests.thirdparty.case import Case, mean_square


def _graph(n: Any) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n.N, n.d), torch.randint(0, n.N, (2, n.M)))


_GRAPH = {"N": 30, "M": 100, "d": 16, "f": 24}


class Derivative(torch.nn.Module):
    """The right side of an ordinary differential equation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.Tanh(), torch.nn.Linear(2 * width, width))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> Any:
        return self.net(y)


def _solved(method: str) -> Any:
    def loss(model: Any, y: torch.Tensor) -> Any:
        from torchdiffeq import odeint

        return mean_square(odeint(model, y, torch.linspace(0, 1, 5), method=method))

    return loss


def _reset(model: Any) -> Any:
    """Without what its neurons remember of the step before."""
    from spikingjelly.activation_based import functional

    functional.reset_net(model)
    return model


CASES = (
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "GCNConv",
        _GRAPH,
        lambda m, n: m.GCNConv(n.d, n.f),
        _graph,
        ({"M": 1}, {"d": 24, "f": 36}),
    ),
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "SAGEConv",
        _GRAPH,
        lambda m, n: m.SAGEConv(n.d, n.f),
        _graph,
        ({"N": 1}, {"d": 24, "f": 36}),
    ),
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "GATv2Conv",
        {**_GRAPH, "h": 2},
        lambda m, n: m.GATv2Conv(n.d, n.f, heads=n.h),
        _graph,
        ({"h": 1}, {"d": 24, "f": 36}),
    ),
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "GINConv",
        _GRAPH,
        lambda m, n: m.GINConv(torch.nn.Sequential(torch.nn.Linear(n.d, n.f), torch.nn.ReLU(), torch.nn.Linear(n.f, n.f)), train_eps=True),
        _graph,
        ({"N": 8}, {"d": 24}),
    ),
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "DenseGCNConv",
        {"B": 3, "N": 12, "d": 16, "f": 24},
        lambda m, n: m.DenseGCNConv(n.d, n.f),
        lambda n: (torch.randn(n.B, n.N, n.d), torch.rand(n.B, n.N, n.N)),
        ({"B": 1}, {"d": 24}),
    ),
    Case(
        "torch-geometric",
        "torch_geometric.nn",
        "MLP",
        {"B": 16, "d": 12, "f": 24},
        lambda m, n: m.MLP([n.d, n.f, n.f, 4], norm="layer_norm", dropout=0.1),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"d": 24}),
    ),
    Case(
        "egnn-pytorch",
        "egnn_pytorch",
        "EGNN",
        {"B": 2, "N": 10, "d": 16, "m": 8},
        lambda m, n: m.EGNN(dim=n.d, m_dim=n.m),
        lambda n: (torch.randn(n.B, n.N, n.d), torch.randn(n.B, n.N, 3)),
        ({"B": 1}, {"d": 24, "N": 12}),
    ),
    Case(
        "e3nn",
        "e3nn.nn",
        "FullyConnectedNet",
        {"B": 16, "d": 12, "f": 24},
        lambda m, n: m.FullyConnectedNet([n.d, n.f, 4], torch.nn.functional.silu),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"d": 18, "f": 36}),
    ),
    Case(
        "e3nn",
        "e3nn.o3",
        "Linear",
        {"B": 16},
        lambda m, n: m.Linear("4x0e+2x1o", "8x0e+4x1o"),
        lambda n: (torch.randn(n.B, 10),),
        ({"B": 1}, {"B": 24}),
    ),
    Case(
        "torchdiffeq",
        "torchdiffeq",
        "odeint, rk4",
        {"B": 8, "d": 12},
        lambda m, n: Derivative(n.d),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"d": 24}),
        _solved("rk4"),
    ),
    Case(
        "torchdiffeq",
        "torchdiffeq",
        "odeint, midpoint",
        {"B": 8, "d": 12},
        lambda m, n: Derivative(n.d),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"d": 24}),
        _solved("midpoint"),
    ),
    Case(
        "neuraloperator",
        "neuralop.models",
        "FNO",
        {"B": 2, "S": 16, "c": 8},
        lambda m, n: m.FNO(n_modes=(8, 8), in_channels=1, out_channels=1, hidden_channels=n.c, n_layers=2),
        lambda n: (torch.randn(n.B, 1, n.S, n.S),),
        ({"B": 1}, {"S": 24, "c": 12}),
    ),
    Case(
        "torch-harmonics",
        "torch_harmonics",
        "RealSHT of a linear map",
        {"B": 2, "c": 3},
        lambda m, n: torch.nn.Sequential(torch.nn.Conv2d(n.c, n.c, 1), m.RealSHT(16, 32)),
        lambda n: (torch.randn(n.B, n.c, 16, 32),),
        ({"B": 1}, {"c": 6}),
        lambda model, x: model(x).abs().mean(),
    ),
    Case(
        "siren-pytorch",
        "siren_pytorch",
        "SirenNet",
        {"B": 64, "d": 32, "L": 3},
        lambda m, n: m.SirenNet(dim_in=2, dim_hidden=n.d, dim_out=3, num_layers=n.L),
        lambda n: (torch.randn(n.B, 2),),
        ({"B": 1}, {"d": 48}),
    ),
    Case(
        "ncps",
        "ncps.torch",
        "CfC",
        {"B": 4, "T": 6, "i": 5, "d": 16},
        lambda m, n: m.CfC(n.i, n.d),
        lambda n: (torch.randn(n.B, n.T, n.i),),
        ({"B": 1}, {"d": 24}),
    ),
    Case(
        "ncps",
        "ncps.torch",
        "LTC",
        {"B": 4, "T": 4, "i": 5, "d": 12},
        lambda m, n: m.LTC(n.i, n.d),
        lambda n: (torch.randn(n.B, n.T, n.i),),
        ({"B": 1}, {"d": 18}),
    ),
    Case(
        "pytorch-tcn",
        "pytorch_tcn",
        "TCN",
        {"B": 4, "T": 32, "i": 6, "d": 16},
        lambda m, n: m.TCN(num_inputs=n.i, num_channels=[n.d, n.d, n.d], kernel_size=3, use_norm="weight_norm"),
        lambda n: (torch.randn(n.B, n.i, n.T),),
        ({"B": 1}, {"d": 24, "T": 48}),
    ),
    Case(
        "pytorch-crf",
        "torchcrf",
        "CRF",
        {"B": 4, "T": 7, "c": 5},
        lambda m, n: m.CRF(n.c, batch_first=True),
        lambda n: (torch.randn(n.B, n.T, n.c), torch.randint(0, n.c, (n.B, n.T))),
        ({"B": 1}, {"T": 9}),
        lambda model, x, tags: -model(x, tags, reduction="mean"),
    ),
    Case(
        "pytorch-metric-learning",
        "pytorch_metric_learning.losses",
        "ArcFaceLoss",
        {"B": 8, "d": 16, "V": 10},
        lambda m, n: m.ArcFaceLoss(num_classes=n.V, embedding_size=n.d),
        lambda n: (torch.randn(n.B, n.d), torch.randint(0, n.V, (n.B,))),
        ({"B": 1}, {"d": 24, "V": 12}),
        lambda model, x, y: model(x, y),
    ),
    Case(
        "pytorch-metric-learning",
        "pytorch_metric_learning.losses",
        "NormalizedSoftmaxLoss",
        {"B": 8, "d": 16, "V": 10},
        lambda m, n: m.NormalizedSoftmaxLoss(num_classes=n.V, embedding_size=n.d),
        lambda n: (torch.randn(n.B, n.d), torch.randint(0, n.V, (n.B,))),
        ({"B": 1}, {"d": 24, "V": 12}),
        lambda model, x, y: model(x, y),
    ),
    Case(
        "vector-quantize-pytorch",
        "vector_quantize_pytorch",
        "FSQ",
        {"B": 4, "T": 12, "d": 32},
        lambda m, n: m.FSQ([8, 5, 5, 5], dim=n.d),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        ({"B": 1}, {"d": 48}),
    ),
    Case(
        "vector-quantize-pytorch",
        "vector_quantize_pytorch",
        "VectorQuantize",
        {"B": 4, "T": 12, "d": 32, "V": 64},
        lambda m, n: torch.nn.Sequential(torch.nn.Linear(n.d, n.d), m.VectorQuantize(dim=n.d, codebook_size=n.V)),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        ({"B": 1}, {"d": 48}),
        lambda model, x: model(x)[0].square().mean() + model(x)[2].sum(),
    ),
    Case(
        "entmax",
        "entmax",
        "sparsemax attention",
        {"B": 4, "T": 12, "d": 32},
        lambda m, n: torch.nn.Linear(n.d, n.T),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        ({"B": 1}, {"d": 48}),
        lambda model, x: (__import__("entmax").sparsemax(model(x), dim=-1) @ x).square().mean(),
    ),
    Case(
        "zuko",
        "zuko.flows",
        "MAF",
        {"B": 16, "d": 5, "f": 32},
        lambda m, n: m.MAF(n.d, transforms=2, hidden_features=(n.f, n.f)),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"f": 48}),
        lambda model, x: -model().log_prob(x).mean(),
    ),
    Case(
        "nflows",
        "nflows.transforms",
        "MaskedAffineAutoregressiveTransform",
        {"B": 16, "d": 5, "f": 32},
        lambda m, n: m.MaskedAffineAutoregressiveTransform(n.d, n.f),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"f": 48}),
    ),
    Case(
        "asteroid",
        "asteroid.masknn",
        "TDConvNet",
        {"B": 2, "T": 40, "c": 16, "b": 12, "f": 24},
        lambda m, n: m.TDConvNet(n.c, 2, n_blocks=3, n_repeats=2, bn_chan=n.b, hid_chan=n.f, skip_chan=n.b),
        lambda n: (torch.randn(n.B, n.c, n.T),),
        ({"B": 1}, {"c": 24, "T": 48}),
    ),
    Case(
        "asteroid",
        "asteroid.masknn",
        "DPRNN",
        {"B": 2, "c": 16, "b": 12, "f": 24},
        lambda m, n: m.DPRNN(n.c, 2, bn_chan=n.b, hid_size=n.f, chunk_size=10, n_repeats=1),
        lambda n: (torch.randn(n.B, n.c, 40),),
        ({"B": 1}, {"c": 24}),
    ),
    Case(
        "snac",
        "snac.layers",
        "Encoder",
        {"B": 2, "T": 96, "d": 8},
        lambda m, n: m.Encoder(n.d, strides=[2, 4], depthwise=False, attn_window_size=None),
        lambda n: (torch.randn(n.B, 1, n.T),),
        ({"B": 1}, {"d": 12, "T": 128}),
    ),
    Case(
        "spikingjelly",
        "spikingjelly.activation_based.neuron",
        "LIFNode after a linear map",
        {"B": 4, "d": 16, "f": 24},
        lambda m, n: torch.nn.Sequential(torch.nn.Linear(n.d, n.f), m.LIFNode()),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"d": 24}),
        lambda model, x: _reset(model)(x).square().mean(),
    ),
    Case(
        "nnaudio",
        "nnAudio.features",
        "MelSpectrogram, trainable",
        {"B": 2, "T": 4096},
        lambda m, n: m.MelSpectrogram(n_fft=256, hop_length=64, n_mels=20, trainable_mel=True, trainable_STFT=True, verbose=False),
        lambda n: (torch.randn(n.B, n.T),),
        ({"B": 1}, {"T": 6000}),
    ),
    Case(
        "peft",
        "peft",
        "LoRA of a GPT-2",
        {"B": 2, "T": 12, "d": 32, "r": 4, "V": 100},
        lambda m, n: m.get_peft_model(
            __import__("transformers").GPT2LMHeadModel(
                __import__("transformers").GPT2Config(n_embd=n.d, n_layer=2, n_head=4, vocab_size=n.V, n_positions=64)
            ),
            m.LoraConfig(r=n.r, target_modules=["c_attn"]),
        ),
        lambda n: (torch.randint(0, n.V, (n.B, n.T)),),
        ({"B": 1}, {"d": 48, "r": 6}),
        lambda model, ids: model(input_ids=ids, labels=ids, use_cache=False).loss,
    ),
    Case(
        "tensorly-torch",
        "tltorch",
        "FactorizedLinear",
        {"B": 8},
        lambda m, n: m.FactorizedLinear((4, 4), (4, 6), rank=3, factorization="cp"),
        lambda n: (torch.randn(n.B, 16),),
        ({"B": 1}, {"B": 24}),
    ),
    Case(
        "rotary-embedding-torch",
        "rotary_embedding_torch",
        "RotaryEmbedding, learned",
        {"B": 2, "h": 4, "T": 12, "k": 16},
        lambda m, n: m.RotaryEmbedding(dim=n.k, learned_freq=True),
        lambda n: (torch.randn(n.B, n.h, n.T, n.k),),
        ({"B": 1}, {"k": 24, "T": 16}),
        lambda model, q: model.rotate_queries_or_keys(q).square().mean() + model.rotate_queries_or_keys(2 * q).pow(3).mean(),
    ),
    Case(
        "product_key_memory",
        "product_key_memory",
        "PKM",
        {"B": 2, "T": 12, "d": 32},
        lambda m, n: m.PKM(n.d, heads=2, num_keys=16, topk=4, dim_head=16),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        ({"B": 1}, {"d": 48}),
    ),
    Case(
        "titans-pytorch",
        "titans_pytorch",
        "NeuralMemory",
        {"B": 2, "T": 16, "d": 16},
        lambda m, n: m.NeuralMemory(dim=n.d, chunk_size=4),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        ({"B": 1}, {"d": 24}),
    ),
    Case(
        "xlstm",
        "xlstm",
        "xLSTMBlockStack, mLSTM",
        {"B": 2, "T": 16, "d": 32},
        lambda m, n: m.xLSTMBlockStack(
            m.xLSTMBlockStackConfig(
                mlstm_block=m.mLSTMBlockConfig(mlstm=m.mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=4)),
                context_length=n.T,
                num_blocks=2,
                embedding_dim=n.d,
            )
        ),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        ({"B": 1}, {"T": 24}),
    ),
    Case(
        "gpytorch",
        "gpytorch.kernels",
        "RBFKernel",
        {"B": 20, "d": 4},
        lambda m, n: m.ScaleKernel(m.RBFKernel(ard_num_dims=n.d)),
        lambda n: (torch.randn(n.B, n.d),),
        ({"B": 1}, {"d": 6}),
        lambda model, x: model(x).to_dense().square().mean(),
    ),
)
