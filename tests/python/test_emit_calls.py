# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Calls, results and operators of every kind, in stages that are written into a file.

Models are cut into as many stages as they have legal cuts, up to four, so that borders stand
between most of their operators.
"""

import collections
import dataclasses
import enum

import emit_models
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from comparing import hand_plan, legal_cuts
from emitting import assert_as_model, cut, emitted, in_mode
from torch.utils.checkpoint import checkpoint

import kerf


def written(folder, model, args=(), kwargs=None, count=4, modes=False, seed=0, **options):
    """The stages of a model, which are the model."""
    torch.manual_seed(0)
    kwargs = kwargs or {}
    model = model.eval()
    graph = in_mode(model, modes, args, kwargs, **options)
    other = in_mode(model, False, args, kwargs, **options) if modes else None
    plan = cut(graph, min(count, len(legal_cuts(graph)) + 1), seed)
    module = emitted(folder, graph, plan, other)
    assert_as_model(module, model, args, kwargs)
    return module, module.make_stages(model)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)


class Named(Net):
    def forward(self, x, y, *, scale, reduction="none", mask=None):
        z = (self.a(x) - self.b(y)) * scale
        if mask is not None:
            z = torch.where(mask, z, 0.0)
        return {"none": z, "sum": z.sum(), "mean": z.mean()}[reduction]


def test_keyword_arguments_in_any_order(tmp_path):
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    module, stages = written(tmp_path, Named(), (), {"scale": x * 2, "y": y, "x": x})
    expected = module.run(stages, x=x, y=y, scale=x * 2)
    assert torch.equal(module.run(stages, scale=x * 2, x=x, y=y), expected)
    assert torch.equal(module.run(stages, x, y, scale=x * 2), expected)
    assert torch.equal(module.run(stages, x, scale=x * 2, y=y, reduction="none"), expected)


def test_texts_and_numbers_are_those_of_the_trace(tmp_path):
    x = torch.randn(3, 8)
    call = (x, x), {"scale": 2.5, "reduction": "sum"}
    module, stages = written(tmp_path, Named(), *call)
    with pytest.raises(ValueError, match="argument 'reduction' is 'mean'; expected 'sum'"):
        module.run(stages, x, x, scale=2.5, reduction="mean")
    with pytest.raises(ValueError, match="argument 'scale' is 2.0; expected 2.5"):
        module.run(stages, x, x, scale=2.0, reduction="sum")


def test_optional_inputs_are_there_or_not(tmp_path):
    x, mask = torch.randn(3, 8), torch.rand(3, 8) > 0.5
    module, stages = written(tmp_path, Named(), (x, x), {"scale": x, "mask": None})
    with pytest.raises(ValueError, match="argument 'mask' is .*Tensor; expected None|mask"):
        module.run(stages, x, x, scale=x, mask=mask)
    module, stages = written(tmp_path, Named(), (x, x), {"scale": x, "mask": mask})
    with pytest.raises(ValueError, match="argument 'mask' is missing"):
        module.run(stages, x, x, scale=x)


def test_the_same_tensor_twice(tmp_path):
    x = torch.randn(3, 8)
    module, _ = written(tmp_path, Named(), (x, x), {"scale": x})
    assert list(module.config()["model_inputs"]) == ["x", "y", "scale"]


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Answer:
    y: torch.Tensor
    notes: dict


class Nested(Net):
    def forward(self, pair, extra):
        x = self.a(pair[0]) + pair[1]["y"]
        z = self.b(x) * extra["deep"][0][0]
        return {"both": (x, [z, None, "text", 3]), "pair": Pair(z, x), "rows": pair[0].shape[0]}


def test_nested_tuples_and_dictionaries_in_and_out(tmp_path):
    call = (torch.randn(3, 8), {"y": torch.randn(3, 8)}), {"deep": [(torch.randn(3, 8), 1)]}
    module, stages = written(tmp_path, Nested(), call)
    assert list(module.config()["model_inputs"]) == ["pair_0", "pair_1_y", "extra_deep_0_0"]
    for batch in (1, 5):
        x = torch.randn(batch, 8)
        assert module.run(stages, (x, {"y": x}), {"deep": [(x, 1)]})["rows"] == batch
    x = call[0][0]
    for wrong in (
        ([x, {"y": x}], {"deep": [(x, 1)]}),
        ((x, {"z": x}), {"deep": [(x, 1)]}),
        ((x, {"y": x}), {"deep": [(x, 2)]}),
        ((x, {"y": x}), {"deep": [(x, 1), x]}),
        ((x, {"y": 1.5}), {"deep": [(x, 1)]}),
    ):
        with pytest.raises(ValueError, match="argument '(pair|extra)'.* is .*; expected"):
            module.run(stages, *wrong)


class Answers(Net):
    def forward(self, x):
        y = self.b(self.a(x).relu())
        return Answer(y, {"size": y.shape, "dtype": y.dtype, "device": y.device})


def test_results_of_classes_of_ones_own(tmp_path):
    written(tmp_path, Answers(), (torch.randn(3, 8),))


class Several(Net):
    def forward(self, x):
        a, b, c, d = self.a(x).chunk(4, dim=1)
        values, places = self.b(x).topk(2, dim=1)
        (whole,) = x.split(8, dim=1)
        ordered, _ = torch.sort(a + b, dim=1, descending=True)
        return ordered, c.unbind(1)[1], d, values, places, whole * 2, x.max(1).values


def test_operators_with_several_results(tmp_path):
    for seed in range(3):
        written(tmp_path, Several(), (torch.randn(3, 8),), seed=seed)


class Shapes(Net):
    def forward(self, x, mask):
        y = self.a(x)
        scale = y.mean(1, keepdim=True).expand_as(y)
        y = torch.where(mask, y, scale)
        y = torch.where(y > 0, y, torch.tensor(0.25))
        rows = torch.arange(x.shape[0])
        y = y[rows.flip(0)] + y[:, [0, 2, 4, 6, 1, 3, 5, 7]]
        y = y.view(x.shape[0], 2, 4)[:, :, 1:-1].reshape(-1, 4)
        z = torch.einsum("bi,bj->bij", y, y).flatten(1) ** 2 / (1 + x.shape[0])
        return z.masked_fill(z < 1, float("-inf")), y[..., 0], y[-1], 2 - y, y % 3


def test_views_indices_and_numbers_that_follow_the_batch(tmp_path):
    for seed in range(4):
        module, stages = written(
            tmp_path, Shapes(), (torch.randn(3, 8), torch.rand(3, 8) > 0.5), seed=seed
        )
        for batch in (2, 5):
            x, mask = torch.randn(batch, 8), torch.rand(batch, 8) > 0.5
            assert module.run(stages, x, mask)[0].shape == (batch, 16)


class InPlace(Net):
    """Writes what crosses borders, and reads some of it before."""

    def forward(self, x):
        y = self.a(x)
        before = y * 2
        y.add_(1.0)
        y = y.relu_()
        z = self.b(y)
        z[:, 2:4] = 0.5
        z += before
        return z, y


def test_in_place_at_a_border(tmp_path):
    copies = 0
    for seed in range(6):
        module, _ = written(tmp_path, InPlace(), (torch.randn(3, 8),), seed=seed)
        copies += "others may hold what was given" in open(module.__file__).read()
    assert copies


class WritesInput(Net):
    def forward(self, x):
        y = self.a(x.clone())
        x.mul_(2)
        return self.b(y) + x


def test_inputs_that_are_written_are_the_callers(tmp_path):
    module, stages = written(tmp_path, WritesInput(), (torch.randn(3, 8),))
    assert module.WRITTEN == ["x"]
    stage = next(stage for stage in stages if "x" in stage.INPUTS)
    stage.to("meta")
    with pytest.raises(ValueError, match="writes its input 'x', which is on cpu; expected it on"):
        for one in stages:
            one.to("meta")
        module.run(stages, torch.randn(3, 8))


class Modes(Net):
    def forward(self, x):
        with torch.no_grad():
            scale = self.a(x).abs().amax()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.b(x)
        with torch.autocast("cpu", enabled=False):
            z = self.a(y.float())
        return z / scale


def test_grad_mode_and_autocast_are_those_of_the_model(tmp_path):
    module, _ = written(tmp_path, Modes(), (torch.randn(3, 8),))
    text = open(module.__file__).read()
    assert "with torch.no_grad():" in text
    assert "with torch.autocast(self.device.type, dtype=torch.bfloat16):" in text


class NestedModes(Net):
    """What export's own sub-graphs cannot say: a grad mode that begins inside of autocast."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            with torch.no_grad():
                z = self.b(y)
                with torch.enable_grad(), torch.autocast("cpu", enabled=False):
                    w = self.b(y.float()) * 2
            v = self.b(y)
        return y.float() + z + w * v


def test_grad_modes_inside_of_autocast_are_those_of_the_model(tmp_path):
    """The gradient went through the second layer, too."""
    for seed in range(3):
        written(tmp_path, NestedModes(), (torch.randn(3, 8),), seed=seed)


class StochasticDepth(Net):
    def forward(self, x):
        y = self.a(x)
        if self.training:
            keep = torch.rand(x.shape[0], 1, device=x.device).add(0.8).floor()
            y = y.div(0.8) * keep
        return self.b(x + y)


def test_stochastic_depth_is_there_in_train_mode_only(tmp_path):
    x = torch.randn(3, 8)
    module, _ = written(tmp_path, StochasticDepth(), (x,), count=1, modes=True)
    text = open(module.__file__).read()
    assert "if self.training:" in text and "else:" in text


class Averages(Net):
    """What train mode writes: counters, averages of its own, of a module that is called twice, and
    dropout in place."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.2, inplace=True)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.norm(self.a(self.norm(x)))
        if self.training:
            self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
            self.steps += 1
        y = y - self.mean / (self.steps + 1)
        return self.b(self.drop(y)) + y


def test_train_mode_may_write_buffers_that_both_modes_read(tmp_path):
    module, _ = written(tmp_path, Averages(), (torch.randn(5, 8),), modes=True)
    assert module.MODES == (True, False)


class Paths(Net):
    """Stochastic depth with a mask that is filled in place."""

    def forward(self, x):
        for layer in (self.a, self.b):
            y = layer(x)
            if self.training:
                y = y * y.new_empty(y.shape[0], 1).bernoulli_(0.7).div_(0.7)
            x = x + y
        return x


def test_train_mode_may_fill_memory_of_its_own(tmp_path):
    module, _ = written(tmp_path, Paths(), (torch.randn(5, 8),), modes=True, count=2, seed=0)
    assert module.MODES == (True, False)


def test_a_cut_through_stochastic_depth_is_refused(tmp_path):
    model, args = StochasticDepth().eval(), (torch.randn(3, 8),)
    graph, other = in_mode(model, True, args, {}), in_mode(model, False, args, {})
    refused = 0
    for seed in range(8):
        try:
            module = emitted(tmp_path, graph, cut(graph, 2, seed), other)
        except NotImplementedError as error:
            refused += 1
            assert "ends inside of what the model does in train mode alone" in str(error)
        else:
            assert_as_model(module, model, args, {})
    assert 0 < refused < 8


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)
        )
        self.own = False

    def forward(self, x):
        for layer in self.layers:
            again = self.own and self.training
            x = x + (checkpoint(layer, x, use_reentrant=False) if again else layer(x))
        return x


@pytest.mark.parametrize("own", [False, True])
def test_the_plan_says_what_runs_again(tmp_path, own):
    torch.manual_seed(0)
    model, args = Checkpointed().train(), (torch.randn(3, 8),)
    model.own = own
    graph = kerf.trace(model, args)
    choice = "as_traced" if own else ["layers.0", "layers.2"]
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], training=True, recompute=choice)
    module = emitted(tmp_path, graph, plan)
    text = open(module.__file__).read()
    assert text.count("use_reentrant=False") >= (4 if own else 2)
    assert_as_model(module, model, args, {})


def test_statistics_are_updated_once_where_layers_run_again(tmp_path):
    """A checkpoint of PyTorch alone updates them in forward and, once more, in backward."""
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.2))
        for _ in range(3)
    ]
    model, args = nn.Sequential(*layers), (torch.randn(5, 8),)
    graph, other = in_mode(model, True, args, {}), in_mode(model, False, args, {})
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], training=True, recompute="all")
    module = emitted(tmp_path, graph, plan, other)
    assert "context_fn=keeping(" in open(module.__file__).read()
    assert_as_model(module, model, args, {})


class Counted(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("scale", torch.full((8,), 0.5), persistent=False)
        self.weird = nn.ParameterDict({"a-b": nn.Parameter(torch.randn(8))})

    def forward(self, x):
        self.steps.add_(1)
        y = self.a(x) * self.scale * self.weird["a-b"]
        return self.b(y) / self.steps


def test_buffers_change_and_odd_names_stay(tmp_path):
    module, stages = written(tmp_path, Counted(), (torch.randn(3, 8),))
    assert "weird.a-b" in {name for stage in stages for name in stage.state_dict()}
    assert "scale" not in {name for stage in stages for name in stage.state_dict()}
    with pytest.raises(ValueError, match="'scale' is in no checkpoint, the model computes it"):
        module.make_stages()


class LooksAtNumbers(nn.Module):
    """Its code looks at numbers, and its weight is used after it."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, ids):
        return self.table(ids) * (2 if ids.sum() > 0 else 1)


class TiedToBlock(Net):
    def __init__(self, early):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.around = LooksAtNumbers(self.table)
        self.early = early

    def forward(self, ids):
        x = self.a(self.table(ids)) if self.early else 0
        return F.linear(self.b(self.around(ids) + x), self.table.weight)


def test_a_weight_is_shared_by_a_module_that_runs_as_it_is(tmp_path):
    args = (torch.randint(9, (3, 5)),)
    with pytest.warns(kerf.KerfWarning, match="'around'"):
        module, stages = written(tmp_path, TiedToBlock(early=False), args)
    assert "table_weight" in module.Stage0.OUTPUTS
    names = {name for name, _ in TiedToBlock(early=False).named_parameters()}
    assert {name for stage in stages for name, _ in stage.named_parameters()} == names
    with (
        pytest.warns(kerf.KerfWarning),
        pytest.raises(NotImplementedError, match="stage 0, before"),
    ):
        written(tmp_path, TiedToBlock(early=True), args)


def test_packed_sequences_inside_of_a_module_that_runs_as_it_is(tmp_path):
    model, args, kwargs = emit_models.make_mixed()
    with pytest.warns(kerf.KerfWarning):
        module, _ = written(tmp_path, model, args, kwargs, modes=True)
    assert [path for stage in module.STAGES for path in stage.BLOCKS] == ["router", "packed"]


class GivenLengths(nn.Module):
    """An LSTM over padded sequences of lengths that are given."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x, lengths):
        pack = nn.utils.rnn.pack_padded_sequence
        packed = pack(x, lengths, batch_first=True, enforce_sorted=False)
        packed, (state, _) = self.lstm(packed)
        pad = nn.utils.rnn.pad_packed_sequence
        return pad(packed, batch_first=True, total_length=x.shape[1])[0], state


class AroundLengths(Net):
    def __init__(self):
        super().__init__()
        self.packed = GivenLengths()

    def forward(self, x, lengths):
        y, state = self.packed(self.a(x), lengths)
        return self.b(y), state


def test_packed_sequences_of_lengths_that_are_given(tmp_path):
    """The module was tried by itself with lengths of 0 only, which nobody can pack."""
    call = torch.randn(3, 5, 8), torch.tensor([2, 5, 1])
    with pytest.warns(kerf.KerfWarning, match="'packed'"):
        module, _ = written(tmp_path, AroundLengths(), call, modes=True)
    model = AroundLengths().eval()
    call = torch.randn(2, 5, 8), torch.tensor([4, 3])
    found, expected = module.run(module.make_stages(model), *call), model(*call)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


class Spelt(nn.Module):
    """A block that is called with, and gives, what no tensor is."""

    def forward(self, x, sizes, mode="sum", *, rows=None):
        total = float(x.sum())
        y = x * (2 if total > 1e9 else 1)
        return {"y": y[:, : sizes[0]], mode: (y.sum(1), [None, rows])}


class Around(Net):
    def __init__(self):
        super().__init__()
        self.block = Spelt()

    def forward(self, x):
        found = self.block(self.a(x), (3, 4), "mean", rows=x.shape[0])
        total, (_, rows) = found["mean"]
        return self.b(F.pad(found["y"], (0, 5))) + total[:, None] / rows


def test_blocks_are_called_as_the_model_calls_them(tmp_path):
    with pytest.warns(kerf.KerfWarning):
        module, stages = written(tmp_path, Around(), (torch.randn(3, 8),), modes=True)
    assert '(3, 4), "mean", rows=B)' in open(module.__file__).read()
    model = Around().eval()
    stages = module.make_stages(model)
    x = torch.randn(5, 8)
    assert torch.equal(module.run(stages, x), model(x))


def test_a_graph_of_one_size_has_no_batch(tmp_path):
    module, stages = written(
        tmp_path, Shapes(), (torch.randn(3, 8), torch.rand(3, 8) > 0.5), batch_dims={}
    )
    assert "B" not in module.run.__code__.co_names and module.config()["stages"]
    with pytest.raises(ValueError, match=r"input 'x' is \[4, 8\]; expected \[3, 8\]"):
        module.run(stages, torch.randn(4, 8), torch.rand(4, 8) > 0.5)


class MakesOwn(Net):
    """A stage that is given nothing with the batch in it has to be told."""

    def forward(self, x):
        total = self.a(x).sum(0)
        weights = torch.full((x.shape[0], 8), 0.5)
        return self.b(weights * total)


def test_stages_that_are_given_no_batch_are_told(tmp_path):
    told = 0
    for seed in range(6):
        module, stages = written(tmp_path, MakesOwn(), (torch.randn(3, 8),), seed=seed)
        told += any("B" in stage.INPUTS for stage in stages)
        assert module.run(stages, torch.randn(5, 8)).shape == (5, 8)
    assert told


class Conditioned(Net):
    def forward(self, x):
        if x.shape[0] % 2 == 0:
            return self.a(x)
        return self.b(x)


def test_conditions_on_the_batch_hold(tmp_path):
    module, stages = written(tmp_path, Conditioned(), (torch.randn(4, 8),))
    assert module.run(stages, torch.randn(6, 8)).shape == (6, 8)
    with pytest.raises(ValueError, match=r"the batch is 5; expected one with B % 2 == 0"):
        module.run(stages, torch.randn(5, 8))


def test_stages_in_another_order_than_the_graph(tmp_path):
    """Devices that have several pieces of the model each."""
    torch.manual_seed(0)

    class Branches(Net):
        def forward(self, x):
            left, right = self.a(x), self.b(x)
            left, right = left.relu(), F.dropout(right, 0.5, self.training)
            return F.dropout(left, 0.1, self.training) + right

    model, args = Branches().eval(), (torch.randn(3, 8),)
    graph, other = (in_mode(model, mode, args, {}) for mode in (True, False))
    names = [node["op"].split(".")[1] for node in graph.nodes]
    first = [i for i, name in enumerate(names) if name in ("linear", "relu")][:3:2]
    first += [names.index("relu"), len(names) - 1 - names[::-1].index("dropout")]
    first = sorted({0, names.index("relu"), *first} - {names.index("linear", 1)})
    second = [i for i in range(len(names)) if i not in first]
    plan = hand_plan(graph, [first, second], ["cpu:0", "cpu:1"])
    module = emitted(tmp_path, graph, plan, other)
    assert module.DRAWS_IN_ORDER is False
    module.MODES = (False,)  # in train mode other numbers are drawn
    assert_as_model(module, model, args, {})


class Taken(nn.Module):
    def __init__(self):
        super().__init__()
        self.device = nn.Linear(8, 8)

    def forward(self, x):
        return self.device(x).relu()


def test_names_that_stages_use_themselves_are_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="the model has a 'device', a name that stages"):
        written(tmp_path, Taken(), (torch.randn(3, 8),))


class PlainTensors(Net):
    """Tensors that no module has registered, another in each mode."""

    table = torch.full((8,), 2.0)

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.full((8,), 2.0), torch.full((8,), 3.0)
        self.more = [torch.ones(8)]

    def forward(self, x):
        x = self.a(x) * (self.up if self.training else self.down) * self.table
        return self.b(x) * self.up + self.more[0]


def test_plain_tensors_of_the_model_are_taken_from_it(tmp_path):
    args = (torch.randn(3, 8),)
    module, _ = written(tmp_path, PlainTensors(), args)
    with pytest.raises(ValueError, match="'down' is in no checkpoint, .*; give the model"):
        module.make_stages()
    with pytest.raises(NotImplementedError, match="the train trace has .*aten.mul.Tensor"):
        written(tmp_path, PlainTensors(), args, modes=True)


class Presets(nn.Module):
    """Eval mode leaves out what train mode says: flags, masks, probabilities."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.act = nn.RReLU()

    def forward(self, x):
        return self.act(self.layer(x))


def test_one_mode_may_leave_out_what_the_other_says(tmp_path):
    module, _ = written(tmp_path, Presets(), (torch.randn(3, 5, 8),), modes=True)
    assert module.MODES == (True, False)


class TrainsMore(Net):
    """Train mode looks at memory that is written later, and drops out what nobody uses."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3, inplace=True)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        y = self.a(x)
        seen = self.drop(y * 2.0)
        if self.training:
            self.mean.mul_(0.9).add_(seen.detach().mean(0)).add_(y.detach().mean(0))
        y.add_(x.detach())
        y = F.gelu(y, approximate="tanh" if self.training else "none")
        return self.b(y * self.mean) + F.mse_loss(
            y, x, reduction="sum" if self.training else "mean"
        )


def test_train_mode_may_look_at_more(tmp_path):
    """Its own dropout in place ran in eval mode, too, on a tensor that was not there."""
    module, _ = written(tmp_path, TrainsMore(), (torch.randn(5, 8),), count=1, modes=True)
    assert module.MODES == (True, False)


class CountsInBlock(nn.Module):
    """Runs as it is, and writes statistics in train mode alone."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(x) * (2.0 if x.sum() < 1e9 else 0)


class AroundCounts(Net):
    def __init__(self):
        super().__init__()
        self.block = CountsInBlock()

    def forward(self, x):
        return self.b(self.block(self.a(x)))


def test_modules_that_run_as_they_are_may_write_statistics(tmp_path):
    with pytest.warns(kerf.KerfWarning, match="'block'"):
        module, _ = written(tmp_path, AroundCounts(), (torch.randn(5, 8),), modes=True)
    assert module.MODES == (True, False)


class Scaled(nn.Module):
    def forward(self, x, scale):
        return x * (scale if x.sum() < 1e9 else 0)


class AroundScaled(Net):
    def __init__(self):
        super().__init__()
        self.block = Scaled()

    def forward(self, x):
        return self.b(self.block(self.a(x), 2.0 if self.training else 3.0))


def test_modules_that_are_called_otherwise_in_eval_mode_are_refused(tmp_path):
    """They were called in eval mode as in train mode."""
    with (
        pytest.warns(kerf.KerfWarning, match="'block'"),
        pytest.raises(NotImplementedError, match="Scaled 'block'.* where the eval trace"),
    ):
        written(tmp_path, AroundScaled(), (torch.randn(5, 8),), modes=True)


class How(enum.Enum):
    half = 1
    twice = 2


class Sets(Net):
    """Is called with, and gives, plain data of every kind."""

    def forward(self, x, how, names=frozenset(), text=b""):
        y = self.a(x) * (2 if how is How.twice else 0.5) * len(names)
        return self.b(y), how, {"a", 1}, frozenset(names), set(), text


def test_enums_sets_and_bytes_in_and_out(tmp_path):
    call = (torch.randn(3, 8), How.twice, {"a", (2, 3)}), {"text": b"a\0\xff"}
    module, stages = written(tmp_path, Sets(), *call)
    x = call[0][0]
    module.run(stages, *call[0], **call[1])[2].add("changed")
    assert module.run(stages, *call[0], **call[1])[2] == {"a", 1}
    with pytest.raises(ValueError, match="argument 'how' is How.half; expected twice"):
        module.run(stages, x, How.half, {"a", (2, 3)}, b"a\0\xff")
    with pytest.raises(ValueError, match="argument 'names' is {'a'}; expected"):
        module.run(stages, x, How.twice, {"a"}, b"a\0\xff")


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return self.weight * x.square()


class LongNames(nn.Module):
    """A weight whose name, with the results of a split or a factor, fills a line; and a name like a
    number."""

    def __init__(self):
        super().__init__()
        self.decoder = nn.ModuleDict({"layers": nn.ModuleList([nn.Module()])})
        self.decoder["layers"][0].multihead_attention = nn.Linear(8, 16)
        self.decoder["layers"][0].normalized_after_feedforward = Scale()
        self.l = nn.Linear(8, 8)

    def forward(self, x):
        layer = self.decoder["layers"][0].multihead_attention
        norm = self.decoder["layers"][0].normalized_after_feedforward
        a, b = layer.weight.split([8, 8])
        return self.l(F.linear(x, a) + norm(F.linear(x, b))) * 2


def test_long_names_are_laid_out_as_a_formatter_would(tmp_path):
    module, _ = written(tmp_path, LongNames(), (torch.randn(3, 8),))
    text = open(module.__file__).read()
    assert " l = " not in text
    assert max(map(len, text.splitlines())) <= 100


class LongBlock(Net):
    def __init__(self):
        super().__init__()
        block = nn.ModuleDict({"router_of_the_first": emit_models.Router()})
        self.modules_that_run_as_they_are = block

    def forward(self, x):
        (router,) = self.modules_that_run_as_they_are.values()
        return self.b(router(self.a(x)))


def test_weights_of_modules_that_run_as_they_are_get_no_names(tmp_path):
    """They stood unused at the head of the code."""
    with pytest.warns(kerf.KerfWarning, match="runs as Python"):
        written(tmp_path, LongBlock(), (torch.randn(3, 8),))


class Gate(nn.Module):
    def forward(self, x, *, type, list):
        return x * 2 if x.sum() > 0 else x * len(list)


class OddNames(Net):
    """Names that the written code uses, as modules, values and arguments."""

    def __init__(self):
        super().__init__()
        self.fill, self.complex, self.Tensor = (nn.Linear(8, 8) for _ in range(3))
        self.inner = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("put", "B", "a b")})
        self.gate = Gate()

    def forward(self, x):
        x = self.Tensor(self.complex(self.fill(x)))
        for layer in self.inner.values():
            x = layer(x).clamp(max=x.new_full((8,), 2.5))
        z = torch.complex(self.a(x), self.b(x)) * (1 + 2j)
        return self.gate(z.real, type="a", list=[1, x]) + z.imag


def test_modules_and_values_may_have_names_that_the_code_uses(tmp_path):
    with pytest.warns(kerf.KerfWarning, match="'gate'"):
        written(tmp_path, OddNames(), (torch.randn(3, 8),))


class FillsCache(Net):
    def forward(self, x, cache):
        cache.append(self.a(x))
        return self.b(cache[-1])


def test_calls_that_change_objects_are_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="changes objects that it is called with"):
        written(tmp_path, FillsCache(), (torch.randn(3, 8), []))
