# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The hooks of a placed model: weights come when their module runs, and go."""

import bisect
import contextlib
import dataclasses
import os
import sys
import threading
import time
import weakref

import torch
from torch.utils import _pytree

from kerf import _torch
from kerf._host_units import rows_of
from kerf._late_weights import LateWeights
from kerf._limits import CPU
from kerf._loose_reads import LooseReads
from kerf._transfer import Mover, Transfer


def _number(entered):
    return entered.number if isinstance(entered, _OnHost) else entered


class _Turn:
    """One call at a time, by one thread. Who was interrupted inside of it has it no more."""

    _PATIENCE = 2.0  # seconds that a module waits for a call of the model on another thread

    def __init__(self, model):
        self._model = weakref.ref(model)
        self._changed = threading.Condition()
        self._owner = None
        self._depth = 0

    def acquire(self, drop, path=None):
        """``drop``: ends what a call left behind. ``path``: of a module called by itself."""
        me = threading.get_ident()
        start = time.monotonic()
        with self._changed:
            while self._owner not in (None, me):
                if self._changed.wait(0.1):
                    continue
                if not self._is_running(self._owner):
                    drop()
                elif path is not None and time.monotonic() - start > self._PATIENCE:
                    raise RuntimeError(
                        f"[kerf.place] module '{path}' is called on a thread of its own while a "
                        "call of the model runs, which may be waiting for it; expected modules "
                        "that are called one after the other; run it on the caller's thread"
                    )
            self._owner = me
            self._depth += 1

    def release(self):
        with self._changed:
            self._depth -= 1
            if self._depth <= 0:
                self.reset()

    def reset(self):
        with self._changed:
            self._owner, self._depth = None, 0
            self._changed.notify_all()

    def is_mine(self):
        return self._owner == threading.get_ident()

    def is_nested(self):
        """Does the model run on this thread more than once, one call inside of the other?"""
        return self.depth_of(id(self._model())) > 1

    def depth_of(self, module):
        """How many calls of the module of this id this thread is in."""
        return sum(id(m) == module for m in _called(threading.get_ident()))

    def is_inside(self):
        """Is this thread inside of a call of the model, or of a module of it?"""
        return self._is_running(threading.get_ident())

    def _is_running(self, thread):
        """Is a thread inside of the model?"""
        model = self._model()
        modules = set(map(id, model.modules())) if model is not None else ()
        return any(id(module) in modules for module in _called(thread))


def _called(thread):
    """The modules that a thread is inside of."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        own = frame.f_locals.get("self") if frame.f_code.co_name == "_call_impl" else None
        if own is not None:
            yield own
        frame = frame.f_back


_LESSONS = (2, 4, 8)  # calls of few rows that are learned from: the first is like no other


class _NoCalls:
    """The hooks of a placed model that was pickled, and has all its weights."""

    def _begin(self, *args):
        pass

    _end = _enter = _leave = _arrive = _depart = _begin


def _modules_around(model, inside):
    """The modules that are of ``inside``, or have such inside of them, in the model's order."""
    found = {}

    def look(module):
        known = found.get(id(module))
        if known is None:
            known = id(module) in inside
            for child in module._modules.values():  # all of them
                if child is not None and look(child):
                    known = True
            found[id(module)] = known
        return known

    look(model)
    return [m for m in model.modules() if found[id(m)]]


def _weight_places(modules):
    """``[(attributes of a module, name of its parameter, parameter)]``"""
    modules = [m for m in modules if isinstance(m._parameters, dict)]
    return [(vars(m), name, p) for m in modules for name, p in m._parameters.items()]


def _any_on_host(args, kwargs):
    """Among those that are tensors: a look that costs little."""
    given = (*args, *kwargs.values()) if kwargs else args
    return any(isinstance(value, torch.Tensor) and value.is_cpu for value in given)


@dataclasses.dataclass
class _FromOutside:
    """A call whose arguments were brought to the device, and whose results go to their origin."""

    module: int  # its id; the module itself may be wrapped for torch.compile, which looks here, too
    way: Transfer
    origin: torch.device | None
    again: int = 0  # calls of the module inside of this one


@dataclasses.dataclass
class _OnHost:
    """A unit that the host computes now, the way its result goes, and since when."""

    number: int
    way: Transfer
    entered: float
    began: float
    threads: object  # lives until the result is there


@dataclasses.dataclass
class _Few:
    """What a call of few rows took, in seconds of the thread that called."""

    start: float
    with_host: float = 0.0  # from the arguments' way down to the result's way up
    computing: float = 0.0
    bytes: int = 0  # of the weights that the host has gone through
    rows: int = 0


class PlacedCalls:
    """Hooks on the streamed modules and on the model: one call at a time.

    ``host_rows``: by unit, the most rows of a call in which the host computes it.
    """

    def __init__(self, model, units, weights, device, host_rows):
        self._weights = weights
        self._device = None if device == CPU else device
        self._outside = threading.local()  # by thread: the call from outside
        self._modules = {id(unit.module): number for number, unit in enumerate(units)}
        self._units = units
        self._model = model
        self._turn = _Turn(model)
        self._made_in = os.getpid()
        self._is_over = False
        # Units that were entered, by their numbers, or as _OnHost; None: the model, or a module
        # inside of one.
        self._inside = []
        self._host_rows = host_rows
        self._kinds = sorted({rows for rows in host_rows if rows > 0})  # of calls, by their rows
        self._kind_is_known = False  # of the call under way
        self.on_host = 0  # uses of units that the host computed
        streamed = {id(p) for unit in units for p in unit.parameters}
        self.late = LateWeights(model, device, streamed)
        # Called after a few calls with what they took; gives ``host_rows`` anew.
        self.learn = None
        self._few = None  # of the call under way
        self._calls_of_few = 0
        modules = [list(unit.module.modules()) for unit in units]
        self._places = [_weight_places(inside) for inside in modules] if self._device else []
        self._covered = [frozenset(map(id, inside)) for inside in modules]
        self._handles = []
        self._reads = LooseReads(units, device, self._is_away, self._refuse_gradients)
        try:
            for unit in units:
                self._hook(unit.module, self._enter, self._leave)
            if self._device is not None:
                self._door = {id(module): module for module in self._doors()}
                for module in self._door.values():
                    self._hook(module, self._arrive, self._depart)
                self._reads.watch(model)
            if units:  # otherwise everything is where it is used, and nobody has to wait
                self._hook(model, self._begin, self._end, outermost=True)
        except BaseException:
            self.remove()
            raise

    def _hook(self, module, before, after, outermost=False):
        hook = module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        self._handles.append(hook)
        # Of the outermost both come first: what the model took is known before results are moved.
        hook = module.register_forward_hook(after, prepend=outermost, always_call=True)
        self._handles.append(hook)

    def _doors(self):
        """Modules that somebody may call by themselves, with arguments on the host: those with
        streamed ones inside (an encoder, from ``generate``), and those next to them."""
        inside = frozenset().union(*self._covered)
        around = _modules_around(self._model, inside)
        doors = {id(m): m for m in (self._model, *around)}
        doors.update((id(c), c) for m in (self._model, *around) for c in m.children())
        return [m for m in doors.values() if not isinstance(m, torch.jit.ScriptModule)]

    @contextlib.contextmanager
    def ended(self):
        """Calls of other threads are over, or wait, and find the model without hooks then."""
        if self._is_elsewhere():
            yield
            return
        if self._turn.is_inside():
            raise RuntimeError(
                "[kerf.place] remove() inside a call of the model, whose weights it would take "
                "away; expected it between calls; call it when the model has returned"
            )
        self._turn.acquire(self._drop)
        try:
            yield
            self._is_over = True
        finally:
            self._turn.reset()

    def let_go(self):
        """Of all weights: they go back."""
        self._reads.remove()
        self._weights = None

    def remove(self):
        self._reads.remove()
        for handle in self._handles:
            handle.remove()

    # A copy of the model has the hooks, too, and weights of its own: they are not about it.
    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _NoCalls, ()

    # PyTorch gives hooks that are removed meanwhile no ``kwargs``.
    def _begin(self, module, args, kwargs=None):
        del args, kwargs
        if module is not self._model or self._is_elsewhere():
            return
        self._turn.acquire(self._drop)
        if self._is_over:
            self._turn.release()
            return
        if self._inside and not self._turn.is_nested():
            self._drop()  # the last call was left by what no hook is called for: an interrupt
            self._turn.acquire(self._drop)
        if not self._inside:
            self._few = _Few(time.perf_counter())
        self._inside.append(None)

    def _end(self, module, args, result):
        del args, result
        if module is not self._model or self._is_elsewhere() or not self._inside:
            return
        if self._inside[-1] is None:
            self._inside.pop()
            if not self._inside:
                self._reads.end_call()
                self._weights.end_call()
                self._kind_is_known = False
                self._learn()
            self._turn.release()

    def _arrive(self, module, args, kwargs=None):
        """Arguments come to the device, of the outermost call alone."""
        if self._door.get(id(module)) is not module or self._is_over:
            return None  # a copy's, or the model was made what it was
        outer = getattr(self._outside, "call", None)
        if outer is not None and id(module) == outer.module:
            if self._turn.depth_of(id(module)) > 1:
                outer.again += 1
                return None
        elif outer is not None and module is self._model:
            if self._turn.depth_of(outer.module):
                return None
        elif outer is not None:
            # Arguments on the host: an interrupt may have ended the call from outside, of which no
            # hook was told.
            if not _any_on_host(args, kwargs) or self._turn.depth_of(outer.module):
                return None
        self.late.look()
        way = Transfer(Mover(), self._device)
        there = way(args), way(kwargs)
        if self._few is not None and module is self._model:
            self._few.start = time.perf_counter()  # what brings arguments is no issuing
        origin = self._origin(args, kwargs) if way.has_copied() else None
        self._outside.call = _FromOutside(id(module), way, origin)
        return there

    def _origin(self, args, kwargs):
        """Where the first tensor comes from, and with it all: generate() has ids on the device
        already, whatever else the caller gave it. None: from the device."""
        given = (t for t in _pytree.tree_iter((args, kwargs)) if isinstance(t, torch.Tensor))
        origin = next((t.device for t in given), None)
        return None if origin == self._device else origin

    def _depart(self, module, args, result):
        """Results go where the arguments came from, and arguments are what the call made them."""
        del args
        outer = getattr(self._outside, "call", None)
        if outer is None or outer.module != id(module):
            return None
        if outer.again:
            outer.again -= 1
            return None
        self._outside.call = None
        if module is not self._model and not self._inside:
            self._reads.end_call()
        return outer.way.returned(outer.origin)(result) if outer.way.has_copied() else None

    def _enter(self, module, args, kwargs=None):
        number = self._modules.get(id(module))
        if number is None or self._is_elsewhere():
            return None
        self._turn.acquire(self._drop, self._units[number].path)
        if self._is_over:
            self._turn.release()
            return self._called_off(args, kwargs)
        if any(u is not None and id(module) in self._covered[_number(u)] for u in self._inside):
            self._inside.append(None)  # its weights are there with those of the unit around it
            return None
        try:
            self._refuse_gradients(self._units[number], args, kwargs)
            self._reads.enter(self._units[number])
            if self._host_rows[number] and self._is_for_host(number, args, kwargs):
                entered = time.perf_counter()
                way = Transfer(Mover(), CPU)
                given = way(args), way(kwargs)
                now = time.perf_counter()
                self._inside.append(_OnHost(number, way, entered, now, _torch.BesideDevice()))
                self.on_host += 1
                return given
            self._weights.enter(number)
        except BaseException:
            self._turn.release()
            raise
        self._inside.append(number)
        return None

    def _called_off(self, args, kwargs):
        """The model was made what it was while a call of one of its modules waited: its arguments
        are what they were, too."""
        outer, self._outside.call = getattr(self._outside, "call", None), None
        if outer is None or not outer.way.has_copied():
            return None
        back = outer.way.returned(outer.origin)
        return back(args) if kwargs is None else (back(args), back(kwargs))

    def _come_back(self, unit, result):
        """From the host."""
        unit.threads = None
        computed = time.perf_counter()
        there = unit.way.returned(self._device)(result)
        if self._few is not None:
            self._few.computing += computed - unit.began
            self._few.with_host += time.perf_counter() - unit.entered
            self._few.bytes += self._units[unit.number].bytes
        return there

    def _learn(self):
        few, self._few = self._few, None
        if few is None or few.bytes == 0 or self.learn is None:
            return
        self._calls_of_few += 1
        if self._calls_of_few not in _LESSONS:
            return
        issuing = time.perf_counter() - few.start - few.with_host
        self._host_rows = self.learn(issuing, few.computing, few.bytes, few.rows)
        self._kinds = sorted({rows for rows in self._host_rows if rows > 0})

    def _is_for_host(self, number, args, kwargs):
        """Is this a call of so few rows that the host is quicker than the copy of the weights?"""
        rows = rows_of(args, kwargs)
        if rows is None or self._units[number].module.training:
            return False
        if not self._has_own_weights(number):
            return False  # others are in their place, and those are on the device
        if torch.is_autocast_enabled(self._device.type):
            return False  # the host would compute in another precision
        if self._few is not None:
            self._few.rows = max(self._few.rows, rows)
        if not self._kind_is_known:
            self._kind_is_known = True
            self._weights.call_is_like(bisect.bisect_left(self._kinds, rows))
        return rows <= self._host_rows[number]

    def _has_own_weights(self, number):
        return all(dict.get(own["_parameters"], name) is p for own, name, p in self._places[number])

    def _leave(self, module, args, result):
        del args
        number = self._modules.get(id(module))
        if number is None or self._is_elsewhere() or not self._inside:
            return None  # a copy's
        entered = self._inside[-1]
        if entered is not None and _number(entered) != number:
            return None  # it was refused at its door
        self._inside.pop()
        try:
            if isinstance(entered, _OnHost):
                return self._come_back(entered, result)
            if entered is None:
                return None
            self._weights.leave(number)
            return self._with_weights_there(result)
        finally:
            self._turn.release()

    def _with_weights_there(self, result):
        """A result that is a weight itself would go to the host with its unit."""
        if self._device is None or type(result) is torch.Tensor:
            return None
        if not any(self._reads.is_one(leaf) for leaf in _pytree.tree_iter(result)):
            return None
        return _pytree.tree_map_only(torch.nn.Parameter, self._reads.read, result)

    def _is_elsewhere(self):
        """A forked process has no thread that copies: weights are used where they are at home."""
        return os.getpid() != self._made_in

    def _is_mine(self):
        """Does this thread run a call of the model, or of a module of it?"""
        if self._is_elsewhere():
            return False
        if self._inside and self._turn.is_mine():
            return True
        outer = getattr(self._outside, "call", None)
        return outer is not None and self._turn.depth_of(outer.module) > 0

    def _is_away(self, unit):
        """Is a weight of the unit not where this thread's call of the model needs it?"""
        if not self._is_mine():
            return False
        on_host = (e for e in self._inside if isinstance(e, _OnHost))
        return all(self._units[e.number] is not unit for e in on_host)

    def _drop(self):
        self._reads.end_call()
        self._weights.abandon()
        self._inside.clear()
        self._kind_is_known = False
        self._few = None
        self._turn.reset()

    @staticmethod
    def _refuse_gradients(unit, args, kwargs):
        if not torch.is_grad_enabled():
            return
        given = (t for t in _pytree.tree_iter((args, kwargs)) if isinstance(t, torch.Tensor))
        if any(t.requires_grad for t in (*unit.parameters, *given)):
            raise RuntimeError(
                f"[kerf.place] module '{unit.path}' is called with gradients to be taken, and its "
                "weights are streamed: backward would find others in their place; expected "
                "inference; call the model under torch.no_grad()"
            )
