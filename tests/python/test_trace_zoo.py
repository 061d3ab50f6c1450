# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Every model of the zoo, traced once, gives eager's numbers at other batch sizes, bit by bit."""

import gradients
import models
import pytest
import reference
import torch
from comparing import assert_as_eager

from kerf import _core
from kerf._errors import ExportError

ZOO = [*models.FLOOR, *models.OTHERS]
# Models that are not traced in train mode: module and line that choose a path by a random number.
REFUSED_IN_TRAINING = {
    "wav2vec2": r"'wav2vec2\.encoder' at \S+/modeling_wav2vec2\.py:\d+ \(`if not skip_the_layer"
}
# Blocks that run as Python in train mode, and why: their own gradients, a look at a mask's values.
BLOCKS_IN_TRAINING = {
    "bloom": (2, "torch.autograd.Function 'GeLUFunction'"),
    "longformer": (1, "depends on the values inside a tensor"),
}
# PyTorch itself refuses to train it: a value that backward needs is overwritten.
NOT_TRAINABLE = {"view_writer"}

# Samples are proved to be separate in all models but these: contrastive logits and a buffer that
# takes samples mix them, experts sort tokens across samples, and one encoder runs as Python.
NOT_PROVED = {
    "clip": "mixes",
    "slice_writer": "mixes",
    "mixtral": "unknown",
    "longformer": "opaque",
}


@pytest.mark.parametrize("name", ZOO)
def test_graph_gives_eager_numbers_at_any_batch(name):
    model, args, kwargs = models.build(name)
    recording = reference.record(model, args, kwargs)
    assert not recording.graph.is_static
    assert _core.parse_graph(str(recording.graph)) == recording.graph
    found = recording.graph.batch_independence()
    assert found.verdict == NOT_PROVED.get(name, "proved"), found
    assert found.verdict == "proved" or (found.operator and found.source), found
    assert_as_eager(model, recording.run, args, kwargs, batches=(1, 2, 3, 5))


def test_nearly_all_models_are_proved_to_keep_samples_apart():
    print(f"not proved, of {len(ZOO)} models: {NOT_PROVED}")
    assert set(NOT_PROVED) <= set(ZOO)
    assert len(ZOO) - len(NOT_PROVED) >= 36


@pytest.mark.parametrize("name", [n for n in ZOO if n not in REFUSED_IN_TRAINING])
def test_train_mode_is_captured_with_its_gradients(name):
    model, args, kwargs = models.build(name)
    model.train()
    if name in NOT_TRAINABLE:
        graph = reference.record(model, args, kwargs).graph
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients.by_model(model, args, kwargs)
    else:
        graph = gradients.check(model, args, kwargs, relative=1e-5).graph
    assert graph.training
    drops = [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)]
    if any(p > 0 for p in drops):
        assert any(n["random"] for n in graph.nodes)
    count, why = BLOCKS_IN_TRAINING.get(name, (0, ""))
    assert sum(n["op"] == "opaque" for n in graph.nodes) == count
    notes = [note for note in graph.notes if "runs as Python" in note]
    assert len(notes) == count and all(why in note for note in notes)


@pytest.mark.parametrize("name", sorted(REFUSED_IN_TRAINING))
def test_paths_that_random_numbers_choose_are_refused_in_train_mode(name):
    model, args, kwargs = models.build(name)
    with pytest.raises(ExportError, match=REFUSED_IN_TRAINING[name] + r".*config\.layerdrop = 0"):
        reference.record(model.train(), args, kwargs)


def test_nearly_all_models_are_traced_in_train_mode():
    print(f"not traced in train mode, of {len(ZOO)} models: {REFUSED_IN_TRAINING}")
    assert set(REFUSED_IN_TRAINING) | set(BLOCKS_IN_TRAINING) | NOT_TRAINABLE <= set(ZOO)
    assert len(ZOO) - len(REFUSED_IN_TRAINING) >= 40


def test_batch_norm_in_train_mode_writes_its_statistics():
    model, args, kwargs = models.build("resnet")
    recording = reference.record(model.train(), args, kwargs)
    norms = [r for r in recording.nodes if r["op"] == "aten.batch_norm.default"]
    assert norms
    assert all(len(r["written"]) == 2 for r in norms)
    assert_as_eager(model, recording.run, args, kwargs, batches=(models.BATCH,))


def test_tied_weights_are_one_weight_with_two_names():
    model, args, kwargs = models.build("llama_tied")
    graph = reference.record(model, args, kwargs).graph
    tied = [w["names"] for w in graph.weights if len(w["names"]) > 1]
    assert tied == [["model.embed_tokens.weight", "lm_head.weight"]]


def test_names_and_scopes_are_the_models_own():
    model, args, kwargs = models.build("gpt2")
    graph = reference.record(model, args, kwargs).graph
    parameters = dict(model.named_parameters(remove_duplicate=False))
    named = {n for w in graph.weights if w["kind"] == "parameter" for n in w["names"]}
    assert named == set(parameters)
    paths = {path for path, _ in model.named_modules()}
    assert {n["scope"] for n in graph.nodes} <= paths
    assert all(n["source"].startswith("transformers/") for n in graph.nodes)
