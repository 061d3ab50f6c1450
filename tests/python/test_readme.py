# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the documents show is what happens."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from test_cli import PROGRAM

import kerf
from kerf import _core
from kerf._call import Result, Signature

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


# A page, and words that its examples print.
PAGES = {
    "docs/fx.md": "submod_0",
    "docs/planning.md": "lower bound",
    "docs/plan_table.md": "bubble",
    "docs/profiling.md": "bwd peak MiB",
    "docs/gpus.md": "predicted step time",
    "docs/tracing.md": "runs as Python",
    "docs/running.md": "busy",
    "docs/training.md": "gradients differ from the model's by",
    "docs/placement.md": "come from disk in every call",
    "docs/dataflow.md": "left",
    "docs/symbolic.md": "call_module",
    "docs/codegen.md": "True",
    "docs/pipe_model.md": "pipeline slowdown",
}


@pytest.mark.filterwarnings("ignore:kerf")
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as for a script in that folder
    names = {"__name__": "example"}
    snippets = blocks(page, "python")
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)
    assert PAGES[page] in capsys.readouterr().out


@pytest.mark.skipif(os.cpu_count() < 2, reason="with one core the plan says that devices share it")
def test_the_page_about_the_table_shows_the_table_that_is_printed(capsys):
    exec(blocks("docs/plan_table.md", "python")[0], {})
    assert capsys.readouterr().out == blocks("docs/plan_table.md", "text")[0]


SHELL = ["README.md", "docs/planning.md"]


@pytest.mark.skipif(PROGRAM is None, reason="the program kerf is not built")
@pytest.mark.parametrize("page", SHELL)
def test_command_lines_work_in_the_order_given(page, tmp_path):
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)]).eval()
    kerf.trace(model, (torch.randn(64, 64),)).save(tmp_path / "model.graph")
    path = os.pathsep.join([str(Path(PROGRAM).parent), os.environ["PATH"]])
    script = "set -ex\n" + "\n".join(blocks(page, "shell"))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert script.count("kerf ") >= 2
    assert done.returncode == 0, done.stderr


def test_graphs_in_the_documents_parse_and_print_back():
    shown = blocks("docs/formats.md", "graph")
    assert shown
    for text in shown:
        graph = _core.parse_graph(text)
        without_comments = re.sub(r"^#.*\n", "", text, flags=re.M)
        assert graph.text() + "end\n" == without_comments


def test_json_in_the_documents_is_json():
    specs = 0
    for text in blocks("docs/formats.md", "json"):
        kind = json.loads(text)["format"]
        if kind == 1:  # of a call or a result, inside a graph
            specs += 1
            assert Result.from_json(text) if "result" in text else Signature.from_json(text)
        else:
            assert kind.startswith("kerf-")
    assert specs == 2


DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
DOCUMENTS += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


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
