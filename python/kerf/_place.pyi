# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from kerf._core import Placement

class Placed:
    placement: Placement
    device_map: dict[str, str | int]
    @property
    def stats(self) -> dict[str, int]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    def remove(self) -> None: ...

def place(
    model: nn.Module,
    max_memory: Mapping[str | int | torch.device, str | int | os.PathLike[str]] | None = None,
    *,
    device_map: Mapping[str, str | int | torch.device] | str | int | torch.device | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    offload_folder: str | os.PathLike[str] | None = None,
    no_split_module_classes: Iterable[str] | None = None,
    disk_bytes_per_second: float | None = None,
    link_bytes_per_second: float | None = None,
    host_computes: bool | float = True,
) -> Placed: ...
def empty_weights() -> AbstractContextManager[None]: ...
