"""What a derivation is timed against: a process in which torch's own FLOP counter counts one forward and backward on ``meta``.

Run as ``python -m tests.bench.counter CONFIG B T``; prints the FLOPs counted.
"""

from __future__ import annotations

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM


def count(path: str, batch: int, length: int) -> int:
    """FLOPs of one training step's forward and backward. Mask and positions are given: made by the model, they need real tensors."""
    config = LlamaConfig.from_json_file(path)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
        ids = torch.zeros(batch, length, dtype=torch.long)
        mask = torch.ones(1, 1, length, length, dtype=torch.bool)
        positions = torch.arange(length)[None]
    # The fused kernel has no count on every device; the products of the written-out form are the same without the repeated one.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(input_ids=ids, attention_mask=mask, position_ids=positions, labels=ids, use_cache=False).loss.backward()
    return int(counter.get_total_flops())


if __name__ == "__main__":
    print(count(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
