# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn

from kerf._core import Cluster, Graph, Profile

def profile(
    model: nn.Module,
    graph: Graph,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    batch: int | None = None,
    devices: Cluster | Sequence[str] = ("cpu:0",),
    budget_seconds: float = 2.0,
    training: bool = False,
    recompute: bool = False,
    isolate: bool = False,
    cache: str | os.PathLike[str] | Literal[False] | None = None,
) -> Profile: ...
