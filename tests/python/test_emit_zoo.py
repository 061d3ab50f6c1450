# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Stages in files, for the models of the zoo: results, gradients and buffers are the model's."""

import warnings

import models
import pytest
from emitting import assert_as_model, cut, emitted, in_mode

import kerf

ZOO = {**models.FLOOR, **models.OTHERS}
# What is no one code for both modes: other operators in train mode, or no trace of it.
ONE_MODE = {
    "bloom": "opaque",  # an activation with a backward of its own
    "mamba": "aten.select.int",
    "xlnet": "aten.detach.default",
    "wav2vec2": "",
}
SEEDS = {"swin": 1}  # of cuts that leave stochastic depth whole
NO_BACKWARD = {"view_writer"}  # the model itself cannot: it writes what its backward needs
# Gradients of a weight that is used several times are added in another order.
NEARLY = {"bloom"}


def count_of(name):
    return 2 + list(ZOO).index(name) % 3


@pytest.mark.parametrize("name", [name for name in ZOO if name not in ONE_MODE])
def test_stages_of_both_modes_are_the_model(name, tmp_path):
    model, args, kwargs = models.build(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = in_mode(model, True, args, kwargs)
        other = in_mode(model, False, args, kwargs)
    module = emitted(tmp_path, graph, cut(graph, count_of(name), SEEDS.get(name, 0)), other)
    assert module.MODES == (True, False)
    assert_as_model(module, model, args, kwargs, backward=name not in NO_BACKWARD)


@pytest.mark.parametrize("name", [*ONE_MODE, "gpt2", "t5", "resnet"])
def test_stages_of_one_mode_are_the_model(name, tmp_path):
    model, args, kwargs = models.build(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = in_mode(model, False, args, kwargs)
    module = emitted(tmp_path, graph, cut(graph, count_of(name)))
    assert module.MODES == (False,)
    assert_as_model(module, model, args, kwargs, exact=name not in NEARLY)


@pytest.mark.parametrize("name", [name for name, reason in ONE_MODE.items() if reason])
def test_what_differs_between_the_modes_is_named(name, tmp_path):
    model, args, kwargs = models.build(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = in_mode(model, True, args, kwargs)
        other = in_mode(model, False, args, kwargs)
    with pytest.raises(NotImplementedError, match=ONE_MODE[name]):
        kerf.emit(cut(graph, 2), graph, tmp_path / "stages.py", eval_graph=other)
