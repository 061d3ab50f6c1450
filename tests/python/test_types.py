# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The type stubs: strict mypy accepts right calls and refuses wrong ones."""

import ast
import inspect
import re
import shutil
from pathlib import Path

import pytest

import kerf
from kerf import _core

api = pytest.importorskip("mypy.api")
PACKAGE = Path(kerf.__file__).parent

RIGHT = """
import kerf
graph: kerf.Graph = kerf.load_graph("model.graph")
plan: kerf.Plan = kerf.plan(graph, ["cpu:0"], {"cpu:0": "2GiB", 0: 5}, n_microbatches=4)
seconds: float = plan.predicted_step_time + plan.stages[0].time
names: list[str] = plan.stages[0].nodes
kerf.plan(graph, ["cpu:0"], saturate_host=True, node_to_partition={}, partition_to_device={0: "a"})
copies: list[list[str]] = plan.replicas
timeline: kerf.Timeline = kerf.simulate(plan)
text: str = kerf.compare_timelines(timeline, timeline)
profile: kerf.Profile = kerf.estimate(graph, "cpu", batch=3)
profile.save("profile.json", graph)
try:
    kerf.replan(plan, graph, n_microbatches=8)
except kerf.InfeasibleError as error:
    short: int = error.infeasible.short_by
"""

RIGHT_FX = """
from kerf.fx import Device, DAG, Partitioner, PartitionerConfig, PartitionMode
from torch.fx import GraphModule

def split(module: GraphModule) -> DAG:
    config = PartitionerConfig([Device("a", 100, 0)], PartitionMode.kl_based, 2.0)
    partitioner = Partitioner(compat=True, memory="exact")
    cost: float | None = partitioner.cost
    partitioner.graph_module = module
    partitioner.find_single_partition(100, logical_device_id=0)
    number: int = partitioner.create_partition().partition_id
    return partitioner.partition_graph(module, module, config).dag
"""

WRONG = """
import kerf
graph: kerf.Graph = kerf.load_plan("plan.json")
kerf.plan(graph, 3)
kerf.plan(graph, ["cpu:0"]).predicted_step_time.upper()
kerf.simulate(graph)
"""


def options(tmp_path):
    """Strict, but not into PyTorch, which takes mypy half a minute."""
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    files = ["--config-file", tmp_path / "mypy.ini", "--cache-dir", tmp_path / "cache"]
    return ["--strict", "--follow-imports=silent", "--allow-any-unimported", *map(str, files)]


def copied_package(tmp_path):
    """A folder with the package alone: mypy will not have site-packages on its path."""
    folder = tmp_path / "src" / "kerf"
    folder.mkdir(parents=True)
    for file in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi"), PACKAGE / "py.typed"]:
        target = folder / file.relative_to(PACKAGE)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)
    return folder


def check(tmp_path, monkeypatch, text):
    (tmp_path / "user.py").write_text(text)
    monkeypatch.setenv("MYPYPATH", str(copied_package(tmp_path).parent))
    monkeypatch.chdir(tmp_path)
    output, errors, _ = api.run([*options(tmp_path), "user.py"])
    assert not errors
    return re.findall(r"user\.py:(\d+): error", output), output


def test_right_calls_are_accepted(tmp_path, monkeypatch):
    lines, output = check(tmp_path, monkeypatch, RIGHT)
    assert lines == [], output


def test_right_calls_of_the_fx_family_are_accepted(tmp_path, monkeypatch):
    lines, output = check(tmp_path, monkeypatch, RIGHT_FX)
    assert lines == [], output


def test_wrong_calls_are_refused(tmp_path, monkeypatch):
    lines, output = check(tmp_path, monkeypatch, WRONG)
    assert sorted(set(lines)) == ["3", "4", "5", "6"], output


def test_the_package_itself_is_typed(tmp_path):
    folder = copied_package(tmp_path)
    names = ("__init__.py", "_plan.py", "_core.pyi")
    files = [*(str(folder / name) for name in names), *map(str, (folder / "fx").glob("*.py"))]
    output, _, status = api.run([*options(tmp_path), "--allow-subclassing-any", *files])
    assert status == 0, output


def public_parameters(tree):
    """Names of the parameters of all public functions and methods of a module."""
    return {
        node.name: [a.arg for a in node.args.args + node.args.kwonlyargs]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or node.name[0] != "_")
    }


@pytest.mark.parametrize("module", ["_trace", "_profile", "_pipeline", "_dataflow", "_place"])
def test_stubs_have_the_parameters_of_the_functions(module):
    stub = public_parameters(ast.parse((PACKAGE / f"{module}.pyi").read_text()))
    code = public_parameters(ast.parse((PACKAGE / f"{module}.py").read_text()))
    for name, parameters in stub.items():
        assert code[name] == parameters, f"mend {module}.pyi: {name}"


@pytest.mark.parametrize("name", sorted(n for n in dir(_core) if not n.startswith("_")))
def test_stubs_name_everything_in_the_core(name):
    stub = (PACKAGE / "_core.pyi").read_text()
    untyped = {"random_order", "reorder"}
    if name in untyped:
        return
    assert re.search(rf"^(class|def) {name}\b|^{name}: Any", stub, re.M), (
        f"add it to _core.pyi: {name}"
    )
    value = getattr(_core, name)
    if inspect.isclass(value) and f"{name}: Any" not in stub:
        body = re.split(rf"^class {name}\b.*:", stub, flags=re.M)[1].split("\nclass ")[0]
        for member in vars(value):
            if not member.startswith("_"):
                assert re.search(rf"\b{member}\b", body), f"{name}.{member}"
