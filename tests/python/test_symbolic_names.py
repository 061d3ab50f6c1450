# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Siu's public names: here, or an error that says what to use."""

from pathlib import Path

import pytest

from kerf import symbolic

PAGE = (Path(__file__).parents[2] / "docs" / "symbolic.md").read_text()
HERE = """ActivationCheckpointCodeGen FlopProfiler MetaInfo MetaTensor MetaTensorMode ShapeProp
flop_count graph_profile_pass register_flop_count_impl register_leaf_module
register_leaf_module_impl register_non_leaf_module register_shape_impl register_tracer_impl
shape_prop_pass sim_env symbolic_profile symbolic_trace"""
OTHERWISE = {
    "ColoAttribute": "ordinary tensors",
    "ColoGraphModule": "torch.fx.GraphModule",
    "ColoProxy": "register_tracer_impl",
    "ColoTracer": "symbolic_trace",
    "CommunicationProfiler": "kerf.plan",
    "MeshConfig": "device_kind=",
    "flop_mapping": "register_flop_count_impl",
}


@pytest.mark.parametrize("name", HERE.split())
def test_names_of_siu_are_here_and_in_the_table(name):
    assert name in symbolic.__all__ and callable(getattr(symbolic, name))
    assert f"`{name}" in PAGE


@pytest.mark.parametrize("name", OTHERWISE)
def test_names_that_stand_for_nothing_here_say_what_to_use(name):
    assert f"`{name}" in PAGE
    with pytest.raises(ImportError, match=rf"\[kerf.symbolic\] there is no {name}; ") as raised:
        exec(f"from kerf.symbolic import {name}")
    assert OTHERWISE[name] in str(raised.value)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        symbolic.nothing  # noqa: B018
