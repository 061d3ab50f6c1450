# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What nodes of an FX module compute and keep, against figures worked out by hand and real runs."""

import copy
import json
import pickle
import threading

import pytest
import torch
from saving import kept_bytes
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import kerf
from kerf.symbolic import (
    FlopProfiler,
    MetaInfo,
    Registry,
    flop_count,
    graph_of,
    graph_profile_pass,
    profile_table,
    register_flop_count_impl,
    register_shape_impl,
    symbolic_profile,
)


def profiled(model, *args, **options):
    return symbolic_profile(torch.fx.symbolic_trace(model), *args, **options)


def sets(gm):
    """(accumulate, output, temp) of every node but the result."""
    infos = [MetaInfo(node) for node in gm.graph.nodes if node.op != "output"]
    return [(i.accumulate_size, i.output_size, i.temp_size) for i in infos]


def mlp(inplace=False):
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(inplace), nn.Linear(32, 4))


class Cast(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16, dtype=torch.bfloat16)

    def forward(self, x):
        return torch.tanh(self.linear(x.to(torch.bfloat16)))


# The worked examples of the specification, in bytes. Two values are corrected: dropout in eval mode
# returns its input, which is no second temporary; and the running count of batch norm is a buffer
# of eight bytes.
EXAMPLES = {
    "perceptron": (
        mlp,
        lambda: torch.randn(8, 16),
        [(512, 512, 0), (512, 0, 1024), (1536, 0, 0), (1536, 0, 128)],
    ),
    "in place": (
        lambda: mlp(inplace=True),
        lambda: torch.randn(8, 16),
        [(512, 512, 0), (1536, 1024, 0), (1536, 0, 0), (1536, 0, 128)],
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        lambda: torch.randn(2, 3, 8, 8),
        [(1536, 1536, 0), (3840, 2304, 0), (3904, 0, 2304), (6208, 0, 0)],
    ),
    "softmax": (
        lambda: nn.Sequential(nn.Linear(16, 16), nn.Softmax(-1)),
        lambda: torch.randn(8, 16),
        [(512, 512, 0), (512, 0, 512), (1024, 0, 0)],
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)),
        lambda: torch.randn(2, 4, 16),
        [(512, 512, 0), (1024, 512, 0), (1088, 0, 512)],
    ),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 4)),
        lambda: torch.randint(10, (4, 6)),
        [(192, 192, 0), (1728, 1536, 0), (1728, 0, 384)],
    ),
    "cast": (
        Cast,
        lambda: torch.randn(8, 16),
        [(0, 0, 512), (256, 256, 0), (256, 0, 256), (512, 0, 0)],
    ),
    "dropout in eval mode": (
        lambda: nn.Sequential(nn.Linear(16, 32), nn.Dropout()).eval(),
        lambda: torch.randn(8, 16),
        [(512, 512, 0), (512, 0, 1024), (512, 0, 0)],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_worked_examples_have_their_bytes(name):
    make, sample, expected = EXAMPLES[name]
    assert sets(profiled(make(), sample())) == expected


def test_weights_are_counted_by_node_and_once_in_total():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
    gm = profiled(model, torch.randn(2, 3, 8, 8))
    conv, bn = (MetaInfo(node) for node in gm.graph.nodes if node.op == "call_module")
    assert (conv.param_size, bn.param_size, bn.buffer_size) == (864, 64, 72)
    shared = nn.Linear(4, 4)
    totals = profile_table(profiled(nn.Sequential(shared, shared), torch.randn(2, 4))).totals
    assert totals["param"] == 80


def test_flops_are_those_worked_out_by_hand():
    gm = profiled(mlp(), torch.randn(8, 16))
    first, relu, second = (MetaInfo(node) for node in gm.graph.nodes if node.op == "call_module")
    assert (first.fwd_mac, first.bwd_mac) == (8 * 16 * 32, 8 * 16 * 32)  # x needs no gradient
    assert (second.fwd_mac, second.bwd_mac) == (8 * 32 * 4, 2 * 8 * 32 * 4)
    assert relu.fwd_flop == relu.bwd_flop == 8 * 32
    assert isinstance(first.fwd_flop, int)


def test_groups_divide_the_flops_of_a_convolution_both_ways():
    conv = nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
    x = torch.randn(2, 64, 8, 8, requires_grad=True)
    macs = 2 * 64 * 9 * 8 * 8
    assert flop_count(conv, x) == (2 * macs, 4 * macs)


class Block(nn.Module):
    """Attention and a perceptron, both with residuals."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).reshape(2, 8, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(2, 8, 32))
        return x + self.down(nn.functional.gelu(self.up(x)))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.b, self.pool = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = torch.relu(self.bn(self.a(x)))
        left, right = (x + self.b(x)).chunk(2, 1)
        x = self.pool(torch.cat([right * left, torch.sigmoid(left)], 1))
        return nn.functional.log_softmax(self.head(x.flatten(1)), -1)


MODELS = {
    "mlp": (mlp, (8, 16)),
    "convolutions": (Convolutions, (2, 3, 8, 8)),
    "attention": (Block, (2, 8, 32)),
}


def really_saved(model, x):
    """Bytes of the storages that autograd keeps on this machine, weights left out."""
    weights = {t.untyped_storage()._cdata for t in [*model.parameters(), *model.buffers()]}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = model(x)
    assert result.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("name", MODELS)
def test_saved_bytes_are_those_of_a_real_forward(name):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape)
    gm = profiled(model, x, device_kind="cpu")
    assert profile_table(gm).totals["saved"] == really_saved(model, x)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_multiply_adds_agree_with_flop_counter_mode(name):
    make, shape = MODELS[name]
    model = make()
    gm = profiled(model, torch.empty(shape, device="meta"))
    # The counter does not know the host's fused attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        result = model(torch.randn(shape))
    assert 2 * profile_table(gm).totals["fwd_mac"] == counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        result.sum().backward()
    if name == "mlp":  # a fused backward makes the scores again: five products, not four
        assert 2 * profile_table(gm).totals["bwd_mac"] == counter.get_total_flops()


class Layout(nn.Module):
    """What follows a convolution copies it, or not, as it lies."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x).relu().flatten(1).sin()


LAYERS = {
    "2d": (lambda: nn.Conv2d(3, 4, 3), (2, 3, 9, 9), torch.channels_last),
    "2d transposed": (lambda: nn.ConvTranspose2d(3, 4, 3), (2, 3, 9, 9), torch.channels_last),
    "3d": (lambda: nn.Conv3d(3, 4, 3), (2, 3, 5, 6, 7), torch.channels_last_3d),
    "one pixel": (lambda: nn.Conv2d(3, 4, 1), (2, 3, 9, 9), torch.channels_last),
    "groups": (lambda: nn.Conv2d(4, 4, 3, groups=4), (2, 4, 9, 9), torch.channels_last),
}


@pytest.mark.parametrize("which", ["input", "weight", "both"])
@pytest.mark.parametrize("name", LAYERS)
def test_convolutions_lie_as_pytorch_lays_them_out(name, which):
    make, shape, last = LAYERS[name]
    model, x = Layout(make()), torch.randn(shape)
    if which != "input":
        model = model.to(memory_format=last)
    if which != "weight":
        x = x.contiguous(memory_format=last)
    gm = symbolic_profile(torch.fx.symbolic_trace(model), x, device_kind="cpu")
    assert profile_table(gm).totals["saved"] == really_saved(model, x)


COMPOSITES = {
    "instance norm": lambda x: nn.functional.instance_norm(x.view(2, 4, 8)),
    "cosine similarity": lambda x: nn.functional.cosine_similarity(x, x + 1),
    "normalize": lambda x: nn.functional.normalize(x) + x.std(1, keepdim=True),
    "bce": lambda x: nn.functional.binary_cross_entropy_with_logits(x, x.detach().sigmoid()),
    "triplet": lambda x: nn.functional.triplet_margin_loss(x, x + 1, x * 2),
    "matrix norm": lambda x: torch.linalg.matrix_norm(x.view(2, 4, 8)),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_operators_made_of_others_keep_what_those_keep(name):
    model = nn.Sequential(nn.Linear(8, 8), Called(COMPOSITES[name]))
    x = torch.randn(8, 8)
    gm = kerf.symbolic_trace(model, meta_args={"input": x})
    symbolic_profile(gm, x, device_kind="cpu")
    assert profile_table(gm).ops_without_rule == []
    assert profile_table(gm).totals["saved"] == really_saved(model, x)


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


BRANCHES = {
    "detached": lambda a, b, x: b(a(x).detach().sin()).cos(),
    "unused": lambda a, b, x: (a(x).exp(), b(x).cos())[1],
    "written into a view": lambda a, b, x: _written(a(x) * 1, b(x).sin()),
    "written into a detached tensor": lambda a, b, x: (_written((a(x)).detach(), x), b(x).sin())[1],
    "both": lambda a, b, x: a(x).sin() + b(a(x).detach()).cos(),
}


def _written(y, z):
    y[:, :4].mul_(z[:, :4])
    return y.cos()


class Branches(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x):
        return self.function(self.a, self.b, x * 2)


@pytest.mark.parametrize("name", BRANCHES)
def test_what_no_result_leads_back_to_is_not_kept(name):
    model, x = Branches(BRANCHES[name]).train(), torch.randn(4, 8)
    gm = kerf.symbolic_trace(model, meta_args={"x": x})
    symbolic_profile(gm, x, device_kind="cpu")
    assert profile_table(gm).totals["saved"] == kept_bytes(model, (x,), {})
    products = {"a": 0, "b": 0}
    for node in gm.graph.nodes:
        if node.op == "call_module" and node.target in products:
            products[node.target] += MetaInfo(node).bwd_mac
    result = model(x)
    with FlopCounterMode(display=False) as counter:
        result.sum().backward()
    assert 2 * sum(products.values()) == counter.get_total_flops()


def test_a_profile_leaves_the_model_alone():
    model = Convolutions()
    before = copy.deepcopy(model.state_dict())
    gm = profiled(model, torch.randn(2, 3, 8, 8))
    for name, tensor in gm.state_dict().items():
        assert torch.equal(tensor, before[name]) and tensor.device.type == "cpu"
    assert all(parameter.grad is None for parameter in gm.parameters())
    assert pickle.loads(pickle.dumps(graph_of(gm))) == graph_of(gm)


def test_the_same_module_is_profiled_again_for_another_batch():
    gm = profiled(mlp(), torch.randn(8, 16))
    symbolic_profile(gm, torch.empty(16, 16, device="meta"))
    assert sets(gm)[0] == (1024, 1024, 0)


def test_checkpoint_regions_free_what_is_computed_again():
    gm = torch.fx.symbolic_trace(mlp())
    for node in gm.graph.nodes:
        if node.op == "call_module":
            node.meta["activation_checkpoint"] = [0]
    symbolic_profile(gm, torch.randn(8, 16))
    assert sets(gm) == [(512, 512, 0), (512, 0, 1024), (512, 0, 1024), (512, 0, 128)]
    assert profile_table(gm).totals["saved"] == 512
    symbolic_profile(gm, torch.randn(8, 16), recompute="none")
    assert profile_table(gm).totals["saved"] == 1536


@torch.library.custom_op("kerf_test_profile::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Custom(nn.Module):
    def forward(self, x):
        return torch.ops.kerf_test_profile.twice(x)


def test_an_operator_without_a_rule_is_listed_or_refused():
    gm = profiled(Custom(), torch.randn(4))
    assert profile_table(gm).unknown_ops == [("kerf_test_profile.twice.default", 1, 1.0)]
    assert "no formula counts the flops of" in str(profile_table(gm))
    with pytest.raises(NotImplementedError, match=r"node 'twice' \(.*twice\) has no flop rule"):
        profiled(Custom(), torch.randn(4), strict=True)


def test_a_flop_rule_holds_where_it_is_registered():
    registry = Registry()

    @register_flop_count_impl(torch.ops.kerf_test_profile.twice, registry=registry)
    def count(x):
        return x.numel(), 2 * x.numel()

    gm = profiled(Custom(), torch.randn(4), strict=True, registry=registry)
    info = MetaInfo(list(gm.graph.nodes)[1])
    assert (info.fwd_flop, info.bwd_flop) == (4, 8)
    assert profile_table(profiled(Custom(), torch.randn(4))).unknown_ops


def test_a_shape_rule_stands_for_the_function():
    registry = Registry()

    @register_shape_impl(nn.functional.relu, registry=registry)
    def shape(x, inplace=False):
        return torch.empty(x.shape[0], 7, device="meta")

    gm = torch.fx.symbolic_trace(lambda x: nn.functional.relu(x))
    symbolic_profile(gm, torch.randn(4, 3), registry=registry)
    assert [tuple(t.shape) for t in MetaInfo(list(gm.graph.nodes)[1]).outputs] == [(4, 7)]


@pytest.mark.parametrize("answer", [3, (1,), ("a", 2), None])
def test_a_flop_rule_of_the_wrong_type_is_refused(answer):
    registry = Registry()
    register_flop_count_impl(torch.ops.kerf_test_profile.twice, registry=registry)(lambda x: answer)
    with pytest.raises(TypeError, match="flop rule of .*twice.* returned .*expected two numbers"):
        profiled(Custom(), torch.randn(4), registry=registry)


def test_figures_of_an_edited_graph_are_refused():
    gm = profiled(mlp(), torch.randn(8, 16))
    nodes = list(gm.graph.nodes)
    with gm.graph.inserting_after(nodes[1]):
        added = gm.graph.call_function(torch.relu, (nodes[1],))
    with pytest.raises(RuntimeError, match="was added after the profile; call symbolic_profile"):
        MetaInfo(added)
    nodes[2].args = (added,)
    with pytest.raises(RuntimeError, match="was changed after the profile"):
        MetaInfo(nodes[2])
    with pytest.raises(RuntimeError, match="after the profile"):
        graph_of(gm)
    assert len(symbolic_profile(gm, torch.randn(8, 16)).graph.nodes) == 6
    assert MetaInfo(added).fwd_flop == 8 * 32


def test_a_record_is_one_object_and_keeps_annotations():
    gm = torch.fx.symbolic_trace(mlp())
    node = list(gm.graph.nodes)[1]
    info = MetaInfo(node)
    assert MetaInfo(node) is info
    info.sharding_spec, info.to_recompute = "S0R", (0, 1)
    with pytest.raises(RuntimeError, match="was not profiled"):
        _ = info.fwd_flop
    symbolic_profile(gm, torch.randn(8, 16))
    assert MetaInfo(node) is info and info.sharding_spec == "S0R"
    assert info.activation_checkpoint == (0, 1)
    assert "fwd_flop=8192" in repr(info)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((), "no value for 'input'; forward takes input"),
        ((1, 2), "was given 2 arguments; forward takes input"),
        (("text",), "argument 'input' is .*expected a tensor"),
    ],
)
def test_wrong_inputs_are_named(args, error):
    with pytest.raises(TypeError, match=error):
        profiled(mlp(), *args)


def test_what_is_no_traced_module_is_refused():
    with pytest.raises(TypeError, match=r"expected a torch.fx.GraphModule; trace it first"):
        symbolic_profile(mlp(), torch.randn(8, 16))
    with pytest.raises(RuntimeError, match="was not profiled"):
        graph_of(torch.fx.symbolic_trace(mlp()))


def test_a_failing_node_is_named_and_nothing_stays_watched():
    gm = torch.fx.symbolic_trace(mlp())
    with pytest.raises(RuntimeError) as raised:
        symbolic_profile(gm, torch.randn(8, 15))
    assert "node '_0'" in "".join(raised.value.__notes__)
    assert profile_table(symbolic_profile(gm, torch.randn(8, 16))).totals["saved"] == 1536


def test_the_table_is_text_json_and_html(capsys):
    gm = profiled(mlp(), torch.randn(8, 16), verbose=True)
    printed = capsys.readouterr().out
    assert "1.50 KiB" in printed and "total" in printed
    table = profile_table(gm, sort="fwd_flop", limit=1)
    assert "call_module" in str(table) and "placeholder" not in str(table)
    assert table._repr_html_().startswith("<table>")
    data = table.json()
    assert len(data["nodes"]) == 5 and json.dumps(data)
    with pytest.raises(ValueError, match="sort is 'flops'; expected one of"):
        profile_table(gm, sort="flops")


def test_flop_count_of_functions_modules_and_rules():
    a = torch.randn(4, 5, requires_grad=True)
    assert flop_count(torch.matmul, a, torch.randn(5, 6)) == (2 * 4 * 5 * 6, 2 * 4 * 5 * 6)
    assert flop_count(mlp(), torch.randn(8, 16)) == (8192 + 256 + 2048, 8448 + 256 + 4128)
    forward, backward = flop_count(torch.where, torch.ones(4) > 0, a[:, 0], a[:, 1])
    assert forward > 0 and backward > 0
    with pytest.raises(TypeError, match="module_or_fn is"):
        flop_count(3)


def _put(buffer, rows):
    buffer[: rows.shape[0]] = rows
    return buffer


class Late(nn.Module):
    """Tensors that require a gradient only after they were made."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(8, 8), function

    def forward(self, x):
        return self.function(self.layer(x), x * 3)


LATE = {
    "written through a view": lambda y, z: _put(torch.zeros(4, 8), y[:2]) * z,
    "and again": lambda y, z: _put(_put(torch.zeros(4, 8), y[:2]) * 1, y[:3]) * z,
    "part of the memory": lambda y, z: _put(torch.zeros(6, 8), y)[:4] * z,
    "required in place": lambda y, z: y + (z.detach() * 2).requires_grad_() * z,
}


@pytest.mark.parametrize("name", LATE)
def test_a_gradient_that_comes_late_counts(name):
    model, x = Late(LATE[name]).train(), torch.randn(4, 8)
    gm = kerf.symbolic_trace(model, meta_args={"x": x})
    symbolic_profile(gm, x, device_kind="cpu")
    assert profile_table(gm).totals["saved"] == kept_bytes(model, (x,), {})
    assert sum(MetaInfo(n).bwd_mac for n in gm.graph.nodes) == 4 * 8 * 8


def test_indices_that_the_trace_knew_have_their_shape():
    def places(x):
        return x[torch.nonzero(torch.arange(4) > 1)[:, 0]].sin()

    x = torch.randn(4, 8, requires_grad=True)
    gm = kerf.symbolic_trace(places, meta_args={"x": x})
    symbolic_profile(gm, x)
    (info,) = [MetaInfo(node) for node in gm.graph.nodes if node.name == "sin"]
    assert [tuple(t.shape) for t in info.outputs] == [(2, 8)]
    torch.testing.assert_close(gm(x), places(x))


def test_modes_around_a_profile_do_not_matter_or_are_refused():
    gm = torch.fx.symbolic_trace(mlp())
    x = torch.randn(8, 16)
    expected = profile_table(symbolic_profile(gm, x)).totals
    for mode in (torch.no_grad(), torch.inference_mode(), torch.device("meta")):
        with mode:
            assert profile_table(symbolic_profile(gm, x)).totals == expected
            assert flop_count(mlp(), x) == (expected["fwd_flop"], expected["bwd_flop"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(NotImplementedError, match="autocast is on for cpu; expected"):
            symbolic_profile(gm, x)
        with pytest.raises(NotImplementedError, match="autocast is on for cpu; expected"):
            flop_count(mlp(), x)
        assert torch.is_autocast_enabled("cpu")


def test_methods_of_modules_are_counted_without_their_data():
    model = mlp()
    assert flop_count(model.forward, torch.randn(8, 16)) == flop_count(model, torch.randn(8, 16))


def test_threads_profile_side_by_side():
    gm, x = torch.fx.symbolic_trace(mlp()), torch.randn(8, 16)
    expected, found = profile_table(symbolic_profile(gm, x)).totals, []

    def work():
        for _ in range(5):
            found.append(profile_table(symbolic_profile(gm, x)).totals)
            # torch.fx's own tracer exchanges Module.__call__ for all threads; this one does not.
            traced = kerf.symbolic_trace(mlp(), meta_args={"input": x})
            found.append(profile_table(symbolic_profile(traced, x)).totals)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 30


def test_a_graph_for_planning_is_not_run():
    gm = profiled(mlp(), torch.randn(8, 16))
    plan = kerf.plan(gm, devices=["cpu:0", "cpu:1"])
    with pytest.raises(ValueError, match="does not say how the model is called; expected one that"):
        kerf.Pipeline(gm, plan)


def test_symbolic_results_plan_too():
    gm = profiled(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), torch.randn(8, 64))
    graph = graph_of(gm)
    assert [node["op"] for node in graph.nodes] == ["aten.linear.default"] * 4
    for given in (graph, gm):
        plan = kerf.plan(given, devices=["cpu:0", "cpu:1"])
        assert len(plan.stages) == 2 and kerf.verify(plan, given) == []
        assert kerf.replan(plan, given, n_microbatches=1).stages[0].nodes == plan.stages[0].nodes
        assert kerf.memory(given).saved == 3 * 8 * 64 * 4  # the model's input aside
        assert kerf.estimate(graph=given, device_kind="cpu") == kerf.estimate(graph, "cpu")
    assert "chain" in str(kerf.compare(gm, ["cpu:0", "cpu:1"], methods=["chain"]))


def test_planning_refuses_modules_without_a_profile_that_holds():
    plain = torch.fx.symbolic_trace(mlp())
    gm = profiled(mlp(), torch.randn(8, 16))
    gm.graph.erase_node([node for node in gm.graph.nodes if node.op == "output"][0])
    gm.graph.output(next(iter(gm.graph.nodes)))
    for verb in (kerf.memory, kerf.estimate, lambda gm: kerf.plan(gm, devices=["cpu:0"])):
        with pytest.raises(RuntimeError, match=r"\[kerf.graph_of\] Sequential was not profiled"):
            verb(plain)
        with pytest.raises(RuntimeError, match="'output.*was added after the profile"):
            verb(gm)


def test_the_passes_of_siu_have_their_names():
    gm = torch.fx.symbolic_trace(mlp())
    profiler = FlopProfiler(gm)
    with pytest.raises(RuntimeError, match="was not profiled"):
        profiler.summary()
    assert profiler.propagate(torch.randn(8, 16)) is gm
    assert profiler.summary() == str(profile_table(gm))
    assert graph_profile_pass(gm, torch.randn(16, 16)) is gm
    assert sets(gm)[0] == (1024, 1024, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_groups_are_known_in_every_dtype(dtype):
    """PyTorch's kernel without data takes bfloat16 alone, those of the host float32 too."""
    ends = torch.tensor([2, 6], dtype=torch.int32)

    def forward(x, w, ends):
        return torch._grouped_mm(x * 2, w, offs=ends)

    given = torch.randn(6, 8, dtype=dtype), torch.randn(2, 8, 16, dtype=dtype), ends
    for tensor in given[:2]:
        tensor.requires_grad_()
    gm = kerf.symbolic_trace(forward, meta_args=dict(zip(("x", "w", "ends"), given, strict=True)))
    torch.testing.assert_close(gm(*given), forward(*given))
    symbolic_profile(gm, *given, device_kind="cpu", strict=True)
    totals = profile_table(gm).totals
    assert (totals["fwd_mac"], totals["bwd_mac"]) == (6 * 8 * 16, 2 * 6 * 8 * 16)
    assert profile_table(gm).ops_without_rule == []
    kept = (6 * 8 + 2 * 8 * 16) * dtype.itemsize + 2 * 4
    assert totals["saved"] == kept
