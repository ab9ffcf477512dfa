"""What a derived peak is timed against: a process in which torch's own memory tracker follows AdamW steps under fake tensors.

Run as ``python -m tests.bench.tracker CONFIG B T STEPS``; prints the peak bytes that it saw in the last of the steps. The optimizer's
state is made in the first, so that a steady step is the second.
"""

from __future__ import annotations

import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import LlamaConfig, LlamaForCausalLM


def peak(path: str, batch: int, length: int, steps: int) -> int:
    """Peak of the last step in bytes."""
    config = LlamaConfig.from_json_file(path)
    with FakeTensorMode():
        model = LlamaForCausalLM(config)
        optimizer = torch.optim.AdamW(model.parameters())
        ids = torch.zeros(batch, length, dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, ids)
        for _ in range(steps):
            with tracker:  # entering forgets the peak so far, not what is alive
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                del loss
            tracker.reset_mod_stats()  # of the modules: without it no further step is taken
        return sum(by_kind["Total"] for by_kind in tracker.get_tracker_snapshot("peak").values())


if __name__ == "__main__":
    print(peak(sys.argv[1], *map(int, sys.argv[2:5])))
