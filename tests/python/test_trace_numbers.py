# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers that a model takes from its tensors: they work, or are refused once, with the line."""

import pytest
import torch
from small import After

import kerf
from kerf import _export


@pytest.fixture
def exports(monkeypatch):
    """How often torch.export was run."""
    runs = []
    original = _export.Exporter.run
    monkeypatch.setattr(
        _export.Exporter, "run", lambda self, *args: runs.append(1) or original(self, *args)
    )
    return runs


@pytest.mark.parametrize("wrap", [lambda m: m, torch.nn.Sequential])
@pytest.mark.parametrize(
    "function",
    [
        lambda y: y.max().item(),
        lambda y: y.tolist(),
        lambda y: (y, y.sum().item()),
        lambda y: {"y": y, "n": int(y.argmax())},
    ],
)
def test_a_number_in_the_result_is_refused_once_with_its_line(exports, wrap, function):
    with pytest.raises(kerf.ExportError, match=r"test_trace_numbers\.py:\d+.*(item|tensor)"):
        kerf.trace(wrap(After(function)).eval(), torch.randn(3, 4))
    assert len(exports) <= 4


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y * y.max().item(),
        lambda y: y + y.sum().item(),
        lambda y: y.max().item() - y,
        lambda y: y / y.max().item(),
        lambda y: y**2 * (y > y.mean().item()),
        lambda y: torch.full_like(y, y.max().item()),
    ],
)
def test_a_number_that_is_used_again_gives_eager_numbers(function):
    model = After(function)
    x = torch.randn(3, 4)
    graph = kerf.trace(model, x)
    pipe = kerf.Pipeline(model, kerf.plan(graph, devices="cpu:2"), graph=graph)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(3, 4)
            torch.testing.assert_close(pipe(x), model(x))


# pytest rewrites the assertions of its own files, so this one stands in no file.
CHECKED = """
def forward(self, x, lengths):
    assert lengths.max().item() <= x.shape[1]
    return self.layer(x)
"""


def test_an_assertion_about_values_is_no_branch():
    made = {}
    exec(compile(CHECKED, "checked.py", "exec"), made)
    checked = type("Checked", (After,), {"forward": made["forward"]})
    model = checked(None).train()  # where nothing may become a block
    graph = kerf.trace(model, (torch.randn(3, 4), torch.tensor([1, 2, 3])))
    assert graph.notes == []
