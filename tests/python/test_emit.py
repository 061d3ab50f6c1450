# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Stages written into a file: what a user does with it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import emit_models
import pytest
import torch
from emitting import assert_as_model, cut, emitted, in_mode, load

import kerf

GOLDEN = Path(__file__).parent / "golden"


def both(folder, make, count, seed=0, **options):
    """The model, its call, and its stages in both modes."""
    model, args, kwargs = make()
    graph = in_mode(model, True, args, kwargs, **options)
    other = in_mode(model, False, args, kwargs, **options)
    module = emitted(folder, graph, cut(graph, count, seed), other)
    assert module.MODES == (True, False)
    return module, model, args, kwargs


GOLDEN_FILES = {
    "decoder": emit_models.make_decoder,
    "cnn": emit_models.make_cnn,
    "decoder_with_loss": emit_models.make_decoder_with_loss,
}


@pytest.mark.parametrize("name", GOLDEN_FILES)
def test_files_read_as_before(tmp_path, name):
    """KERF_UPDATE_GOLDEN=1 writes the files instead: read the difference before committing it."""
    module, *case = both(tmp_path, GOLDEN_FILES[name], 3)
    text = Path(module.__file__).read_text()
    golden = GOLDEN / f"{name}_stages.py"
    if os.environ.get("KERF_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert_as_model(load(golden), *case)


def test_stages_share_the_weights_of_the_model_under_their_names(tmp_path):
    module, model, _, _ = both(tmp_path, emit_models.make_cnn, 3)
    stages = module.make_stages(model)
    named = dict(model.named_parameters())
    found = {n: p for stage in stages for n, p in stage.named_parameters()}
    assert found.keys() == named.keys()
    assert all(found[name] is named[name] for name in named)
    buffers = {n: b for stage in stages for n, b in stage.named_buffers()}
    assert buffers.keys() == dict(model.named_buffers()).keys()
    states = [stage.state_dict().keys() for stage in stages]
    assert sorted(k for keys in states for k in keys) == sorted(model.state_dict())


def test_a_checkpoint_goes_into_stages_and_back(tmp_path):
    module, model, args, kwargs = both(tmp_path, emit_models.make_decoder, 3)
    stages = module.make_stages()  # of no model
    state = {name: torch.randn_like(t) for name, t in model.state_dict().items()}
    state["head.weight"] = state["wte.weight"]
    for stage in stages:
        stage.load_state_dict(state)
    back = {name: t for stage in stages for name, t in stage.state_dict().items()}
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)
    model.load_state_dict(back)
    for stage in stages:
        stage.eval()
    assert torch.equal(module.run(stages, *args, **kwargs), model.eval()(*args, **kwargs))
    with pytest.raises(RuntimeError, match="Missing key"):
        stages[0].load_state_dict({})


@pytest.mark.parametrize("assign", [False, True])
def test_a_checkpoint_may_have_one_name_of_a_tied_weight(tmp_path, assign):
    """As safetensors files have: those of transformers' models lack their heads."""
    module, model, args, kwargs = both(tmp_path, emit_models.make_decoder, 3)
    for missing in ("head.weight", "wte.weight"):
        state = {n: torch.randn_like(t) for n, t in model.state_dict().items() if n != missing}
        stages = [stage.eval() for stage in module.make_stages()]
        for stage in stages:
            stage.load_state_dict(state, assign=assign)
        first = stages[0]
        assert first.head.weight is first.wte.weight
        (tied,) = {"head.weight", "wte.weight"} - {missing}
        assert torch.equal(first.wte.weight, state[tied])
        model.load_state_dict({**state, missing: state[tied]})
        assert torch.equal(module.run(stages, *args, **kwargs), model.eval()(*args, **kwargs))


def test_a_tied_weight_has_one_owner_and_all_of_its_gradient(tmp_path):
    module, model, args, kwargs = both(tmp_path, emit_models.make_decoder, 3)
    owners = [s for s in module.STAGES if any(w.name == "wte.weight" for w in s.WEIGHTS)]
    assert owners == [module.Stage0]
    assert "wte_weight" in module.Stage0.OUTPUTS and "wte_weight" in module.Stage2.INPUTS
    assert_as_model(module, model, args, kwargs)


def test_other_batches_run_and_other_shapes_are_refused(tmp_path):
    module, model, _, _ = both(tmp_path, emit_models.make_decoder, 3)
    stages = [stage.eval() for stage in module.make_stages(model)]
    for batch in (1, 3, 7):
        ids = torch.randint(50, (batch, 8))
        assert torch.equal(module.run(stages, ids), model(ids))
    for wrong in (torch.randint(50, (2, 9)), torch.rand(2, 8), torch.randint(50, (2, 8, 1))):
        with pytest.raises(ValueError, match="input 'ids' is .*; expected"):
            module.run(stages, wrong)


def test_arguments_are_matched_by_name_and_others_refused(tmp_path):
    module, model, (ids,), _ = both(tmp_path, emit_models.make_decoder, 2)
    stages = [stage.eval() for stage in module.make_stages(model)]
    assert torch.equal(module.run(stages, ids=ids), model(ids))
    assert torch.equal(module.run(stages, ids, None), model(ids))  # the default
    with pytest.raises(ValueError, match="argument 'targets' is given; expected none"):
        module.run(stages, ids, targets=ids)
    with pytest.raises(ValueError, match="argument 'ids' is missing"):
        module.run(stages)
    with pytest.raises(TypeError, match="given twice"):
        module.run(stages, ids, ids=ids)


def test_one_trace_has_its_own_mode_alone(tmp_path):
    model, args, kwargs = emit_models.make_decoder()
    graph = kerf.trace(model, args, kwargs)
    module = emitted(tmp_path, graph, cut(graph, 2))
    assert module.MODES == (False,)
    assert "in eval mode, in which it was traced, and refuse the other" in module.__doc__
    stages = module.make_stages(model)
    assert not any(stage.training for stage in stages)
    with pytest.raises(ValueError, match=r"\[stages\] train mode, and the model was traced in the"):
        stages[0].train()
    assert_as_model(module, model, args, kwargs)


class Chooses(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x).relu() if self.training else self.a(x).tanh()


def test_modes_with_other_operators_are_refused(tmp_path):
    model, args = Chooses().eval(), (torch.randn(2, 4),)
    graph, other = in_mode(model, True, args, {}), in_mode(model, False, args, {})
    plan = cut(graph, 2)
    with pytest.raises(NotImplementedError, match="relu.* where the eval trace has .*tanh"):
        kerf.emit(plan, graph, tmp_path / "stages.py", eval_graph=other)
    with pytest.raises(NotImplementedError, match="not of both modes"):
        kerf.emit(plan, graph, tmp_path / "stages.py", eval_graph=graph)
    assert not list(tmp_path.iterdir())


def test_files_are_not_overwritten_unless_told(tmp_path):
    model, args, kwargs = emit_models.make_cnn()
    graph = kerf.trace(model, args, kwargs)
    path = tmp_path / "stages.py"
    path.write_text("precious")
    with pytest.raises(OSError, match="is there already; expected a new file"):
        kerf.emit(cut(graph, 2), graph, path)
    assert path.read_text() == "precious"
    kerf.emit(cut(graph, 2), graph, path, overwrite=True)
    assert "class Stage1" in path.read_text()


def test_a_plan_of_another_graph_is_refused(tmp_path):
    one, other = emit_models.make_cnn(), emit_models.make_decoder()
    plan = cut(kerf.trace(*one), 2)
    with pytest.raises(ValueError):
        kerf.emit(plan, kerf.trace(*other), tmp_path / "stages.py")


def test_modules_run_as_they_are_where_no_trace_can_hold_them(tmp_path):
    model, args, kwargs = emit_models.make_mixed()
    with pytest.warns(kerf.KerfWarning):
        graph = kerf.trace(model, args, kwargs)
    module = emitted(tmp_path, graph, cut(graph, 3))
    assert "Module 'router' runs as it is" in module.__doc__
    assert_as_model(module, model, args, kwargs)
    with pytest.raises(ValueError, match=r"run as they are in the model; give the model"):
        module.make_stages()
    states = [key for stage in module.make_stages(model) for key in stage.state_dict()]
    assert sorted(states) == sorted(model.state_dict())


def test_config_follows_the_batch(tmp_path):
    module, *_ = both(tmp_path, emit_models.make_decoder, 3)
    two, five = module.config(2), module.config(5)
    assert two["model_inputs"]["ids"]["shape"] == [2, 8]
    assert five["model_inputs"]["ids"]["shape"] == [5, 8]
    assert two["batch_dim"] == 0 and two["stage_to_device_map"] == [0, 1, 2]
    for number, stage in five["stages"].items():
        for name, row in stage["inputs"].items():
            batched = row["shape"] != two["stages"][number]["inputs"][name]["shape"]
            assert batched == row["is_batched"], name
            source = row["created_by"]
            rows = five["model_inputs"] if source < 0 else five["stages"][source]["outputs"]
            assert number in rows[name]["used_by"]
            assert rows[name]["shape"] == row["shape"] and rows[name]["dtype"] == row["dtype"]
            assert source < 0 or rows[name]["req_grad"] == row["req_grad"]


def test_the_file_needs_no_kerf_and_checks_itself(tmp_path):
    module, *_ = both(tmp_path, emit_models.make_decoder_with_loss, 3)
    (tmp_path / "kerf.py").write_text("raise ImportError('kerf is not here')\n")
    (tmp_path / "mine.py").write_text(Path(emit_models.__file__).read_text())

    def check(case):
        return subprocess.run(
            [sys.executable, module.__file__, "--check", case],
            cwd=tmp_path,
            env={"PATH": "", "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )

    done = check("mine:make_decoder_with_loss")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train: 2 results equal" in done.stdout and "eval: 2 results equal" in done.stdout
    assert "the stages are the model" in done.stdout
    for case in ("mine", "mine:make_nothing", ":make_cnn", ".mine:make_cnn", "mine:ids", "no:no"):
        done = check(case)
        assert done.returncode == 2 and "expected package.module:make_case" in done.stderr, case
        assert "Traceback" not in done.stderr
    for case, expected in (
        ("Cnn", "expected the model, its positional"),
        ("make_cnn", "the model has None as"),
    ):
        done = check(f"mine:{case}")
        assert done.returncode == 2 and expected in done.stderr and "Traceback" not in done.stderr
    text = Path(module.__file__).read_text()
    broken = text.replace("F.gelu(", "F.relu(", 1)
    assert broken != text
    Path(module.__file__).write_text(broken)
    done = check("mine:make_decoder_with_loss")
    assert done.returncode == 1 and "the stages differ by more than" in done.stdout


def test_run_takes_all_stages_in_their_order(tmp_path):
    module, model, args, kwargs = both(tmp_path, emit_models.make_cnn, 3)
    stages = module.make_stages(model)
    for others in (stages[:2], stages[::-1], [stages[0], *stages], []):
        with pytest.raises(ValueError, match="other stages than Stage0 to Stage2 in this order"):
            module.run(others, *args, **kwargs)


def test_moving_a_stage_moves_its_weights_and_constants(tmp_path):
    module, model, args, kwargs = both(tmp_path, emit_models.make_cnn, 2)
    stage = module.make_stages(model)[0]
    assert stage.device == torch.device("cpu")
    stage._apply(torch.clone)  # as a move to another device does: other memory
    for name, tensor in [*stage.named_parameters(), *stage.named_buffers()]:
        assert tensor is find(model, name), name
    assert_as_model(module, model, args, kwargs)  # statistics too
    stage.to("meta")
    assert stage.device == torch.device("meta")
    assert all(p.is_meta for p in stage.parameters())


def find(model, path):
    owner, _, name = path.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def test_another_dtype_is_refused(tmp_path):
    """The code names dtypes of the trace, as in finfo(x.dtype).min and zeros(dtype=x.dtype)."""
    module, model, args, kwargs = both(tmp_path, emit_models.make_decoder, 2)
    stages = [stage.eval() for stage in module.make_stages(model)]
    for convert in (torch.nn.Module.half, torch.nn.Module.double):
        with pytest.raises(ValueError, match="torch.float32 would become another dtype; expected"):
            convert(stages[0])
    stages[0].float()
    assert torch.equal(module.run(stages, *args, **kwargs), model(*args, **kwargs))


def test_a_model_that_is_not_tied_is_refused(tmp_path):
    module, model, _, _ = both(tmp_path, emit_models.make_decoder, 3)
    model.head.weight = torch.nn.Parameter(model.wte.weight.detach().clone())
    with pytest.raises(ValueError, match="'head.weight' and 'wte.weight' are two tensors"):
        module.make_stages(model)


def test_the_check_sees_differences_of_small_numbers(tmp_path):
    module, *_ = both(tmp_path, emit_models.make_cnn, 2)
    small = {"a": torch.full((2,), 2e-7), "rounding": torch.tensor([1e-16])}
    other = {"a": torch.full((2,), 1e-7), "rounding": torch.tensor([3e-16])}
    assert module.difference(small, small) == 0
    assert module.difference(other, small) == pytest.approx(0.5)
    assert module.difference({**small, "rounding": other["rounding"]}, small) < 1e-5
    z = torch.tensor([1 + 1j])
    assert module.difference({"z": z.conj()}, {"z": z}) > 1
    assert module.difference({"a": torch.tensor([torch.nan])}, {"a": torch.ones(1)}) == torch.inf


class Odd(torch.nn.Module):
    """Has a buffer of flags, writes an input, and can have no gradients."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.register_buffer("mask", torch.tensor([True, False, True, False]))

    def forward(self, x):
        y = self.a(x) * self.mask
        x.mul_(2)
        return y


def test_the_check_compares_flags_inputs_and_models_without_a_backward(tmp_path, capsys):
    model, args = Odd().eval(), (torch.randn(2, 4),)
    graph = kerf.trace(model, args)
    module = emitted(tmp_path, graph, cut(graph, 2))
    assert module.check(lambda: (model, args, {}))
    said = capsys.readouterr().out
    assert "eval: no gradients, the model's own backward fails: one of the variables" in said
    assert "eval: 2 results equal, 0 gradients equal, 1 buffers equal" in said
    text = Path(module.__file__).read_text()
    broken = text.replace("x *= 2", "x *= 3")
    assert broken != text
    (tmp_path / "broken.py").write_text(broken)
    assert not load(tmp_path / "broken.py").check(lambda: (model, args, {}))
    module.MODES, module.DRAWS_IN_ORDER = (True,), False
    assert not module.check(lambda: (model, args, {}))
    assert "nothing was compared" in capsys.readouterr().out


def is_preset(text, value):
    """Is this how a table row writes what a schema has as its default?"""
    if text.startswith("torch."):
        return str(value) == text or text.endswith(("_format", "strided"))
    written = {"none": 0, "mean": 1, "sum": 2}
    found = ast.literal_eval(text)
    if isinstance(value, list) and not isinstance(found, list):
        return all(item == found for item in value)
    return found == value or written.get(found) == value


def test_spellings_have_the_parameters_of_pytorchs_schemas():
    """A row that named them in another order, or left out another value, would call something
    else."""
    table = kerf._core.spelling_table()
    assert len(table) > 150
    for op, parameters in table:
        namespace, packet, overload = op.split(".")
        schema = getattr(getattr(getattr(torch.ops, namespace), packet), overload)._schema
        said = [text.partition("=")[::2] for text in parameters.split(" ")]
        assert [name for name, _ in said] == [a.name for a in schema.arguments], op
        for (name, presets), argument in zip(said, schema.arguments, strict=True):
            if presets and argument.has_default_value():
                value = argument.default_value
                assert any(is_preset(p, value) for p in presets.split("|")), (op, name, value)
