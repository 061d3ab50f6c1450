# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Architectures that generate text, in a third of their bytes: the weights come from a file."""

import copy

import generators
import pytest
import torch

import kerf

HOW = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def third_of(model):
    return total_bytes(model) // 3 + sum(b.nbytes for b in model.buffers())


@pytest.mark.parametrize("name", generators.ALL)
def test_generate_gives_the_same_text(name, tmp_path):
    model, call = generators.build(name)
    expected = model.generate(**call, **HOW)
    placed = kerf.place(model, max_memory={"cpu": third_of(model), "disk": tmp_path})
    placement = placed.placement
    assert placement.device_bytes <= placement.memory
    assert any(unit.residence == "streamed" for unit in placement.units)
    for _ in range(2):
        assert torch.equal(model.generate(**call, **HOW), expected)
    shorter = {key: value[:1, ..., 2:] for key, value in call.items()}
    text = model.generate(**shorter, **HOW) if name != "whisper" else None
    beams = model.generate(**call, **HOW, num_beams=3)
    placed.remove()
    assert text is None or torch.equal(model.generate(**shorter, **HOW), text)
    assert torch.equal(model.generate(**call, **HOW, num_beams=3), beams)


@pytest.mark.parametrize("name", generators.ALL)
def test_the_numbers_are_the_same(name, tmp_path):
    model, call = generators.build(name)
    if name in generators.ENCODER_DECODERS:
        call["decoder_input_ids"] = torch.randint(3, 60, (2, 4))
    with torch.no_grad():
        expected = copy.deepcopy(model)(**call)
        placed = kerf.place(model, max_memory={"cpu": third_of(model), "disk": tmp_path})
        for _ in range(2):
            found = model(**call)
            assert torch.equal(found[0], expected[0])
    placed.remove()
