# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Damaged graphs and plans through kerf.Pipeline, many to a process.

    python tests/python/damage.py SEED COUNT SECONDS LOG

runs COUNT cases, SECONDS at most. The LOG names each case before it runs, so that whoever started
the process knows which one ended it. A case is fine when it runs, or is refused with one Kerf line;
anything else is written to the LOG as "bad". Same seed, same cases.
"""

import contextlib
import faulthandler
import json
import random
import re
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import kerf

CASE_SECONDS = 30  # longer is a hang: the process ends with a trace of its threads
REFUSALS = (ValueError, NotImplementedError, OSError, RuntimeError)


class Mixed(nn.Module):
    """Lists, views, writes, indices, optional and named arguments, several results."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.register_buffer("index", torch.tensor([3, 1, 2]))

    def forward(self, x):
        h = self.norm(self.a(x)).clone()
        left, right = h[:, :4], h[:, 4:]
        left.mul_(2)
        h = torch.cat([left, right, *h[:, self.index].split(2, 1)], 1)
        values, places = h.max(1, keepdim=True)
        return {"h": h.to(torch.float64), "best": (values, places), "n": 3}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q, k = self.q(x).view(-1, 2, 4, 1), self.k(x).view(-1, 2, 4, 1)
        out = nn.functional.scaled_dot_product_attention(q, k, q, dropout_p=0.0, is_causal=True)
        return out.transpose(1, 2).reshape(x.shape[0], -1), torch.arange(3, device=x.device)


class WithBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x):
        return self.block(self.first(x)).sigmoid()


def subjects(folder):
    """(model, graph text, plan text, input) for each model."""
    made = []
    x = torch.arange(32.0).reshape(4, 8)
    for cls, blocks in ((Mixed, ()), (Attention, ()), (WithBlock, ("block",))):
        torch.manual_seed(0)
        model = cls().eval()
        graph = kerf.trace(model, x, basic_blocks=blocks)
        graph.save(folder / "g.graph")
        # A split into two stages, where it can be: the plan is damaged too.
        plan = kerf.plan(graph, devices=["cpu:0", "cpu:1"], method="even", n_microbatches=1)
        plan.save(folder / "p.json")
        texts = (folder / "g.graph").read_text(), (folder / "p.json").read_text()
        made.append((model, *texts, x))
    return made


ARGUMENTS = (
    *("none", "true", "3", "-1", "0", "1.5", "nan", "4611686018427387904", "B", "B//0", "2**62*B"),
    *("[]", "[none]", "[[]]", "[1, 2]", "[B, -1]", "[none, 1]", "[[1], 2]", '"text"', '""'),
    *("dtype(f32)", "dtype(i64)", 'device("sofa")', 'device("cpu")', "device()"),
    *("layout(strided)", "layout(sofa)", "memory_format(channels_last)", "complex(1.0, 2.0)"),
)
SPECS = (
    *("{}", "[]", "1", '{"t":0}', '{"t":9}', '{"ref":5}', '{"sym":"B//0"}', '{"dtype":"load"}'),
    *('{"global":"os:system"}', '{"object":"os:_wrap_close","fields":[]}', '{"list":[{"t":0}]}'),
    '{"format":1,"result":{"node":"collections:namedtuple","children":["id"],"context":'
    '{"global":"os:system"}}}',
    *('{"format":1,"result":{"tuple":[{"t":0},{"t":1}]}}', '{"format":1}', '{"format":2}'),
)
_ALL = sorted({n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")})


def damaged_graph(rng, text):
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        step = rng.choice(_GRAPH_STEPS)
        at = rng.randrange(1, max(len(lines) - 2, 2))
        lines[at] = step(rng, lines[at], text)
        if rng.random() < 0.04:
            other = rng.randrange(1, len(lines))
            lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _argument(rng, line, text):
    """Puts another argument in the place of one."""
    head, opened, rest = line.partition("(")
    if not opened or not line.startswith("%"):
        return _token(rng, line, text)
    body, closed, tail = rest.rpartition(")")
    parts = body.split(", ")
    at = rng.randrange(len(parts))
    values = re.findall(r"[%@][\w.]+", text)
    new = rng.choice((*ARGUMENTS, rng.choice(values), f"[{rng.choice(values)}, none]"))
    how = rng.random()
    if how < 0.6:
        name = re.match(r"[a-z_]+=", parts[at])
        parts[at] = (name.group() if name else "") + new
    elif how < 0.75:
        parts.insert(at, new)
    elif how < 0.9:
        del parts[at]
    else:
        parts[at] = f"[{parts[at]}]"
    return head + opened + ", ".join(parts) + closed + tail


def _operator(rng, line, text):
    if rng.random() < 0.5:
        found = re.findall(r"= ([\w.]+)\(", text)
        new = rng.choice(found or ["aten.relu.default"])
    else:
        name, _, overload = rng.choice(_ALL).partition(".")
        new = f"{name.replace('::', '.')}.{overload or 'default'}"
    return re.sub(r"= [\w.]+\(", f"= {new}(", line, count=1)


def _token(rng, line, text):
    tokens = re.findall(r"\w+|\W", line)
    if not tokens:
        return line
    tokens[rng.randrange(len(tokens))] = rng.choice(
        (*ARGUMENTS, "", "&", "~", "%", "f64", "i64", "grad", "B*B", "in", "batch", "0", "7")
    )
    return "".join(tokens)


def _characters(rng, line, text):
    at = rng.randrange(len(line) + 1)
    return (
        line[:at] + chr(rng.choice((0, 34, 40, 41, 92, 233, rng.randrange(1, 0x2FF)))) + line[at:]
    )


def _spec(rng, line, text):
    quoted = json.dumps(rng.choice(SPECS))
    return re.sub(
        r'(in_spec|out_spec)(=| )"(?:[^"\\]|\\.)*"',
        lambda m: f"{m.group(1)}{m.group(2)}{quoted}",
        line,
    )


def _shape(rng, line, text):
    new = rng.choice(("[B, 8]", "[8]", "[]", "[B*B]", "[0]", "[4611686018427387904]", "[-1, B]"))
    return re.sub(r"(?<=: [fiub]\d\d)\[[^\]]*\]", new, line, count=1)


def _drop(rng, line, text):
    return "" if rng.random() < 0.5 else line + "\n" + line


_GRAPH_STEPS = (_argument,) * 6 + (
    _operator,
    _token,
    _token,
    _characters,
    _spec,
    _spec,
    _shape,
    _drop,
)


def damaged_plan(rng, text):
    plan = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        with contextlib.suppress(TypeError, KeyError, AttributeError, IndexError):
            rng.choice(_PLAN_STEPS)(rng, plan)  # the step before may have left no stages
    out = json.dumps(plan)
    if rng.random() < 0.1:
        out = _characters(rng, out, out)
    return out


def _swap_nodes(rng, plan):
    a, b = rng.choice(plan["stages"])["nodes"], rng.choice(plan["stages"])["nodes"]
    if a and b:
        i, j = rng.randrange(len(a)), rng.randrange(len(b))
        a[i], b[j] = b[j], a[i]


def _move_node(rng, plan):
    a, b = rng.choice(plan["stages"])["nodes"], rng.choice(plan["stages"])["nodes"]
    if a:
        node = a.pop(rng.randrange(len(a)))
        if rng.random() < 0.8:
            b.append(node)


def _reorder_stages(rng, plan):
    rng.shuffle(plan["stages"])


def _any_field(rng, plan):
    """Another value somewhere in the file."""
    place = plan
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.85:
            place = place[key]
            continue
        if rng.random() < 0.2 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = rng.choice(
                (0, 1, -1, 2, 3.5, 1e300, 1e-310, 2**20, 2**62, "cpu:1", "", None, [], {}, True)
            )
        return


_PLAN_STEPS = (_swap_nodes, _move_node, _reorder_stages, _any_field, _any_field, _any_field)


def run_case(folder, subject, graph_text, plan_text):
    """Everything a user does with the two files. Raises what the user would see."""
    model, _, _, x = subject
    (folder / "g.graph").write_text(graph_text, errors="surrogateescape")
    graph = kerf.load_graph(folder / "g.graph")
    if plan_text is None:
        plan = kerf.plan(graph, devices=["cpu:0"], n_microbatches=1)
    else:
        (folder / "p.json").write_text(plan_text)
        plan = kerf.load_plan(folder / "p.json")
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        pipe(x)


def judge(error):
    """What is wrong with a refusal; empty: nothing."""
    text = str(error)
    if any(note.startswith("[") and "(opaque)" in note for note in getattr(error, "__notes__", ())):
        return ""  # what a block raises is raised by the call, with a note that says where
    if not isinstance(error, REFUSALS) or type(error) is RecursionError:
        return f"{type(error).__name__}: {text[:300]}"
    if not text.startswith("[") and not getattr(error, "infeasible", None):
        return f"{type(error).__name__} without its room: {text[:300]}"
    return ""


def main(seed, count, seconds, log):
    warnings.simplefilter("ignore")
    folder = Path(log).parent
    models = subjects(folder)
    deadline = time.monotonic() + seconds
    with open(log, "a", buffering=1) as out:
        for case in range(count):
            if time.monotonic() > deadline:
                break
            rng = random.Random(f"{seed}:{case}")
            subject = rng.choice(models)
            graph_text, plan_text = subject[1], None
            if rng.random() < 0.3:
                plan_text = damaged_plan(rng, subject[2])
            else:
                graph_text = damaged_graph(rng, subject[1])
            changed = next(
                (
                    b
                    for a, b in zip(subject[1].split("\n"), graph_text.split("\n"), strict=False)
                    if a != b
                ),
                "the plan",
            )
            out.write(f"case {case} {type(subject[0]).__name__} {changed[:200]!r}\n")
            faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
            try:
                run_case(folder, subject, graph_text, plan_text)
                out.write("ran\n")
            except Exception as error:
                bad = judge(error)
                out.write(f"bad {bad}\n" if bad else "refused\n")
            finally:
                faulthandler.cancel_dump_traceback_later()
        out.write("end\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
