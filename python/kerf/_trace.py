# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``kerf.trace``: from a module and an example call to a graph."""

import contextlib
import dataclasses
import re
import time

import sympy
import torch
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from kerf import _blame, _opaque
from kerf._arguments import checked, shown
from kerf._backward import check_hooks
from kerf._batch import example_tensors, find_batch
from kerf._call import Result, Signature, element_bytes
from kerf._capturable import check_batch, check_call, check_model, closed_blocks
from kerf._chance import RandomPath
from kerf._code import all_code, names_used, numbers_in, outside_of, put_back_plain
from kerf._errors import ExportError, warn
from kerf._export import Exporter
from kerf._flatten import FlatProgram, UnsupportedCall, ambient_modes
from kerf._learning import Learning
from kerf._lower import Lowering, UnknownSize, module_of, source_of, strip_model
from kerf._places import find_places, is_real, one_memory, remove_fakes
from kerf._plain import describe, same
from kerf._probe import ProbeError
from kerf._reads import weight_ids
from kerf._restore import (
    attributes_restored,
    buffers_restored,
    contents_restored,
    numbers_restored,
)
from kerf._state import (
    GRADIENTS,
    LOOSE,
    OUTSIDE,
    REQUIRE_GRAD,
    ModelState,
    refuse_state,
    surroundings,
)
from kerf._symbols import NotAnExpression, Symbols


@dataclasses.dataclass
class TraceTimes:
    """Seconds spent in ``torch.export`` and in Kerf itself."""

    export_seconds: float
    kerf_seconds: float


@checked("kerf.trace")
def trace(
    model,
    args=(),
    kwargs=None,
    *,
    batch_dims=None,
    basic_blocks=(),
    opaque="auto",
    fold_masks=True,
):
    """Captures ``model(*args, **kwargs)`` as a graph.

    model         an unmodified ``nn.Module``; its mode (train or eval) is kept
    args, kwargs  an example call; a single tensor stands for one positional argument. Values do
                  not matter, shapes and dtypes do
    batch_dims    the batch dimension, if the default (the first dimension that most inputs share)
                  is wrong: an int for all tensor inputs, or a dict from input name to int; an
                  empty dict makes a graph of one fixed size
    basic_blocks  modules to keep whole, each as one node: classes, class names or paths
    opaque        "auto": modules that do not export also become such blocks; "never": an error
    fold_masks    attention masks that no call can change are dropped if they let everything
                  through, and become is_causal=True if they are causal; False keeps them

    Runs on fake tensors: no weights are moved, nothing is computed (except constant masks, and
    opaque blocks whose code needs real numbers). Raises ExportError for a model that cannot be
    captured. What you need to know about the graph is shown as a KerfWarning, and kept in
    ``graph.notes``.
    """
    graph, _ = trace_timed(
        model,
        args,
        kwargs,
        batch_dims=batch_dims,
        basic_blocks=basic_blocks,
        opaque=opaque,
        fold_masks=fold_masks,
    )
    for note in graph.notes:
        if batch_dims != {} or not note.startswith("batch is static"):  # as was asked for
            warn(note)
    return graph


def trace_timed(model, args=(), kwargs=None, *, fold_masks=True, **options):
    """``trace``, without its warnings, and how long it took: ``(graph, TraceTimes)``."""
    from kerf import _core

    started = time.perf_counter()
    tracer = Tracer(_core, model, args, kwargs, **options)
    graph = tracer.run()
    if fold_masks:
        from kerf import _torch

        graph = _torch.fold_masks(graph)
    exporting = tracer.exporter.seconds
    return graph, TraceTimes(exporting, time.perf_counter() - started - exporting)


class Tracer:
    """One trace. ``core`` is the module with Capture and the argument markers."""

    def __init__(
        self, core, model, args, kwargs, *, batch_dims=None, basic_blocks=(), opaque="auto"
    ):
        _check_opaque(opaque)
        check_model(model)
        if model.training:
            check_hooks(model)
        self.core = core
        self.model = model
        self.may_hide = opaque == "auto"
        self.device = traced_device(model, args, kwargs)
        args = args if isinstance(args, tuple) else (args,)
        check_call(args, kwargs or {})
        self.signature, tensors = Signature.of_call(model, args, kwargs or {}, self.device)
        self.tensors = _apart([_without_inference(tensor) for tensor in tensors])
        self.batch = find_batch(self.tensors, self.signature.paths, batch_dims)
        check_batch(self.batch, self.signature.paths)
        closed = closed_blocks(model)
        self.basic_blocks = _opaque.find_blocks(model, [*basic_blocks, *closed])
        self.blocks = _opaque.Blocks(model, self.basic_blocks)
        self.exporter = Exporter(model, self.signature, self.blocks, self.device)
        self.state = ModelState(model, {"cpu", self.device.type})
        self.exporter.around = self.state.reads.recording
        self.learning = Learning(model) if model.training else None
        if self.learning is not None:
            self.exporter.learning = self.learning.watched
        self.learning_loose = {}  # name of a constant -> where the code finds it
        self.notes = []
        self.globals = {}  # name -> value, described: what the code could read, before it ran
        self.gradients = {}  # attributes that say what the graph depends on
        self.unsteady = set()  # names of those that it changes
        self.closed = {path: _block_note(path, reason) for path, reason in closed.items()}
        self.hidden = dict(self.closed)  # path of a block -> why it is one

    def run(self):
        # Where a forward writes into a tensor that is no module's, so does its trace.
        weights = weight_ids(self.model)
        places = find_places(self.model)
        registered = [*self.model.parameters(), *self.model.buffers()]
        tensors = [place.tensor for place in places.values()]
        loose = [t for t in tensors if id(t) not in weights and is_real(t)]
        self.globals = numbers_in(outside_of(self.model, all_code(self.model)))
        with contents_restored(self.model), numbers_restored(loose):
            try:
                return self._with_gradients(self._steady(self._run()))
            finally:
                remove_fakes(self.model, places, registered)

    def _with_gradients(self, graph):
        """Notes gradient mode, and which weights require gradients, where the graph depends on
        them: where the code asks for them, and gives another graph when they are others."""
        names = names_used(self.model, self.state.code_read(self.blocks.covers))
        mode = torch.is_grad_enabled()
        if names & _GRADIENT_MODE and self._differs(graph, torch.set_grad_enabled(not mode)):
            self.gradients[GRADIENTS] = mode
        if "requires_grad" in names and self._differs(graph, _gradients_flipped(self.model)):
            self.gradients[REQUIRE_GRAD] = True
        return self._lower(self._export()) if self.gradients else graph

    def _differs(self, graph, otherwise):
        """Is the graph another one in a context?"""
        try:
            with otherwise:
                other = self._lower(self._export())
        except Exception:
            return True
        return _form(other) != _form(graph)

    def _steady(self, graph):
        """Refuses a model whose result depends on a global that its code changes; puts it back."""
        found = outside_of(self.model, all_code(self.model))
        now = numbers_in(found)
        changed = [n for n, was in self.globals.items() if n in now and not same(now[n], was)]
        if not changed:
            return graph
        self.unsteady.update(changed)
        try:
            again = self._run()
        finally:
            for name in changed:
                put_back_plain(found[name][1], self.globals[name])
        if again.hash != graph.hash:
            raise ExportError(
                f"[trace] forward changes the global '{changed[0]}', and its result depends on it; "
                "expected a forward that does not change what it reads; keep it in a buffer "
                "(register_buffer)"
            )
        return again

    def _run(self):
        # Each turn hides a module or fixes the batch of an input: there are only so many.
        while True:
            try:
                graph = self._lower(self._export())
                if self.state.settled(graph, self._hide_state, self._second_call):
                    _check_loose_writes(graph)
                    self._check_loose_gradients(graph)
                    return graph
            except UnknownSize as error:
                if free_unbacked_symbols(error.expression):
                    self._hide_node(error.node, str(error))
                else:
                    reason = (
                        f"{error.node.target} takes {error.expression}, which is not a whole number"
                    )
                    self._fix_batch(range(len(self.tensors)), [reason])
            except UnsupportedCall as error:
                self._hide_node(error.node, str(error), error.why)
            except _NotBatched as error:
                self._fix_batch(error.inputs, error.reasons)
            except NotAnExpression:  # in a tensor's place in its memory
                self._fix_batch(
                    range(len(self.tensors)),
                    ["inputs overlap in memory, at offsets that do not follow from the batch"],
                )

    def _fix_batch(self, inputs, reasons):
        """Goes on with the example's size as the batch of these inputs."""
        if self.batch.without(inputs).dims == self.batch.dims:
            raise self._refusal(_blame.Blame("", "", "", reasons[-1]))
        self.notes.extend(reasons)
        self.batch = self.batch.without(inputs)
        # What a symbolic batch made of the blocks need not be so for a number.
        self.blocks.paths = set(self.basic_blocks)
        self.hidden = dict(self.closed)
        if not self.batch.size:
            self.notes[-1] = "batch is static: " + self.notes[-1]

    # Export, with blocks made opaque until it succeeds

    def _export(self):
        first_blame = None
        while True:
            try:
                program = self.exporter.run(self._examples(), self.batch)
            except _opaque.ProbeNeeded as need:
                self._probe(need.signature, first_blame)
                continue
            except RandomPath as found:
                raise self._random_refusal(found.blame) from None
            except Exception as error:
                if not self._confirm(first_blame) or self._hide_own_backwards():
                    continue  # it failed on what was supposed about a block, or on what is none yet
                modules = {id(m.__dict__): path for path, m in self.model.named_modules()}
                blame = _blame.find_blame(error, modules)
                self._check_chance(error, blame)
                first_blame = first_blame or blame
                self._hide(blame.module, first_blame)
                continue
            if self._confirm(first_blame) and not self._hide_own_backwards():
                self._check_draws()
                return program

    def _second_call(self, around):
        # A call that changes its arguments may not go twice with the same ones.
        with contextlib.suppress(Exception, _opaque.ProbeNeeded, RandomPath):
            self.exporter.second_call(self._examples(), self.batch, around)

    def _examples(self):
        return example_tensors(self.tensors, self.batch, self.device)

    def _probe(self, signature, blame):
        try:
            self.blocks.probe(signature, self.batch.traced_size)
        except ProbeError as error:
            reason = f"the block cannot run by itself: {error}"
            if blame is None:
                blame = _blame.Blame(signature.path, "", "", reason)
            else:
                path = signature.path
                reason = f"{blame.reason}, and module '{path}' cannot run as one block: {error}"
            blame = dataclasses.replace(blame, reason=reason, advice=error.advice)
            self._hide(_parent(signature.path), blame)

    def _confirm(self, blame):
        """Probes the blocks that were only supposed to do what another did: did they?"""
        supposed, self.blocks.supposed = self.blocks.supposed, {}
        for signature in supposed:
            self._probe(signature, blame)
        return all(self.blocks.known.get(s) == outcome for s, outcome in supposed.items())

    def _hide(self, path, blame):
        """Makes the module at ``path`` opaque, or one around it when it is already."""
        path = self._around(path)
        if not path or not self.may_hide:
            if self.batch.size and not blame.data_dependent:
                raise self._static(f"{blame.reason}{_where(blame)}")
            raise self._refusal(blame) from None
        self.blocks.add(path)
        self.hidden[path] = _block_note(path, f"{blame.reason}{_where(blame)}")

    def _around(self, path):
        """The smallest module around that can become opaque and is not yet; "" for none."""
        while path and (self.blocks.covers(path) or not self._is_callable(path)):
            path = _parent(path)
        return path

    def _is_callable(self, path):
        holders = (torch.nn.ModuleList, torch.nn.ModuleDict)
        return not isinstance(self.model.get_submodule(path), holders)

    def _hide_node(self, node, what, why=""):
        """Hides a node that no graph can hold, with all that share its data-dependent sizes."""
        path, _ = module_of(node)
        location = source_of(node.meta.get("stack_trace") or "")
        reason = f"{node.target} gives {what}, which depends on the values inside a tensor"
        if getattr(node.target, "__module__", "").startswith("torch._functorch"):
            reason = "functions of torch.func, such as vmap, are not operators"
        elif why:
            reason = f"{node.target} {why}"
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            reason = f"{node.target} is control flow over the values inside a tensor"
        self._hide(path, _blame.Blame(path, location, "", reason, data_dependent=True))

    def _hide_state(self, path, attribute):
        """Hides a module whose result depends on an attribute that its own code changes."""
        if not path or not self.may_hide:
            raise refuse_state(path, attribute, self._fix())
        reason = f"it reads attribute '{attribute}' and changes it"
        self._hide(path, _blame.Blame(path, "", "", reason))

    # What only train mode asks for

    def _hide_own_backwards(self):
        """Hides modules whose code has gradients of its own. Were there any?"""
        if self.learning is None:
            return False
        backwards = self.learning.backwards
        before = set(self.blocks.paths)
        hooked = [b for b in backwards.of_modules() if not self.blocks.covers(b.module)]
        found, backwards.found = [*backwards.found, *hooked], []
        for blame in found:
            # Found inside a block: it was not entered as one, and a larger one is needed.
            if _opaque.covers(before, blame.module) or not self.blocks.covers(blame.module):
                self._hide_own_backward(blame)
        for path in self.blocks.paths - before:
            inside = (b for b in found if _opaque.covers([path], b.module))
            reasons = dict.fromkeys(f"{b.reason}{_where(b)}" for b in inside)
            self.hidden[path] = _block_note(path, ", and ".join(reasons))
        return self.blocks.paths != before

    def _hide_own_backward(self, blame):
        path = self._around(blame.module)
        if not path or not self.may_hide:
            otherwise = "allow opaque='auto'" if path else "put it into a submodule"
            raise _refused(
                blame,
                f"has gradients of its own, which a graph does not hold: {blame.reason}",
                "in train mode operators with the gradients that PyTorch gives them",
                f"{otherwise}, so that it runs as one opaque block, or remove it",
            )
        self.blocks.add(path)

    def _check_loose_gradients(self, graph):
        """Raises ExportError for a tensor that would get a gradient and is no module's: the graph
        holds its numbers, and nobody would look for its gradient there."""
        for node in graph.nodes if self.learning is not None else ():
            for name in node["inputs"] if node["grad_enabled"] else ():
                if name in self.learning_loose:
                    raise ExportError(
                        f"[trace] {_owner(node['scope'])}{_at(node['source'])} uses the tensor "
                        f"'{self.learning_loose[name]}', which requires a gradient and which no "
                        "module has registered; expected in train mode parameters of modules, "
                        "since others would get no gradient; register it (an attribute that is an "
                        "nn.Parameter, nn.ParameterList, nn.ModuleList), or, if it does not learn, "
                        "set requires_grad_(False) or use it under torch.no_grad()",
                        location=node["source"],
                        module=node["scope"],
                    )

    def _check_chance(self, error, blame):
        """Raises ExportError when it was a random number that a trace could not get past."""
        found = self.learning and self.learning.chance.find_blame(error, blame)
        if found:
            raise self._random_refusal(found) from None

    def _random_refusal(self, blame):
        return _refused(
            blame,
            f"cannot be captured: {blame.reason}",
            "one path for all calls",
            "set the probability to 0 (transformers: config.layerdrop = 0)" + _or_whole(blame),
        )

    def _check_draws(self):
        """Raises ExportError when the model's code draws from Python's or NumPy's generator."""
        if self.learning is None or not self.learning.draws.seen:
            return
        watched, self.exporter.learning = self.exporter.learning, self.learning.draws.located
        try:
            with contextlib.suppress(Exception, _opaque.ProbeNeeded):
                self.exporter.run(self._examples(), self.batch)
        finally:
            self.exporter.learning = watched
        blame = self.learning.draws.blame
        if blame is not None:  # else another thread has drawn
            raise _refused(
                blame,
                f"cannot be captured: {blame.reason}, and every call would get the numbers of the "
                "trace",
                "in train mode numbers of torch's generators",
                "draw them with torch.rand and the like" + _or_whole(blame),
            )

    def _refusal(self, blame):
        expected = "code that takes the same path for all inputs"
        fix = blame.advice or self._fix()
        if not blame.data_dependent:
            failure = self._failure_alone()
            if failure:
                return ExportError(
                    f"[trace] the model itself fails on this example: {failure}; expected a call "
                    "that works; fix the model or the example",
                    location=blame.location,
                    module=blame.module,
                )
            expected = "code that torch.export can follow (the model does run by itself)"
        return _refused(blame, f"cannot be captured: {blame.reason}", expected, fix)

    def _failure_alone(self):
        """Why the model cannot be called with the example; "" when it can, or cannot be tried."""
        if any(t.is_meta or _is_fake(t) for t in [*self.model.parameters(), *self.tensors]):
            return ""
        with (
            torch.random.fork_rng(),
            torch.set_grad_enabled(self.model.training and torch.is_grad_enabled()),
            attributes_restored(self.model),
            buffers_restored(self.model),
        ):
            try:
                tensors = [t.detach().clone().requires_grad_(t.requires_grad) for t in self.tensors]
                args, kwargs = self.signature.arguments_of(
                    tensors, device=self.device, module=self.model.get_submodule
                )
                self.model(*args, **kwargs)
            except Exception as error:
                return _blame.reason_of(error)
        return ""

    def _fix(self):
        if not self.may_hide:
            return "allow opaque='auto', or change that line"
        return "move it into a submodule, which can then run as one opaque block"

    # From the exported program to the graph

    def _lower(self, program):
        flat = FlatProgram(program, ambient_modes({"cpu", self.device.type}))
        capture = self.core.Capture(type(self.model).__name__, self.model.training)
        symbols = Symbols()
        placeholders = _placeholders(program)
        called = {call.path for call in self.blocks.calls.values()}
        hidden = [note for path, note in self.hidden.items() if path in called]
        notes = [*self.notes, *hidden]
        self._define_batch(capture, symbols, placeholders, notes)
        for path, module in self.model.named_modules():
            capture.add_scope(path, type(module).__name__)
        lowering = Lowering(
            self.core, capture, flat, symbols, device=self.device, opaque=self.blocks.calls
        )
        self._add_inputs(capture, lowering, placeholders)
        self._add_weights(capture, lowering, program, placeholders)
        lowering.run(self.exporter.result.paths)
        self.state.write(capture, notes, self.blocks.covers)
        notes.extend(
            f"forward or a hook keeps a tensor in '{name}'; a pipeline does not"
            for name, place in find_places(self.model).items()
            if _is_fake(place.tensor) and not any(f"'{name}'" in note for note in notes)
        )
        for name, value in self.gradients.items():
            capture.add_attribute("", name, value)
        outside = outside_of(self.model, self.state.code_read(self.blocks.covers))
        capture.add_attribute(
            "",
            OUTSIDE,
            [[n, describe(v)] for n, (v, _) in outside.items() if n not in self.unsteady],
        )
        for note in dict.fromkeys(notes):
            capture.add_note(note)
        self._set_specs(capture, lowering)
        return capture.finish()

    def _define_batch(self, capture, symbols, placeholders, notes):
        if not self.batch.size:
            if not self.notes:
                notes.append("batch is static: no batch dimension in the inputs")
            return
        sizes = self._batch_sizes(placeholders)
        fixed = {i: s for i, s in sizes.items() if not _is_symbolic(s)}
        reasons = [
            f"dim {self.batch.dims[i]} of {self.signature.paths[i]} is fixed to {size}"
            f"{self._where_fixed(size)}"
            for i, size in fixed.items()
        ]
        if fixed and self.batch.traced_size != self.batch.size:
            # What is fixed was traced at two for a batch of one, and has to be one of one.
            raise _NotBatched(fixed, reasons)
        notes.extend(reasons)
        open_sizes = [s for i, s in sizes.items() if i not in fixed]
        if not open_sizes:
            notes[-1] = f"batch is static: {notes[-1]}{self._another_dim()}"
            return
        for i, size in sizes.items():
            if i not in fixed and not symbols.define(size):
                raise _NotBatched(sizes, [f"the batch has to be {size}"])
        capture.set_batch(self.batch.size)
        self._add_conditions(capture, symbols, open_sizes[0].node.shape_env)

    def _add_conditions(self, capture, symbols, env):
        """What the trace took for granted about the batch; it goes static where that is no size."""
        conditions = [(c, "") for c in symbols.divisors]
        for decision in self.exporter.decisions:
            try:
                found = symbols.conditions(env.replace(decision.expr))
            except NotAnExpression:
                where = f" at {decision.source}" if decision.source else ""
                raise self._static(
                    f"the model tests {decision.expr}{where}, which is not a relation of whole "
                    "numbers"
                ) from None
            conditions.extend((c, decision.source) for c in found)
        for (left, relation, right), source in conditions:
            if left == right and relation in ("==", "<="):
                continue
            if not capture.add_condition(left, relation, right, source):
                where = f" at {source}" if source else ""
                raise self._static(f"a batch of one takes another path than larger ones{where}")

    def _static(self, reason):
        return _NotBatched(range(len(self.tensors)), [reason])

    def _another_dim(self):
        """Where the batch was guessed, it may be another dimension than the first."""
        if self.batch.asked or all(t.ndim < 2 for t in self.tensors):
            return ""
        return "; if the batch is another dimension, name it: batch_dims=1"

    def _batch_sizes(self, placeholders):
        """Number of an input -> the size of its batch dimension, as traced."""
        nodes = [node for node, _ in placeholders[InputKind.USER_INPUT]]
        dims = enumerate(self.batch.dims)
        return {i: nodes[i].meta["val"].shape[d] for i, d in dims if d is not None}

    def _where_fixed(self, size):
        for decision in self.exporter.decisions:
            fixes = isinstance(decision.expr, sympy.Eq) and int(size) in decision.expr.args
            if fixes and decision.source:
                return f" at {decision.source}"
        return ""

    def _add_inputs(self, capture, lowering, placeholders):
        inputs = placeholders[InputKind.USER_INPUT]
        real = {}  # storages of the example: tensors passed twice share one
        for (node, _), path, tensor in zip(inputs, self.signature.paths, self.tensors, strict=True):
            val = node.meta["val"]
            if tensor.layout is torch.strided and not _is_fake(tensor):
                fake = val.untyped_storage()._cdata
                shared = real.setdefault(tensor.untyped_storage()._cdata, fake)
                lowering.storages[fake] = lowering.storages.setdefault(
                    shared, len(lowering.storages)
                )
            spec = lowering.spec(val, tensor.requires_grad)
            lowering.bind(node, capture.add_input(path=path, name=_input_name(path), **spec))

    def _add_weights(self, capture, lowering, program, placeholders):
        groups = {}  # id of a tensor -> [tensor, kind, names, nodes]
        own = dict(self.model.named_parameters(remove_duplicate=False))
        own.update(self.model.named_buffers(remove_duplicate=False))
        unnamed = []  # constants of which no module has the name
        for input_kind, kind in _WEIGHT_KINDS.items():
            for node, spec in placeholders.get(input_kind, ()):
                name = strip_model(spec.target)
                tensor = own.get(name)
                if tensor is None:
                    tensor = program.constants[spec.target]
                    if _attribute(self.model, name) is not tensor:
                        unnamed.append((node, name, tensor))
                        continue
                persistent = kind != "buffer" or spec.persistent
                entry = (tensor, kind if persistent else "non_persistent_buffer", [], [])
                entry = groups.setdefault(id(tensor), entry)
                entry[2].append(name)
                entry[3].append(node)
        if unnamed:
            self._add_unnamed(capture, groups, unnamed)
        for tensor, kind, names, nodes in groups.values():
            value = self._add_weight(capture, lowering, tensor, kind, names, nodes)
            for node in nodes:
                lowering.bind(node, value)
            lowering.weights.update(dict.fromkeys(names, value))

    def _add_unnamed(self, capture, groups, unnamed):
        """Tensors that the model's code has found in a list, a closure, a global: a weight of the
        model under another name, or a constant. Where they stand is kept, to be looked at again."""
        places = find_places(self.model)
        loose = []
        for node, name, tensor in unnamed:
            found = [path for path, p in places.items() if one_memory(p.tensor, tensor)]
            self.learning_loose.update(
                (name, path) for path in reversed(found) if places[path].tensor.requires_grad
            )
            tied = (g for g in groups.values() if g[1] != "constant" and one_memory(g[0], tensor))
            entry = next(tied, None)
            if entry is None:
                entry = groups.setdefault(id(tensor), (tensor, "constant", [], []))
                entry[2].append(name)
            entry[3].append(node)
            loose += [[entry[2][0], path] for path in found]
        if loose:
            capture.add_attribute("", LOOSE, loose)

    def _add_weight(self, capture, lowering, tensor, kind, names, nodes):
        literal = kind == "constant" and _attribute(self.model, names[0]) is not tensor
        data = element_bytes(tensor) if literal else b""
        # The graph's views of a weight are views of its stand-in; both are one memory.
        storage = tensor.untyped_storage()
        key = lowering.storage_key(storage)
        for node in nodes:
            lowering.storages[node.meta["val"].untyped_storage()._cdata] = key
        return capture.add_weight(
            names=names, kind=kind, data=data, **lowering.spec(tensor, tensor.requires_grad)
        )

    def _set_specs(self, capture, lowering):
        found = self.exporter.result
        if self.exporter.lost:
            raise ExportError(
                f"[trace] forward changes argument {self.exporter.lost[0]}, which a pipeline "
                "cannot do for its caller; expected arguments that stay unchanged, or lists, "
                "dictionaries and objects with fields; return the new value instead"
            )
        try:
            spec, arguments = _with_texts([found.spec, found.arguments], lowering.symbols)
        except NotAnExpression as error:
            if free_unbacked_symbols(error.expression):
                raise self._number_refused(error.expression) from None
            raise self._static(f"the result holds {error}") from error
        if lowering.refusal is not None:
            raise lowering.refusal
        capture.set_specs(self.signature.to_json(), Result(spec, arguments).to_json())

    def _number_refused(self, expression):
        """A result that holds a number taken from a tensor, which no graph computes."""
        location = self.exporter.decisions.origin(min(free_unbacked_symbols(expression), key=str))
        where = f" at {location}" if location else ""
        return ExportError(
            f"[trace] the model returns a number that it takes from a tensor{where} (`.item()`, "
            "`.tolist()`); expected tensors; return the tensor and read the number from the result",
            location=location,
            module="",
        )


_GRADIENT_MODE = {"is_grad_enabled", "is_inference_mode_enabled"}


@contextlib.contextmanager
def _gradients_flipped(model):
    weights = [p for p in model.parameters() if p.is_leaf and not p.is_inference()]
    flipped = [p for p in weights if p.is_floating_point() or p.is_complex()]
    try:
        for p in flipped:
            p.requires_grad_(not p.requires_grad)
        yield
    finally:
        for p in flipped:
            p.requires_grad_(not p.requires_grad)


def _form(graph):
    """What a graph computes, but for what is said of gradients."""
    lines = graph.text().splitlines()
    return [re.sub(r" (no_)?grad\b", "", line) for line in lines if line[:1] == "%"]


def _check_loose_writes(graph):
    """Tensors of which the graph has a copy must not be written: nobody would see it."""
    places = dict(surroundings(graph).get(LOOSE, []))
    for record in graph.weights:
        name = record["names"][0]
        if record["kind"] == "constant" and record["written"] and name in places:
            raise ExportError(
                f"[trace] forward writes into the tensor '{places[name]}', which no module has "
                "registered; expected state in buffers; register it (register_buffer), then trace "
                "again"
            )


class _NotBatched(Exception):
    """Inputs that have to be traced with a number for their batch after all, and why."""

    def __init__(self, inputs, reasons):
        super().__init__(reasons)
        self.inputs = inputs
        self.reasons = reasons


_WEIGHT_KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}


def _check_opaque(opaque):
    if opaque not in ("auto", "never"):
        raise ValueError(f"[trace] opaque is {shown(opaque)}; expected 'auto' or 'never'")


def traced_device(model, args, kwargs):
    """The device whose name a graph leaves open: where the weights are, else the inputs."""
    inputs = torch.utils._pytree.tree_leaves((args, kwargs))
    for tensors in (model.parameters(), model.buffers(), inputs):
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                return tensor.device
    return torch.device("cpu")


def _placeholders(program):
    """Input kind -> [(node, spec)], in order."""
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    found = {kind: [] for kind in InputKind}
    for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
        found[spec.kind].append((node, spec))
    return found


def _input_name(path):
    kind, _, rest = path.partition(".")
    return rest if kind == "kwargs" else f"arg{rest}"


def _without_inference(tensor):
    """A trace is made outside of inference mode, where such tensors cannot be written."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def _apart(tensors):
    """Rows of one tensor that have no byte in common are inputs of their own: their places in one
    memory would be sizes of the trace."""
    memory = [t.untyped_storage()._cdata if _is_plain(t) else None for t in tensors]
    out = []
    for i, (tensor, own) in enumerate(zip(tensors, memory, strict=True)):
        others = [
            tensors[j] for j, m in enumerate(memory) if own is not None and m == own and j != i
        ]
        if others and not any(_may_meet(tensor, other) for other in others):
            tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        out.append(tensor)
    return out


def _is_plain(tensor):
    return tensor.layout is torch.strided and not tensor.is_meta and not _is_fake(tensor)


def _may_meet(a, b):
    """May two tensors of one memory have elements in common?"""
    (first_a, last_a), (first_b, last_b) = _extent(a), _extent(b)
    return first_a < last_b and first_b < last_a


def _extent(tensor):
    """Its first byte in its memory, and one past its last."""
    first = tensor.storage_offset() * tensor.element_size()
    if tensor.numel() == 0:
        return first, first
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (last + 1) * tensor.element_size()


def _is_fake(tensor):
    return isinstance(tensor, torch._subclasses.fake_tensor.FakeTensor)


def _attribute(model, name):
    owner, _, attribute = name.rpartition(".")
    try:
        return getattr(model.get_submodule(owner), attribute)
    except AttributeError:
        return None


def _refused(blame, found, expected, advice):
    """The ExportError for what a line of the model's code does."""
    line = f" (`{blame.line}`)" if blame.line else ""
    where = f"{_owner(blame.module)}{_where(blame)}{line}"
    return ExportError(
        f"[trace] {where} {found}; expected {expected}; {advice}",
        location=blame.location,
        module=blame.module,
    )


def _owner(path):
    return f"module '{path}'" if path else "the model's own forward"


def _where(blame):
    return _at(blame.location)


def _at(location):
    return f" at {location}" if location else ""


def _or_whole(blame):
    if not blame.module:
        return ", or move it into a submodule and keep that whole (basic_blocks=)"
    return f", or keep the module whole (basic_blocks=['{blame.module}'])"


def _block_note(path, reason):
    return f"module '{path}' runs as Python, as one block: {reason}"


def _parent(path):
    return path.rpartition(".")[0]


def _is_symbolic(size):
    return isinstance(size, torch.SymInt) and bool(size.node.expr.free_symbols)


def _with_texts(spec, symbols):
    """The description with its symbolic numbers written as expressions in B."""
    if isinstance(spec, dict):
        if "sym" in spec:
            text = symbols.text(spec["sym"])
            return text if isinstance(text, int) else {"sym": text}
        return {k: _with_texts(v, symbols) for k, v in spec.items()}
    if isinstance(spec, list):
        return [_with_texts(v, symbols) for v in spec]
    return spec
