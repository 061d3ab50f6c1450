# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the documents show is what happens."""

import json
import os
import re
from pathlib import Path

import pytest
import torch

import kerf
from kerf import _core

ROOT = Path(__file__).parents[2]


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / path).read_text(), re.M | re.S)


@pytest.mark.skipif(os.cpu_count() < 2, reason="with one core the plan says that devices share it")
def test_readme_snippets_run_and_print_what_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    first, *others = blocks("README.md", "python")
    exec(first, names)
    assert capsys.readouterr().out == blocks("README.md", "text")[0]
    assert torch.equal(names["y"], names["model"](names["x"]))
    for snippet in others:
        exec(snippet, names)
    assert torch.equal(names["pipe"](names["x"]), names["model"](names["x"]))


def test_the_example_of_the_fx_page_runs(capsys):
    for snippet in blocks("docs/fx.md", "python"):
        exec(snippet, {"__name__": "example"})
    assert "submod_0" in capsys.readouterr().out


def test_the_example_of_the_planning_page_runs(capsys):
    for snippet in blocks("docs/planning.md", "python"):
        exec(snippet, {"__name__": "example"})
    assert "lower bound" in capsys.readouterr().out


def test_graphs_in_the_documents_parse_and_print_back():
    shown = blocks("docs/formats.md", "graph")
    assert shown
    for text in shown:
        graph = _core.parse_graph(text)
        without_comments = re.sub(r"^#.*\n", "", text, flags=re.M)
        assert graph.text() + "end\n" == without_comments


def test_json_in_the_documents_is_json():
    for text in blocks("docs/formats.md", "json"):
        assert json.loads(text)["format"].startswith("kerf-")


DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/fx.md", "docs/planning.md"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_between_documents_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
        assert ((ROOT / name).parent / target).exists(), target


def test_formats_names_every_key_of_the_files(tmp_path):
    text = (ROOT / "docs/formats.md").read_text()
    graph = _core.parse_graph(blocks("docs/formats.md", "graph")[0])
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], {"cpu": "1GiB"}, n_microbatches=2)

    def keys(value):
        if isinstance(value, dict):
            yield from value
            value = value.values()
        if not isinstance(value, str | int | float | None):
            for item in value:
                yield from keys(item)

    plan.save(tmp_path / "plan.json")
    kerf.simulate(plan).save(tmp_path / "timeline.json")
    kerf.estimate(graph).save(tmp_path / "profile.json", graph)
    for path in tmp_path.iterdir():
        for key in keys(json.loads(path.read_text())):
            assert re.search(rf"\b{key}\b", text), f"{path.name}: {key}"
