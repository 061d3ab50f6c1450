# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model's layers on devices of the user's choice: see ``DataFlow``."""

import collections
import contextlib
import copy
import difflib
import operator
import re
import weakref
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from kerf import _stream
from kerf._arguments import KINDS, Kind, check, checked, found
from kerf._errors import warn
from kerf._flow_map import planned_map, refuse_foreign, weight_devices
from kerf._gates import Calls, flow_of, without_gates
from kerf._layers import Tree
from kerf._moves import Clones, Frozen, Moves, mode_of, refuse_split
from kerf._placed_models import shared_parts
from kerf._traffic import Traffic
from kerf._transfer import CPU, Mover, Transfer
from kerf._unmade import refuse_lazy, refuse_meta


class LayerMap(collections.OrderedDict):
    """Devices by the names of layers. Remembers what was set since the flow was updated."""

    def __init__(self, *args, **kwargs):
        self.touched = {}
        super().__init__(*args, **kwargs)

    def __setitem__(self, name, device):
        self.touched[name] = None
        super().__setitem__(name, device)


_FLAG = KINDS["frozen"]
_DEVICE = Kind(
    lambda value: value is None or not isinstance(value, bool),
    "a device: the number of an accelerator (0), a name ('cuda:1', 'cpu') or a torch.device",
)
_MAP = Kind(lambda value: isinstance(value, Mapping), "a dictionary from layers to devices")
_BATCHES = Kind(
    lambda value: (
        not isinstance(value, torch.Tensor | Mapping | str)
        and (isinstance(value, Iterable) or hasattr(value, "__getitem__"))
    ),
    "batches to go through one after the other: a list of them, a DataLoader or another iterable",
)
_END = object()
_SETTABLE = ("layer_gpus", "output_device", "inference_only")


class DataFlow:
    """Runs an unmodified model with its layers on devices of your choice; called like the model.

    model           any ``nn.Module``; ``flow.module`` is this one, and stays usable by itself
    output_device   where results go, and what the model computes between its layers; the number of
                    an accelerator, a name or a ``torch.device``; the default is the first device
    fine_grained    False: the layers are ``model.named_children()``; True: all modules that are
                    called and contain no others, and those that have parameters of their own
    inference_only  no gradients are stored or recorded; ``flow.inference_only = False`` brings
                    ``requires_grad`` and ``grad`` back
    enable_clone    the whole model is put on every device, so that ``update_flow`` moves nothing;
                    for inference, on devices that have the memory
    mover           what moves tensors; for tests that pretend to have devices

    ``flow.layer_gpus`` maps names of layers to devices, all on the first one in the beginning. Edit
    it, then call ``update_flow``: until then the old flow runs, and a call warns once that changes
    are waiting. The first call does it for you. ``flow.device_ids`` lists the devices there are.

    A layer's arguments come to its device. Its result goes to the device of the module that called
    it: that module's own entry, else ``output_device``; inside ``nn.Sequential`` it goes straight
    to the next layer. So what a parent adds or concatenates is always on one device. Weights are
    moved in place, with buffers, gradients and tensors in attributes; layers that share a weight
    must be on one device. Names that the flow does not have are the model's:
    ``flow.state_dict()``. Calls from several threads run side by side.
    """

    @checked(
        "kerf.dataflow",
        output_device=_DEVICE,
        fine_grained=_FLAG,
        inference_only=_FLAG,
        enable_clone=_FLAG,
    )
    def __init__(
        self,
        model,
        output_device=None,
        *,
        fine_grained=False,
        inference_only=False,
        enable_clone=False,
        mover=None,
    ):
        if flow_of(model) is not None:
            raise ValueError(
                "[kerf.dataflow] the model is part of a DataFlow already; expected one that is "
                "not; call remove() of the other one first"
            )
        if next(shared_parts(model), None) is not None:
            raise ValueError(
                "[kerf.dataflow] the model, or a module in it, is placed by kerf.place, which says "
                "itself where weights are; expected one that is not; call the handle's remove() "
                "first"
            )
        if isinstance(model, torch.jit.ScriptModule):
            raise ValueError(
                "[kerf.dataflow] the model is a TorchScript module, which takes no hooks; expected "
                "an nn.Module in Python; wrap the model that it was made from"
            )
        refuse_lazy("kerf.dataflow", model)
        refuse_meta("kerf.dataflow", model)
        self.module = model
        self.fine_grained = fine_grained
        self.enable_clone = enable_clone
        self._mover = mover or Mover()
        self._devices = self._mover.devices()
        self._known = {}  # devices by what users call them
        self._output_device = self._devices[0] if output_device is None else output_device
        self._device("", self._output_device)
        self._calls = Calls(self._mover)
        self._tree = Tree(model, fine_grained, self._calls)
        layers = self._tree.layers
        self._layer_gpus = LayerMap(dict.fromkeys(list(layers)[1:], self.device_ids[0]))
        self._placement = (Clones if enable_clone else Moves)(self._mover, list(layers.values()))
        self._frozen = None
        self._planned = None  # (graph, plan), see auto
        self._made = weakref.WeakSet()
        self._streams = weakref.WeakSet()  # generators of a plan's pipelines
        self._traffic = Traffic()
        self._updated = False
        self._warned = False
        self._handles = []
        self.inference_only = inference_only  # may fail: before there are hooks
        self._mark_root()
        without_gates(model)  # of the flow that it was copied from, or of one that was lost
        self._handles = self._tree.install()
        self._calls.flow = weakref.ref(self)

    @classmethod
    @checked(
        "kerf.dataflow",
        devices=KINDS["devices"],
        output_device=_DEVICE,
        fine_grained=_FLAG,
        inference_only=_FLAG,
        enable_clone=_FLAG,
    )
    def auto(
        cls,
        model,
        args=(),
        kwargs=None,
        *,
        devices=None,
        output_device=None,
        fine_grained=True,
        inference_only=False,
        enable_clone=False,
        mover=None,
        **options,
    ):
        """A flow whose ``layer_gpus`` follow a plan: ``kerf.plan(kerf.trace(model, args, kwargs),
        devices, **options)``. Each layer goes where most of its weights are used, one without
        weights where most of its time is spent. Without ``devices``: all accelerators, or the CPU.
        """
        from kerf._plan import plan as make_plan
        from kerf._trace import trace

        mover = mover or Mover()
        there = mover.devices()
        graph = trace(model, args, kwargs)
        plan = make_plan(
            graph, [str(d) for d in there[:-1] or there] if devices is None else devices, **options
        )
        refuse_foreign(plan, there)
        flow = cls(
            model,
            output_device,
            fine_grained=fine_grained,
            inference_only=inference_only,
            enable_clone=enable_clone,
            mover=mover,
        )
        flow._planned = graph, plan
        flow.layer_gpus.update(planned_map(flow._tree.layers, flow._placement.ties(), graph, plan))
        return flow

    # ---- what users set

    @property
    def layer_gpus(self):
        """Devices by the names of layers, an ordered dictionary; see ``update_flow``."""
        return self._layer_gpus

    @layer_gpus.setter
    @checked("kerf.dataflow", layer_gpus=_MAP)
    def layer_gpus(self, layer_gpus):
        if layer_gpus is not self._layer_gpus:  # it is after ``flow.layer_gpus |= {...}``
            self._layer_gpus.clear()
            self._layer_gpus.update(layer_gpus)

    @property
    def device_ids(self):
        """The devices there are: accelerators by their numbers, then "cpu"."""
        return ["cpu" if d.type == "cpu" else d.index for d in self._devices]

    @property
    def output_device(self):
        """Where results go; a change takes effect at ``update_flow``."""
        return self._output_device

    @output_device.setter
    def output_device(self, device):
        self._output_device = self._devices[0] if device is None else device
        self._layer_gpus.touched[""] = None

    @property
    def inference_only(self):
        """Whether gradients are neither stored nor recorded; can be set at any time."""
        return self._frozen is not None

    @inference_only.setter
    def inference_only(self, wanted):
        check("kerf.dataflow", "inference_only", wanted, _FLAG)
        self._check_open()
        if wanted == self.inference_only:
            return
        if wanted:
            self._frozen = Frozen(self._mover, self.module)
        else:
            self._frozen.restore()
            self._frozen = None
        self._mark_root()

    def _mark_root(self):
        root = self._tree.gates[0][1]
        root.inference_only = self.inference_only
        root.has_clones = self.enable_clone and not self.inference_only

    # ---- calls

    def __call__(self, *args, **kwargs):
        self._prepare()
        stack = self._calls.stack
        length = len(stack)
        frozen = torch.no_grad() if self.inference_only else contextlib.nullcontext()
        try:
            with self._turn(), frozen:
                return self.module(*args, **kwargs)
        except RuntimeError as error:
            if _is_about_devices(str(error)):
                error.add_note(f"[kerf.dataflow] {self._why_apart()}")
            raise
        finally:
            del stack[length:]  # of what an interrupt has ended

    @contextlib.contextmanager
    def _turn(self):
        """A call inside a call has its turn already: waiting for a change would never end."""
        calls = self._calls
        depth = calls.depth
        try:
            calls.depth = depth + 1
            with contextlib.nullcontext() if depth else self._traffic.running():
                yield
        finally:
            calls.depth = depth

    def _why_apart(self):
        stranger = self._tree.stranger()
        if stranger is not None:
            return _came_later(stranger)
        for layer in self._tree.layers.values():
            for path, *_, tensor in layer.registered():
                device = self._mover.device_of(tensor)
                if device != layer.device:
                    return (
                        f"'{path}' is on {device}, and {layer.shown} on {layer.device}; expected "
                        "one device; call update_flow() after weights were replaced or moved"
                    )
        return (
            "a tensor is not on the device of the layer that uses it; expected layers to be "
            "called, and tensors to come from their arguments, in tuples, lists, dictionaries or "
            "dataclasses; a layer whose weights another one reads must be mapped as that one, and "
            "where the model calls parts of a layer, fine_grained=True may help"
        )

    def _prepare(self):
        self._check_open()
        if not self._updated:
            self.update_flow()
        elif self._layer_gpus.touched and not self._warned and self._is_pending():
            self._warned = True
            warn(
                "kerf.DataFlow: layer_gpus or output_device has changed, and the flow is still the "
                "old one: call update_flow()"
            )

    def _is_pending(self):
        try:
            return bool(self._changes(self._layer_gpus, self._layer_gpus.touched))
        except (TypeError, ValueError):
            return True

    @checked("kerf.dataflow", batches=_BATCHES)
    def stream(self, batches, *, window=None):
        """The results of many batches in their order; ``window`` are under way at most.

        batches  any iterable. Each batch is what the model is called with: a tuple or list of
                 arguments, a dictionary of named ones, or the only one
        window   the default is one more than there are devices in the flow

        A flow made by ``auto``, with the map it was given, streams through a ``kerf.Pipeline`` of
        its plan: devices work on different batches at a time, and results carry no gradients. Any
        other flow, and a model that is no longer as it was planned (in train mode, a warning says
        so), is called batch by batch, and is ahead of the results by ``window - 1`` batches:
        accelerators, which take work and go on, then overlap; the CPU does not.

        A batch is asked for when there is room for it. An error comes when the results in front of
        it have been given. Leaving the loop ends it.
        """
        self._prepare()
        pipe = self._pipeline()
        if pipe is not None:
            results = pipe.stream(batches, window=window)
            self._streams.add(results)
            return self._through(pipe, results)
        devices = {layer.device for layer in self._tree.layers.values()} - {CPU}
        return self._one_by_one(iter(batches), window or (len(devices) + 1 if devices else 1))

    def _pipeline(self):
        """Of the plan, where weights are on the devices that it has them on; or None."""
        if self._planned is None:
            return None
        from kerf._pipeline import Pipeline

        graph, plan = self._planned
        weights = dict(self._weights())
        for names, device in weight_devices(graph, plan):
            tensor = next((weights[name] for name in names if name in weights), None)
            if tensor is not None and self._mover.device_of(tensor) != device:
                return None
        known = {id(tensor): tensor for tensor in weights.values()}
        twin = without_gates(copy.deepcopy(self.module, known))  # over the same tensors
        try:
            return Pipeline(twin, plan, graph=graph)
        except (NotImplementedError, ValueError) as error:  # another mode, hooks, mixed samples
            warn(f"kerf.DataFlow: batches are called one after the other, not by the plan: {error}")
            return None

    def _weights(self):
        yield from self.module.named_parameters(remove_duplicate=False)
        yield from self.module.named_buffers(remove_duplicate=False)

    def _through(self, pipe, results):
        with pipe, contextlib.closing(results):
            while True:
                with self._turn():
                    if results not in self._streams:
                        raise RuntimeError(
                            "[kerf.dataflow] layers were moved, or the flow removed, while a "
                            "stream had batches under way; expected that between streams; call "
                            "stream() again for the batches without results"
                        )
                    result = next(results, _END)
                if result is _END:
                    return
                yield Transfer(self._mover, self._calls.output_device)(result)

    def _end_streams(self):
        """Batches that are under way would meet weights that move."""
        streams = list(self._streams)
        self._streams.clear()
        for results in streams:
            results.close()

    def _one_by_one(self, batches, window):
        under_way = collections.deque()
        failure = None
        while failure is None:
            try:
                batch = next(batches, _END)
                if batch is _END:
                    break
                args, kwargs = _stream.arguments_of(batch)
                under_way.append(self(*args, **kwargs))
            except Exception as error:  # raised at its turn
                failure = error
            if len(under_way) == window:
                yield under_way.popleft()
        yield from under_way
        if failure is not None:
            raise failure

    # ---- changes

    def update_flow(self):
        """Puts every layer on its device of ``layer_gpus``; a layer it does not name stays. Weights
        that were replaced or moved in the meantime come to their layers.

        All of it or nothing: for an unknown layer or device, for layers that share a weight and are
        to be on two devices (ValueError), and where a device lacks the memory (RuntimeError), the
        old flow stays in force, and so for modules that came into the model later (RuntimeError).
        Waits for calls that are under way. With ``enable_clone`` it takes
        the time of the layers that change, and moves no weights unless they have been written.
        """
        with self._between_calls("update_flow"):
            self._refuse_strangers()
            layers, wanted = self._tree.layers, self._layer_gpus
            changes = self._changes(wanted, wanted.touched if self._updated else self._all())
            changes = {**self._placement.astray(), **changes}
            refuse_split(self._placement.ties(), lambda at: changes.get(at, at.device))
            if changes:
                self._end_streams()
            try:
                self._placement.place(changes)
            finally:  # they follow their layers, wherever those are
                for layer in changes:
                    layer.move_gates()
                if self._planned is not None:
                    self._tree.follow_layers()
            if self._made:
                self._placement.refresh()
            self._calls.output_device = layers[""].device
            self._settle()

    def _refuse_strangers(self):
        stranger = self._tree.stranger()
        if stranger is not None:
            raise RuntimeError(f"[kerf.dataflow] {_came_later(stranger)}")

    def _between_calls(self, what):
        self._check_open()
        if self._calls.depth:
            raise RuntimeError(
                f"[kerf.dataflow] {what} inside a call of the model; expected it between calls; "
                "call it when the model has returned"
            )
        self._calls.stack.clear()  # an interrupt may have ended a call of the module itself
        return self._traffic.stopped()

    def _all(self):
        return {**self._tree.layers, **self._layer_gpus.touched}

    def _settle(self):
        wanted, layers = self._layer_gpus, self._tree.layers
        if len(wanted) < len(layers) - 1:
            for name in [name for name in layers if name and name not in wanted]:
                wanted[name] = self.device_ids[self._devices.index(layers[name].device)]
        wanted.touched.clear()
        self._updated, self._warned = True, False

    def _changes(self, wanted, names):
        """``{layer: device}`` of those that are to be elsewhere."""
        changes = {}
        for name in names:
            layer = self._tree.layers.get(name)
            if (layer is None or name == "") and name in wanted:
                raise ValueError(self._unknown_layer(name))
            if layer is None:  # it was, and has been deleted since
                continue
            value = wanted.get(name, layer.device) if name else self._output_device
            if value is None and name not in wanted:
                value = self._placement.home_of(layer)
            device = self._device(name, value)
            if device is not layer.device:  # one object for each, see _device
                changes[layer] = device
        return changes

    def _device(self, name, value):
        """What is meant by the value that layer_gpus has for ``name``, or output_device for ""."""
        kind = type(value)
        if kind is int or kind is str or kind is torch.device:
            device = self._known.get(value)
            if device is not None:
                return device
        device = self._parsed(value)
        if device not in self._devices:
            there = [f"{i} ({d})" for i, d in enumerate(self._devices[:-1])] + ["'cpu'"]
            what = f"layer_gpus['{name}']" if name else "output_device"
            raise ValueError(
                f"[kerf.dataflow] {what} is {found(value)}; expected a device there is: "
                f"{', '.join(there)}; set it to one of these"
            )
        device = self._devices[self._devices.index(device)]
        if kind is int or kind is str or kind is torch.device:
            self._known[value] = device
        return device

    def _parsed(self, value):
        """The device that is meant, or None."""
        if not isinstance(value, str | torch.device):
            return self._numbered(value)
        try:
            device = torch.device(value)
        except RuntimeError:
            return None
        if device.type == "cpu":
            return CPU
        if device.index is None:
            return next((d for d in self._devices if d.type == device.type), None)
        return device

    def _numbered(self, value):
        try:
            number = -1 if isinstance(value, bool) else operator.index(value)
        except TypeError:
            return None
        return self._devices[number] if 0 <= number < len(self._devices) - 1 else None

    def _unknown_layer(self, name):
        names = list(self._tree.layers)[1:]
        if name == "":
            return (
                "[kerf.dataflow] layer_gpus names '', the model itself; expected a layer: "
                f"{', '.join(names) or 'there are none'}; set output_device for what the model "
                "computes itself"
            )
        near = difflib.get_close_matches(str(name), names, n=3)
        meant = f" (perhaps {' or '.join(map(repr, near))})" if near else ""
        return (
            f"[kerf.dataflow] layer_gpus names {found(name)}; expected a layer{meant}: "
            f"{', '.join(names) or 'there are none'}; correct the name"
        )

    @checked("kerf.dataflow", layer_gpus=_MAP, module=KINDS["model"])
    def construct_module(self, layer_gpus=None, module=None):
        """A module of its own with this map, over the weights of the clones: it takes no memory but
        for buffers, which are its own, and runs beside others from other threads.

        layer_gpus  layers that are to be elsewhere than in this flow; the default is its map
        module      a deep copy of the model, made earlier: changed and given back, to save the copy

        For inference: its parameters require no gradients. Write weights in ``flow.module``, and
        call ``update_flow`` for the others to see it.
        """
        self._check_open()
        if not self.enable_clone:
            raise ValueError(
                "[kerf.dataflow] construct_module in a flow without clones; expected "
                "enable_clone=True; make the flow with it, where devices have the memory"
            )
        if not self._updated:
            self.update_flow()
        with self._between_calls("construct_module"):
            self._refuse_strangers()
            changes = self._changes(layer_gpus or {}, layer_gpus or {})
            refuse_split(self._placement.ties(), lambda at: changes.get(at, at.device))
            self._placement.refresh()
            made = self._copied() if module is None else self._matching(module)
            return self._constructed(made, changes)

    def _copied(self):
        """The module tree anew; tensors are empty stand-ins, to be filled in."""
        known = {}
        for _, tensor in self._weights():
            with mode_of(tensor):
                stand_in = torch.empty(0, dtype=tensor.dtype)
                if isinstance(tensor, nn.Parameter):
                    stand_in = nn.Parameter(stand_in, requires_grad=False)
            stand_in.__dict__.update(tensor.__dict__)
            known[id(tensor)] = stand_in
        return without_gates(copy.deepcopy(self.module, known))

    def _matching(self, module):
        what = self._why_no_copy(module)
        if what is not None:
            raise ValueError(
                f"[kerf.dataflow] module= {what}; expected a deep copy of the model; make one with "
                "copy.deepcopy(flow.module), or omit it"
            )
        return without_gates(module)

    def _why_no_copy(self, module):
        if module is self.module:
            return "is the model itself"
        if flow_of(module) is not None:
            return "is part of a DataFlow"
        if next(shared_parts(module), None) is not None:
            return "is placed by kerf.place"
        own = {name: tensor.shape for name, tensor in self._weights()}
        given = [
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ]
        theirs = {name: tensor.shape for name, tensor in given}
        names = (n for n in {**own, **theirs} if own.get(n) != theirs.get(n))
        return next((f"differs from the model in '{name}'" for name in names), None)

    def _constructed(self, made, changes):
        calls = Calls(self._mover)
        tree = Tree(made, self.fine_grained, calls, self._tree.layers)
        for name, layer in tree.layers.items():
            here = self._tree.layers[name]
            layer.device = changes.get(here, here.device)
            self._fill(layer, here)
            layer.move_gates()
        if self._planned is not None:
            tree.follow_layers()
        calls.output_device = tree.layers[""].device
        tree.gates[0][1].inference_only = True
        tree.install()
        self._mover.finish(self._devices)  # it may be called in any stream
        self._made.add(made)
        return made

    def _fill(self, layer, here):
        """Parameters are those of the clones; buffers are written by calls, and so copied."""
        pairs = zip(layer.registered(), here.registered(), strict=True)
        for (*_, tensor), (*_, own) in pairs:
            if isinstance(own, nn.Parameter):
                tensor.requires_grad_(False)
                self._placement.share(own, tensor, layer.device)
            else:
                data = self._placement.copy_of(own, layer.device)
                with mode_of(tensor):
                    tensor.data = self._mover.to(data, layer.device, copy=True)
        weights = {id(t) for *_, t in layer.registered()}
        for _, tensor in layer.loose():
            if id(tensor) not in weights:
                with mode_of(tensor):
                    tensor.data = self._mover.to(tensor.data, layer.device)

    def remove(self):
        """Takes the flow off the model: hooks, devices and flags are as they were before."""
        if self._handles is None:
            return
        with self._between_calls("remove"):
            self._end_streams()
            self._placement.restore()
            self.inference_only = False
            for handle in self._handles:
                handle.remove()
            self._handles = None
            self._calls.flow = None

    def _check_open(self):
        if self._handles is None:
            raise RuntimeError("[kerf.dataflow] this flow was removed; make a new one")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()

    def __getattr__(self, name):
        if name.startswith("_") or "module" not in vars(self):
            raise AttributeError(f"'DataFlow' object has no attribute {name!r}")
        return getattr(self.module, name)

    def __setattr__(self, name, value):
        if "_handles" in vars(self) and not name.startswith("_") and name not in _SETTABLE:
            raise AttributeError(
                f"[kerf.dataflow] {name} cannot be set in a DataFlow; expected one of "
                f"{', '.join(_SETTABLE)}; set what belongs to the model in flow.module, and make a "
                "new flow for other options"
            )
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol):
        raise TypeError(
            f"[kerf.dataflow] {self!r} cannot be copied or pickled; expected its module, which can "
            "be; copy or save flow.module, or its state_dict() and dict(flow.layer_gpus)"
        )

    def __repr__(self):
        if self._handles is None:
            return f"kerf.DataFlow({type(self.module).__name__}, removed)"
        counts = collections.Counter(x.device for x in self._tree.layers.values() if x.name)
        places = ", ".join(
            f"{count} layer{'s' * (count > 1)} {f'on {device}' if device else 'not moved yet'}"
            for device, count in counts.items()
        )
        return f"kerf.DataFlow({type(self.module).__name__}, {places or 'no layers'})"


def _is_about_devices(text):
    """Convolutions name the types of tensors: torch.FloatTensor, torch.cuda.FloatTensor."""
    kinds = set(re.findall(r"type \(((?:\w+\.)*)\w+\)", text))
    return "same device" in text or (len(kinds) > 1 and "should be the same" in text)


def _came_later(path):
    return (
        f"module '{path}' came into the model after the flow was made; expected the modules that "
        "there were; call remove(), change the model, then make a new flow"
    )
