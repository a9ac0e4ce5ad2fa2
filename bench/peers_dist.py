# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/compare_dist: DistributedDataParallel over Gloo, one process for each rank, started by
torchrun; with ":fsdp" fully_shard() of each block. usage: peers_dist.py gpt|resnet18[:fsdp] STEPS
[default|channels_last]; rank 0 prints a line of JSON."""
import json
import sys
import time

import peers_torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from philox import centred, words

WARM = 5


def blocks_of(net):
    """What fully_shard() gathers at a time."""
    return [m for m in net.modules() if isinstance(m, (peers_torch.Block, peers_torch.Residual))]


def data(case, ranks):
    import numpy as np
    if case == "gpt":
        x = torch.from_numpy((words(2000, 12 * ranks * 64) % 65).astype(np.int64)).view(12 * ranks, 64)
        return x, torch.from_numpy((words(2001, 12 * ranks * 64) % 65).astype(np.int64)), 12, 12 * 64
    x = torch.from_numpy(centred(2000, 8 * ranks * 3 * 128 * 128)).view(8 * ranks, 3, 128, 128)
    return x, torch.from_numpy((words(2001, 8 * ranks) % 1000).astype(np.int64)), 8, 8


def main():
    case, _, sharding = sys.argv[1].partition(":")
    steps = int(sys.argv[2])
    variant = sys.argv[3] if len(sys.argv) > 3 else "default"
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y, samples, labels = data(case, ranks)
    x, y = x[rank * samples:(rank + 1) * samples].clone(), y[rank * labels:(rank + 1) * labels].clone()
    net = peers_torch.formula_(peers_torch.TRAIN[case][0]())
    if variant == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    if sharding:
        mesh = init_device_mesh("cpu", (ranks,))
        for block in blocks_of(net):
            fully_shard(block, mesh=mesh)
        model = fully_shard(net, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)

    def step():
        opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y)
        loss.backward()
        opt.step()
        return loss.detach()

    losses, seconds = [], []
    for _ in range(WARM):
        loss = step().clone()
        dist.all_reduce(loss)
        losses.append(loss.item() / ranks)
    for _ in range(steps):
        begin = time.perf_counter()
        step().item()
        seconds.append(time.perf_counter() - begin)
    median = sorted(seconds)[len(seconds) // 2]
    if rank == 0:
        print(json.dumps({"ranks": ranks, "threads": 1, "losses": losses, "ms": 1e3 * median,
                          "samples_per_s": samples * ranks / median}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
