# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.pipelining as a contender: a process per stage over gloo.

A process runs one thread, as a stage of Kerf's does. The processes stay, so that a step of theirs
can be timed in turn with a step of Kerf's: `step()` returns when every process has finished.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}


def _serve(rank, cuts, make, loss_fn, schedule, n_microbatches, port, asks, answers):
    from torch.distributed import pipelining

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=len(cuts) + 1)
    model, (x,) = make()
    layers = list(model)
    bounds = [0, *cuts, len(layers)]
    part = nn.Sequential(*layers[bounds[rank] : bounds[rank + 1]])
    stage = pipelining.PipelineStage(part, rank, len(cuts) + 1, torch.device("cpu"))
    last = rank == len(cuts)
    runner = getattr(pipelining, SCHEDULES[schedule])(
        stage, n_microbatches, loss_fn=loss_fn, scale_grads=True
    )
    target = torch.zeros(len(x))  # loss_fn takes no notice; pipelining wants one to cut
    while (ask := asks.get()) is not None:
        part.zero_grad()
        more = {"target": target} if last else {}
        runner.step(*([x] if rank == 0 else []), **more)
        if ask == "gradients":
            names = [
                f"{bounds[rank] + i}.{n}"
                for i, m in enumerate(part)
                for n, _ in m.named_parameters()
            ]
            found = [p.grad.numpy() for m in part for _, p in m.named_parameters()]
            answers.put(dict(zip(names, found, strict=True)))
        else:
            answers.put(None)
    dist.destroy_process_group()


class Peer:
    """`make` gives a Sequential and its arguments; `cuts` are the first layers of later stages."""

    def __init__(self, make, cuts, loss_fn, schedule, n_microbatches):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = mp.get_context("spawn")
        self._answers = context.Queue()
        self._asks = [context.Queue() for _ in range(len(cuts) + 1)]
        self._processes = [
            context.Process(
                target=_serve,
                args=(
                    rank,
                    cuts,
                    make,
                    loss_fn,
                    schedule,
                    n_microbatches,
                    port,
                    ask,
                    self._answers,
                ),
                daemon=True,
            )
            for rank, ask in enumerate(self._asks)
        ]
        for process in self._processes:
            process.start()

    def _ask(self, what):
        for asks in self._asks:
            asks.put(what)
        return [self._answers.get(timeout=120) for _ in self._asks]

    def step(self):
        self._ask("step")

    def gradients(self):
        found = {}
        for part in self._ask("gradients"):
            found |= {name: torch.from_numpy(g) for name, g in part.items()}
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for asks in self._asks:
            asks.put(None)
        for process in self._processes:
            process.join(timeout=20)
            process.kill()
