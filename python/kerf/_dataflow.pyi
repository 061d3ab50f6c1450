# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import nn

from kerf._core import Cluster
from kerf._transfer import Mover

class DataFlow:
    module: nn.Module
    fine_grained: bool
    enable_clone: bool
    inference_only: bool
    layer_gpus: OrderedDict[str, int | str | torch.device]
    output_device: int | str | torch.device
    @property
    def device_ids(self) -> list[int | str]: ...
    def __init__(
        self,
        model: nn.Module,
        output_device: int | str | torch.device | None = None,
        *,
        fine_grained: bool = False,
        inference_only: bool = False,
        enable_clone: bool = False,
        mover: Mover | None = None,
    ) -> None: ...
    @classmethod
    def auto(
        cls,
        model: nn.Module,
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        devices: Cluster | Sequence[str] | str | None = None,
        output_device: int | str | torch.device | None = None,
        fine_grained: bool = True,
        inference_only: bool = False,
        enable_clone: bool = False,
        mover: Mover | None = None,
        **options: Any,
    ) -> Self: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def stream(self, batches: Iterable[Any], *, window: int | None = None) -> Iterator[Any]: ...
    def update_flow(self) -> None: ...
    def construct_module(
        self,
        layer_gpus: Mapping[str, int | str | torch.device] | None = None,
        module: nn.Module | None = None,
    ) -> nn.Module: ...
    def remove(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
