"""Two real gloo ranks, each in a process of its own."""

import datetime
import os
import socket
from multiprocessing import get_context

import torch.distributed as dist

WORLD = 2
context = get_context("forkserver")
context.set_forkserver_preload(["torch_holdout.holdout.door", "torch"])


def on_two_ranks(scenario, *arguments):
    """What ``scenario(rank, *arguments)`` returns on each of two ranks, in order."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.Queue()
    processes = [
        context.Process(target=_joined, args=(rank, port, results, scenario, arguments))
        for rank in range(WORLD)
    ]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return [found[rank] for rank in range(WORLD)]


def _joined(rank, port, results, scenario, arguments):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
        WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD), NODE_RANK="0",
    )  # fmt: skip
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=wait)
    try:
        results.put((rank, scenario(rank, *arguments)))
    finally:
        if dist.is_initialized():  # a framework may have ended it
            dist.destroy_process_group()
