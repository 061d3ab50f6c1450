# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What operators write, share and draw: ``kerf.trace`` and ``kerf.fx`` are told the same."""

import pytest
import reference
import torch
import torch.nn.functional as F
from torch import nn
from torch._ops import OpOverload

from kerf import _core, _schema
from kerf.fx._effects import _VIEWS, _of_function, effects
from kerf.fx._modules import Modules

aten = torch.ops.aten


def overloads():
    """Every operator that PyTorch registers as its own."""
    names = {s.name.removeprefix("aten::") for s in torch._C._jit_get_all_schemas()}
    for name in sorted(n for n in names if "::" not in n):
        packet = getattr(aten, name, None)
        yield from (getattr(packet, o) for o in packet.overloads()) if packet else ()


OVERLOADS = list(overloads())


def test_both_faces_know_the_same_writes():
    assert len(OVERLOADS) > 2000
    for op in OVERLOADS:
        rule = _of_function(op)
        assert [rule.names[i] for i in rule.changed] == _schema.operator_of(op).written, op


def test_what_one_face_shares_the_other_shares():
    """A trace sees where results are: it asks less, and never for what fx does not know."""
    more = []
    for op in OVERLOADS:
        rule, operator = _of_function(op), _schema.operator_of(op)
        shared = {rule.names[i] for i in rule.shared}
        assert shared >= set(operator.aliased), op
        if shared - set(operator.aliased) or rule.all_shared:
            more.append(op)
    # Of what lies in lists and dictionaries schemas do not say where it is.
    tensors = [op for op in more if not any(w in str(op._schema) for w in ("[]", "List", "Dict"))]
    packets = {_schema.operator_of(op).packet for op in tensors}
    unsaid = {p for p in packets if _core.hidden_sharing(p) == "none"}
    assert {p.removeprefix("aten.") for p in unsaid} <= _VIEWS
    assert "aten.dropout" in packets - unsaid


def test_what_the_table_says_is_hidden_is_there_and_not_said():
    found = [op for op in OVERLOADS if _core.hidden_writes(_schema.operator_of(op).packet)]
    assert {_schema.operator_of(op).packet for op in found} >= {
        "aten.batch_norm",
        "aten.native_batch_norm",
        "aten.instance_norm",
    }
    for op in found:
        operator = _schema.operator_of(op)
        flag, hidden = _core.hidden_writes(operator.packet)
        assert {flag, *hidden} <= set(operator.parameters), op
        assert not set(hidden) & set(operator.written), op


def test_running_statistics_that_no_schema_protects_are_in_the_table():
    """Whoever takes statistics and a flag that means training changes them, or says so."""
    functional = {"aten._native_batch_norm_legit_functional"}
    for op in OVERLOADS:
        operator = _schema.operator_of(op)
        names = set(operator.parameters)
        if "running_mean" not in names or not names & {"training", "use_input_stats"}:
            continue
        known = _core.hidden_writes(operator.packet) or "running_mean" in operator.written
        assert known or operator.packet in functional, op


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x):
        return self.function(self, self.linear(x))


CALLS = {
    "in place": lambda m, y: y.relu_() + y,
    "through a view": lambda m, y: (y.view(-1).mul_(2), y)[1] + 1,
    "item": lambda m, y: y.index_put_((y[:1, 0].long(),), y[:1]) * 2,
    "batch norm": lambda m, y: m.norm(y),
    "frozen statistics": lambda m, y: F.batch_norm(y, m.mean, m.var, training=False),
    "instance norm": lambda m, y: F.instance_norm(y[:, :, None].expand(-1, -1, 3), m.mean, m.var),
    "dropout": lambda m, y: F.dropout(y, 0.5, m.training),
    "a buffer": lambda m, y: y + m.mean.add_(1),
    "nothing": lambda m, y: y.sigmoid().split(2, 1)[0],
}


def writes_by_fx(model, x):
    module = torch.export.export(model, (x,)).module()
    nodes = [n for n in module.graph.nodes if n.op != "output"]
    found = effects(nodes, Modules(module)).get("mutates", [])
    calls = [nodes[n].target for n, _ in found if isinstance(nodes[n].target, OpOverload)]
    return sorted(map(str, calls))


def writes_by_trace(model, x):
    nodes = reference.record(model, x).nodes
    return sorted(node["op"] for node in nodes for _ in node["written"])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_both_faces_see_the_same_writes_in_a_model(name, training):
    model, x = Call(CALLS[name]).train(training), torch.ones(2, 4)
    assert writes_by_fx(model, x) == writes_by_trace(model, x)


def test_the_models_above_do_write():
    x = torch.ones(2, 4)
    assert writes_by_trace(Call(CALLS["batch norm"]).train(), x) == [
        "aten.add_.Tensor",
        "aten.batch_norm.default",
        "aten.batch_norm.default",
    ]
    assert writes_by_trace(Call(CALLS["instance norm"]), x) == ["aten.instance_norm.default"] * 2


def test_a_probe_and_a_trace_agree_about_random_numbers():
    x = torch.ones(2, 4)
    for p, training in [(0.5, True), (0.5, False), (0.0, True)]:
        drawn = _schema.draws(aten.alpha_dropout.default, (x, p, training), {})
        assert drawn == (training and p > 0)
        model = Call(lambda m, y, p=p: F.alpha_dropout(y, p, m.training)).train(training)
        assert any(n["random"] for n in reference.record(model, x).nodes) == drawn
    assert not _schema.draws(aten.scaled_dot_product_attention.default, (x, x, x), {})
    assert _schema.draws(aten.scaled_dot_product_attention.default, (x, x, x), {"dropout_p": 0.1})
