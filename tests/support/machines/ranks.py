"""Two real gloo ranks: a scenario runs on both, and what each returns comes back."""

import datetime
import os
import socket
from multiprocessing import get_context

import torch.distributed as dist

context = get_context("forkserver")
context.set_forkserver_preload(["torch_holdout.holdout.door", "torch"])


def joined(rank, port, results, scenario, url):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=wait)
    try:
        results.put((rank, scenario(rank, url)))
    finally:
        dist.destroy_process_group()


def on_two_ranks(scenario, url):
    """Return what ``scenario(rank, url)`` gives on each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.Queue()
    processes = [
        context.Process(target=joined, args=(rank, port, results, scenario, url))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return [found[rank] for rank in range(2)]
