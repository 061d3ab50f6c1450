#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Models in less memory than their weights take: against the disk, against computing, and alone.

    python benchmarks/streaming/bench.py disk    # twice the allowed memory, from a file
    python benchmarks/streaming/bench.py unit    # what a unit costs by coming and going

Answers are compared first.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from timing import machine, timed  # noqa: E402

import kerf  # noqa: E402


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def forget(path):
    """Takes a file out of the system's memory, so that it is read from the disk."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def read(path, buffer):
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def disk(options):
    from safetensors.torch import save_model

    torch.manual_seed(0)
    model = nn.Sequential(*[Block(1024) for _ in range(options.layers)]).eval()
    total = sum(p.nbytes for p in model.parameters())
    print(f"{total / 2**20:.0f} MiB of weights, half of them allowed")
    print("tokens  cache   plain model  reading    Kerf    share of the slower")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = pathlib.Path(folder) / "model.safetensors"
        save_model(model, str(path))
        with kerf.empty_weights():
            empty = nn.Sequential(*[Block(1024) for _ in range(options.layers)]).eval()
        placed = kerf.place(empty, max_memory={"cpu": total // 2}, checkpoint=folder)
        share = sum(u.bytes for u in placed.placement.units if u.residence == "streamed") / total
        buffer = bytearray(16 << 20)
        for tokens in (1, 64, 256):
            x = torch.randn(tokens, 1024)
            with torch.no_grad():
                assert torch.equal(placed(x), model(x))
            for cold in (False, True):
                rows = {"plain": [], "reading": [], "kerf": []}
                for _ in range(options.pairs):
                    with torch.no_grad():
                        rows["plain"].append(timed(lambda x=x: model(x)))
                    if cold:
                        forget(path)
                    # What is not resident is all that has to be read.
                    rows["reading"].append(timed(lambda: read(path, buffer)) * share)
                    if cold:
                        forget(path)
                    rows["kerf"].append(timed(lambda x=x: placed(x)))
                plain, reading, took = (statistics.median(rows[k]) for k in rows)
                print(
                    f"{tokens:6}  {'cold' if cold else 'warm'}  {plain * 1e3:9.1f} ms "
                    f"{reading * 1e3:7.1f} ms {took * 1e3:7.1f} ms    "
                    f"{max(plain, reading) / took:.2f}",
                    flush=True,
                )
        placed.remove()


def unit(options):
    """Units without weights to speak of, streamed, against the same model as it is."""
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(200)]).eval()
    x = torch.randn(1, 8)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        plain = statistics.median(timed(lambda: model(x)) for _ in range(50))
        placed = kerf.place(model, max_memory={"cpu": "4KiB", "disk": folder})
        for _ in range(5):
            model(x)
        took = statistics.median(timed(lambda: model(x)) for _ in range(options.pairs * 5))
        streamed = sum(u.residence == "streamed" for u in placed.placement.units)
        placed.remove()
    print(f"{(took - plain) / streamed * 1e6:.1f} us for each of {streamed} streamed units")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["disk", "unit"])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", help="for the file; default: the system's own for such")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(machine())
    {"disk": disk, "unit": unit}[options.what](options)


if __name__ == "__main__":
    main()
