// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/support_text.h"

namespace kerf::codegen {
namespace {

// Lines between "#? name" and "#!" are for files that need the name.

constexpr std::string_view kStage = R"py(
class Weight(NamedTuple):
    """A parameter or a buffer of the model, by its name there."""

    name: str
    shape: tuple
    dtype: torch.dtype
    kind: str = "parameter"
    trained: bool = True
    also: list = []  # its other names


class Holder(nn.Module):
    """Parameters, buffers and modules, under the names that they have in the model."""

    def __getitem__(self, name):
        return getattr(self, str(name))


def put(holder, path, thing, persistent=True):
    first, _, rest = path.partition(".")
    if rest:
        if first not in holder._modules:
            holder.add_module(first, Holder())
        put(holder._modules[first], rest, thing, persistent)
    elif isinstance(thing, nn.Module):
        holder.add_module(first, thing)
    elif isinstance(thing, nn.Parameter):
        holder.register_parameter(first, thing)
    else:
        holder.register_buffer(first, thing, persistent)


class Stage(Holder):
    """What all stages have in common. The weights are those of the model, not copies: an optimizer
    of the model trains the stages, and moving a stage moves its part of the model."""

    INPUTS = OUTPUTS = LAST_USES = ()
    WEIGHTS = []
    BLOCKS = []
    CONSTANTS = {}

    def __init__(self, model=None):
        super().__init__()
        self.training = MODES[0] if model is None or model.training not in MODES else model.training
        if self.BLOCKS and model is None:
            raise ValueError(f"[stages] {self.BLOCKS} run as they are in the model; give the model")
        for weight in self.WEIGHTS:
            tensor = new_weight(weight) if model is None else find_weight(model, weight)
            for name in (weight.name, *weight.also):
                put(self, name, tensor, weight.kind != "non-persistent buffer")
        for path in self.BLOCKS:
            put(self, path, model.get_submodule(path))
        tensors = [*self.parameters(), *self.buffers()]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.CONSTANTS = {name: constant(model, t) for name, t in self.CONSTANTS.items()}
        self.constants = {name: t.to(self.device) for name, t in self.CONSTANTS.items()}

    def _apply(self, fn, recurse=True):
        for dtype in {t.dtype for t in (*self.parameters(), *self.buffers())}:
            if fn(torch.empty(0, dtype=dtype, device=self.device)).dtype != dtype:
                raise ValueError(
                    f"[stages] {dtype} would become another dtype; expected the dtypes of the "
                    "trace, which the code of the stages names; trace the model in the other one"
                )
        shared = [(m, name, b) for m in self.modules() for name, b in m._buffers.items()]
        super()._apply(fn, recurse)
        for module, name, buffer in shared:  # the model's own go along, as its parameters do
            moved = module._buffers[name]
            if moved is not buffer and torch._has_compatible_shallow_copy_type(buffer, moved):
                buffer.data = moved
                module._buffers[name] = buffer
        self.device = fn(torch.empty(0, device=self.device)).device
        self.constants = {name: t.to(self.device) for name, t in self.CONSTANTS.items()}
        return self

    def train(self, mode=True):
        if mode not in MODES:
            raise ValueError(
                f"[stages] {'train' if mode else 'eval'} mode, and the model was traced in the "
                "other one; write the stages from a trace in that mode, or from one in each"
            )
        return super().train(mode)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Takes what this stage has out of the state of the whole model, or of a stage. Of the
        names of a tied weight one will do."""
        own = super().state_dict().keys()
        mine = {name: tensor for name, tensor in state_dict.items() if name in own}
        for weight in self.WEIGHTS:
            names = [name for name in (weight.name, *weight.also) if name in own]
            known = [name for name in names if name in mine]
            mine.update({name: mine[known[0]] for name in names if known and name not in mine})
        result = super().load_state_dict(mine, strict, assign)
        for weight in self.WEIGHTS if assign else []:
            for name in weight.also:  # tied as before
                put(self, name, find_tensor(self, weight.name), name in own)
        return result


def find_weight(model, weight):
    """The model's own tensor."""
    tensor, *others = [find_tensor(model, name) for name in (weight.name, *weight.also)]
    found = None if tensor is None else (tuple(tensor.shape), tensor.dtype)
    if found != (weight.shape, weight.dtype):
        raise ValueError(
            f"[stages] the model has {found} as '{weight.name}'; expected {weight.shape} "
            f"{weight.dtype}; give the model that was traced, or write the stages again"
        )
    for name, other in zip(weight.also, others, strict=True):
        if other is None or other.data_ptr() != tensor.data_ptr():
            raise ValueError(
                f"[stages] '{name}' and '{weight.name}' are two tensors in the model; expected one "
                "as when it was traced; tie them, or write the stages again"
            )
    return tensor


def find_tensor(model, path):
    owner, _, name = path.rpartition(".")
    try:
        module = model.get_submodule(owner)
    except AttributeError:
        return None
    tensor = getattr(module, name, None)
    return tensor if isinstance(tensor, torch.Tensor) else None


def constant(model, tensor):
    """A tensor of the code, or of the model, which has not registered it."""
    if isinstance(tensor, torch.Tensor):
        return tensor
    return new_weight(tensor) if model is None else find_weight(model, tensor)


def new_weight(weight):
    """Without numbers, to be loaded from a checkpoint."""
    if weight.kind in ("non-persistent buffer", "attribute"):
        raise ValueError(
            f"[stages] '{weight.name}' is in no checkpoint, the model computes it; give the model"
        )
    tensor = torch.empty(weight.shape, dtype=weight.dtype)
    return nn.Parameter(tensor, weight.trained) if weight.kind == "parameter" else tensor
#? keeping


def keeping(*buffers):
    """For a checkpoint: what runs again in backward leaves these as the first run has."""

    @contextlib.contextmanager
    def kept():
        before = [buffer.clone() for buffer in buffers]
        try:
            yield
        finally:
            for buffer, value in zip(buffers, before, strict=True):
                buffer.data.copy_(value)  # no new version: autograd may hold the buffer

    return lambda: (contextlib.nullcontext(), kept())
#!
#? decoded


def decoded(shape, dtype, text):
    """A tensor of which the bytes are written as text."""
    raw = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)
#!
)py";

constexpr std::string_view kPatterns = R"py(
class Tensor(NamedTuple):
    """In a pattern: a tensor, by its name."""

    name: object
#? Number


class Number(NamedTuple):
    """In a pattern: a number that the model computes, by its name."""

    name: object
#!
#? ANY_DEVICE


ANY_DEVICE = object()  # in a pattern: the device of the tensors
#!
#? Row


class Row(NamedTuple):
    """In a pattern: a named tuple."""

    cls: str
    items: list
#!
#? Made


class Made(NamedTuple):
    """In a pattern: an object with fields, which is made without __init__."""

    cls: str
    fields: dict
    items: object = None
#!
#? Node


class Node(NamedTuple):
    """In a pattern: an object of a class that PyTorch can take apart."""

    cls: str
    children: list
    context: object
#!
#? Member


class Member(NamedTuple):
    """In a pattern: a member of an enum."""

    cls: str
    name: str
#!
#? Again


class Again(NamedTuple):
    """In a pattern: the object with that number, once more."""

    number: int
#!


def refuse(path, found, expected):
    raise ValueError(
        f"[stages] {path} is {found}; expected {expected}, as when the model was traced; write the "
        "stages again from a trace of such a call"
    )


def unpack(pattern, value, path="the result", values=None):
    """The tensors of a value by name. Refuses values that do not look like the pattern."""
    values = {} if values is None else values
    if isinstance(pattern, Tensor):
        if not isinstance(value, torch.Tensor):
            refuse(path, f"a {type(value).__name__}", "a tensor")
        values[pattern.name] = value
#? Number
    elif isinstance(pattern, Number):
        if not isinstance(value, (int, float)):
            refuse(path, f"a {type(value).__name__}", "a number")
        values[pattern.name] = value
#!
#? ANY_DEVICE
    elif pattern is ANY_DEVICE:
        if not isinstance(value, torch.device):
            refuse(path, repr(value), "a device")
#!
#? Row
    elif isinstance(pattern, Row):
        unpack_items(class_of(value, path, pattern.cls), pattern.items, value, path, values)
#!
#? Node
    elif isinstance(pattern, Node):
        cls = class_of(value, path, pattern.cls)
        children, context = torch.utils._pytree.SUPPORTED_NODES[cls].flatten_fn(value)
        unpack(pattern.context, context, path, values)
        unpack_items(list, pattern.children, list(children), path, values)
#!
#? Made
    elif isinstance(pattern, Made):
        class_of(value, path, pattern.cls)
        for name, part in pattern.fields.items():
            unpack(part, getattr(value, name, None), f"{path}.{name}", values)
        if pattern.items is not None:
            unpack(pattern.items, type(pattern.items)(value), path, values)
#!
#? Member
    elif isinstance(pattern, Member):
        class_of(value, path, pattern.cls)
        if value.name != pattern.name:
            refuse(path, value, pattern.name)
#!
#? Again
    elif isinstance(pattern, Again):
        pass  # its tensors have been found
#!
    elif isinstance(pattern, dict):
        if type(value) is not dict or list(value) != list(pattern):
            refuse(path, f"a {type(value).__name__}", f"a dict of {list(pattern)}")
        for key, part in pattern.items():
            unpack(part, value[key], f"{path}.{key}", values)
    elif isinstance(pattern, (list, tuple)):
        if type(value) is not type(pattern):
            refuse(path, f"a {type(value).__name__}", f"a {type(pattern).__name__}")
        unpack_items(type(value), pattern, value, path, values)
    elif type(value) is not type(pattern) or not (value == pattern or value != value):
        refuse(path, repr(value), repr(pattern))
    return values


def unpack_items(kind, patterns, items, path, values):
    if len(items) != len(patterns):
        refuse(path, f"a {kind.__name__} of {len(items)}", f"{len(patterns)} items")
    for i, (pattern, item) in enumerate(zip(patterns, items, strict=True)):
        unpack(pattern, item, f"{path}.{i}", values)
#? classes


def class_of(value, path, expected):
    """The class of a value, which has to be the one of that name."""
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    if name != expected:
        refuse(path, f"a {name}", f"a {expected}")
    return type(value)


def find_class(name):
    """A class that the program has imported."""
    module, _, path = name.partition(":")
    found = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise ImportError(f"[stages] the model's values have class {name}; import {module} first")
    return found
#!


def fill(pattern, values, made=None):
    """A value that looks like the pattern, made of tensors by name."""
    made = [] if made is None else made
    if isinstance(pattern, Tensor):
        return values[pattern.name]
#? Number
    if isinstance(pattern, Number):
        return values[pattern.name]
#!
#? ANY_DEVICE
    if pattern is ANY_DEVICE:
        tensors = (t for t in values.values() if isinstance(t, torch.Tensor))
        return next((t.device for t in tensors), torch.device("cpu"))
#!
#? Row
    if isinstance(pattern, Row):
        return tuple.__new__(find_class(pattern.cls), fill(pattern.items, values, made))
#!
#? Node
    if isinstance(pattern, Node):
        number = len(made)
        made.append(None)
        children = fill(pattern.children, values, made)
        context = fill(pattern.context, values, made)
        node = torch.utils._pytree.SUPPORTED_NODES[find_class(pattern.cls)]
        made[number] = node.unflatten_fn(children, context)
        return made[number]
#!
#? Made
    if isinstance(pattern, Made):
        return fill_object(pattern, values, made)
#!
#? Member
    if isinstance(pattern, Member):
        return find_class(pattern.cls)[pattern.name]
#!
#? Again
    if isinstance(pattern, Again):
        return made[pattern.number]
#!
#? set
    if isinstance(pattern, set):
        return set(pattern)
#!
    if isinstance(pattern, dict):
        return {fill(k, values, made): fill(v, values, made) for k, v in pattern.items()}
    if type(pattern) in (list, tuple):
        return type(pattern)(fill(part, values, made) for part in pattern)
    return pattern
#? Made


def fill_object(pattern, values, made):
    cls = find_class(pattern.cls)
    kinds = (collections.OrderedDict, dict, list, set, collections.deque, object)
    native = next(kind for kind in kinds if issubclass(cls, kind))
    thing = native.__new__(cls)
    made.append(thing)
    for name, part in pattern.fields.items():
        field = fill(part, values, made)
        if hasattr(thing, "__dict__"):
            thing.__dict__[name] = field
        else:
            object.__setattr__(thing, name, field)
    if pattern.items is not None:
        items = fill(pattern.items, values, made)
        if issubclass(native, dict):
            dict.update(thing, items)
        else:
            native.extend(thing, items) if native is not set else set.update(thing, items)
    return thing
#!
)py";

constexpr std::string_view kRun = R"py(
def inputs_of(args, kwargs):
    """The tensors of a call by name. Refuses calls of another form than the one that was traced."""
    extra = map(str, range(len(PARAMETERS), len(args)))
    given = dict(zip([*PARAMETERS, *extra], args))
    for name, value in kwargs.items():
        if name in given:
            raise TypeError(f"[stages] argument '{name}' is given twice; pass it once")
        given[name] = value
    for name in [name for name in given if name not in ARGUMENTS]:
        value = given.pop(name)
        if name not in DEFAULTS or repr(DEFAULTS[name]) != repr(value):
            refuse(f"argument '{name}'", "given", "none")
    values = {}
    for name, pattern in ARGUMENTS.items():
        if name not in given:
            refuse(f"argument '{name}'", "missing", "it")
        unpack(pattern, given[name], f"argument '{name}'", values)
    check_inputs(values)
    return values


def make_stages(model=None):
    """All stages. Their weights are the model's; without a model, load them from a checkpoint."""
    return [stage(model) for stage in STAGES]


def run(stages, *args, **kwargs):
    """What the model gives for these arguments: one stage after the other, each on its device."""
    if [stage.INPUTS for stage in stages] != [stage.INPUTS for stage in STAGES]:
        raise ValueError(
            f"[stages] run is given other stages than Stage0 to Stage{len(STAGES) - 1} in this "
            "order; give it what make_stages gives"
        )
    values = inputs_of(args, kwargs)
#? told
    values["B"] = batch_of(values)
#!
#? result_batch
    RESULT = result_pattern(batch_of(values))
#!
    for stage in stages:
        given = [on_device(name, values[name], stage) for name in stage.INPUTS]
        for name in stage.LAST_USES:
            del values[name]
        results = stage(*given)
        del given
        values.update(zip(stage.OUTPUTS, results if type(results) is tuple else (results,)))
    return fill(RESULT, values)


def on_device(name, value, stage):
    if not isinstance(value, torch.Tensor) or value.device == stage.device:
        return value
    if name in WRITTEN:
        raise ValueError(
            f"[stages] the model writes its input '{name}', which is on {value.device}; expected "
            f"it on {stage.device}, where it is written; move it there"
        )
    return value.to(stage.device)
)py";

constexpr std::string_view kCheck = R"py(
def trial(call, model, args, kwargs, backward=True):
    """What a call gives: results, with the inputs that it writes; gradients; and buffers
    afterwards, which are then put back."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    args, kwargs = copy.deepcopy((args, kwargs))
    inputs = inputs_of(args, kwargs)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(0)
#? result_batch
    RESULT = result_pattern(batch_of(inputs))
#!
    try:
        results = unpack(RESULT, call(*args, **kwargs))
        results = {name: torch.as_tensor(value) for name, value in results.items()}
        losses = [t.abs().square().mean() for t in results.values() if t.requires_grad]
        if losses and backward:
            sum(losses).backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
        model.zero_grad(set_to_none=True)
    results.update({f"input {name}": inputs[name] for name in WRITTEN})
    return {n: t.detach() for n, t in results.items()}, gradients, buffers


def difference(found, expected):
    """The largest difference of tensors by name, relative to the largest number of each, or to a
    tenth of the largest of all: what is zero but for rounding is no measure."""
    if found.keys() != expected.keys():
        return torch.inf
    worst = 0.0
    least = max((largest(tensor) for tensor in expected.values()), default=0.0) / 10
    for name, tensor in expected.items():
        other = found[name]
        if other.shape != tensor.shape or other.dtype != tensor.dtype:
            return torch.inf
        same = (other == tensor) | (other.isnan() & tensor.isnan())
        if bool(same.all()):
            continue
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        apart = (other.to(wide) - tensor.to(wide)).masked_fill(same, 0).abs().max().item()
        scale = max(largest(tensor), least)
        worst = max(worst, apart / scale if scale > 0 and apart == apart else torch.inf)
    return worst


def largest(tensor):
    sizes = tensor.detach().abs() if tensor.is_complex() else tensor.detach().double().abs()
    finite = sizes.double().nan_to_num(0, 0, 0)
    return finite.max().item() if finite.numel() else 0.0


def check(make_case, tolerance=1e-5):
    """Runs the stages and the model; prints how they differ. False where that is too much."""
    case = make_case()
    if not (isinstance(case, tuple) and len(case) == 3 and isinstance(case[0], nn.Module)):
        raise ValueError(
            f"[stages] the function to check with gives a {type(case).__name__}; expected the "
            "model, its positional and its named arguments"
        )
    model, args, kwargs = case
    sound, compared = True, False
    for training in MODES:
        mode = "train" if training else "eval"
        if training and not DRAWS_IN_ORDER:
            print(f"{mode}: not compared, the stages draw random numbers in another order")
            continue
        model.train(training)
        stages = [stage.train(training) for stage in make_stages(model)]
        backward, compared = True, True
        try:
            expected = trial(model, model, args, kwargs)
        except RuntimeError as error:  # of its forward too: then it comes again
            backward = False
            expected = trial(model, model, args, kwargs, backward)
            print(f"{mode}: no gradients, the model's own backward fails: {error}")
        found = trial(functools.partial(run, stages), model, args, kwargs, backward)
        parts = []
        for what, a, b in zip(("results", "gradients", "buffers"), found, expected):
            worst = difference(a, b)
            sound = sound and worst <= tolerance
            parts.append(f"{len(b)} {what} {f'differ by {worst:.3g}' if worst else 'equal'}")
        print(f"{mode}: {', '.join(parts)}")
    if not compared:
        print("nothing was compared: write the stages from a trace in each mode")
        return False
    print("the stages are the model" if sound else f"the stages differ by more than {tolerance}")
    return sound


def find_case(given):
    """The function of that name."""
    expected = "expected package.module:make_case"
    module, _, name = given.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module) if module[:1].strip(".") else None
    except ImportError as error:
        text = f"[stages] --check {given} cannot be imported ({error}); {expected}"
        raise ValueError(text) from error
    make_case = getattr(found, name, None)
    if not callable(make_case):
        raise ValueError(f"[stages] --check {given} names no function; {expected}")
    return make_case


def main():
    parser = argparse.ArgumentParser(description="Compares the stages with their model.")
    parser.add_argument(
        "--check",
        required=True,
        metavar="package.module:make_case",
        help="a function that gives the model, its positional and its named arguments",
    )
    given = parser.parse_args().check
    try:
        sound = check(find_case(given))
    except (ValueError, ImportError) as error:
        if not str(error).startswith("[stages] "):
            raise  # of the model itself
        parser.error(str(error))
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
)py";

std::string_view text_of(SupportPart part) {
  switch (part) {
    case SupportPart::stage: return kStage;
    case SupportPart::patterns: return kPatterns;
    case SupportPart::run: return kRun;
    case SupportPart::check: return kCheck;
  }
  return {};
}

}  // namespace

std::string support_text(SupportPart part, const std::set<std::string>& needs) {
  std::string_view rest = text_of(part).substr(1);
  std::string out;
  bool wanted = true;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.starts_with("#? ")) {
      wanted = needs.contains(std::string(line.substr(3)));
    } else if (line == "#!") {
      wanted = true;
    } else if (wanted) {
      out += line;
      out += '\n';
    }
  }
  return out;
}

}  // namespace kerf::codegen
