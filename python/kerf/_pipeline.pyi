# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from torch import Tensor, nn

from kerf._core import Graph, Plan, Timeline

class Pipeline:
    plan: Plan
    graph: Graph
    record: bool
    timeline: Timeline | None
    notes: list[str]
    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        *,
        graph: Graph | None = None,
        n_microbatches: int | None = None,
        reduce: Mapping[str, str] | None = None,
        batch_independent: bool = False,
        cuda_graphs: Literal["auto", False] = "auto",
        frozen: bool = False,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def train_step(
        self,
        *args: Any,
        target: Any = None,
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        loss: str = "loss",
        reduction: Literal["mean", "sum"] = "mean",
        weight: Sequence[float] | Callable[[Any], float | Tensor] | None = None,
        **kwargs: Any,
    ) -> Tensor: ...
    def stream(self, batches: Iterable[Any], *, window: int | None = None) -> Iterator[Any]: ...
    def check_train(self, *args: Any, tolerance: float = 1e-3, **kwargs: Any) -> float: ...
    def check(self, *args: Any, tolerance: float = 1e-3, **kwargs: Any) -> float: ...
    def recorded(self) -> list[dict[str, Any]]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
