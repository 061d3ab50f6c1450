# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Architectures that generate text, in a third of their bytes on a pretend accelerator."""

import copy

import generators
import pytest
import torch

import kerf

HOW = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def place_small(model, share=3):
    """In a third of its bytes, or in half where tied weights and large modules' own ones stay."""
    for part in (share, 2):
        try:
            limit = total_bytes(model) // part + sum(b.nbytes for b in model.buffers())
            return kerf.place(model, max_memory={0: limit})
        except ValueError as error:
            assert "does not fit" in str(error)
    raise AssertionError("nothing fits")


@pytest.mark.parametrize("name", generators.ALL)
def test_generate_gives_the_same_text(pretend_device, name):
    model, call = generators.build(name)
    expected = copy.deepcopy(model).generate(**call, **HOW)
    placed = place_small(model)
    placement = placed.placement
    assert placement.device_bytes <= placement.memory
    assert any(unit.residence == "streamed" for unit in placement.units)
    assert model.device == torch.device("pretend:0")
    there = {key: value.to("pretend:0") for key, value in call.items()}
    if name == "whisper":  # takes its token ids to where its sounds are
        call = there
    with pretend_device.copy_delay(0.0002):
        assert torch.equal(model.generate(**call, **HOW).cpu(), expected)
    assert torch.equal(model.generate(**there, **HOW).cpu(), expected)
    beams = model.generate(**call, **HOW, num_beams=3).cpu()
    placed.remove()
    assert model.device == torch.device("cpu")
    call = {key: value.cpu() for key, value in call.items()}
    assert torch.equal(model.generate(**call, **HOW, num_beams=3), beams)


@pytest.mark.parametrize("name", generators.ALL)
def test_the_numbers_are_the_same(pretend_device, name):
    model, call = generators.build(name)
    if name in generators.ENCODER_DECODERS:
        call["decoder_input_ids"] = torch.randint(3, 60, (2, 4))
    with torch.no_grad():
        expected = copy.deepcopy(model)(**call)
        placed = place_small(model)
        for _ in range(2):
            found = model(**call)[0]
            assert found.device.type == "cpu" and torch.equal(found, expected[0])
    placed.remove()
