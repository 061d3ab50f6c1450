# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from kerf._core import Graph

def trace(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    batch_dims: int | Mapping[str, int] | None = None,
    basic_blocks: Sequence[Any] = (),
    opaque: str = "auto",
    fold_masks: bool = True,
) -> Graph: ...
