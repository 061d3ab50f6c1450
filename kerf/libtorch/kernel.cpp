// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/kernel.h"

#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/graph/arguments.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/operator_policy.h"
#include "kerf/libtorch/random.h"
#include "kerf/libtorch/schema_check.h"

namespace kerf {
namespace {

// "aten.linear.default" -> {"aten::linear", ""}
std::pair<std::string, std::string> operator_name(const std::string& op) {
  const std::size_t first = op.find('.');
  const std::size_t last = op.rfind('.');
  if (first == std::string::npos || first == last) return {op, ""};
  std::string overload = op.substr(last + 1);
  if (overload == "default") overload.clear();
  return {op.substr(0, first) + "::" + op.substr(first + 1, last - first - 1), overload};
}

bool holds_values(const Argument& argument) {
  bool found = false;
  for_each_value(argument, [&](ValueId) { found = true; });
  return found;
}

// Can `tensor` be seen with these sizes without a copy?
bool can_view(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  if (tensor.is_contiguous()) return true;
  const at::DimVector wanted = at::infer_size_dv(sizes, tensor.numel());
  return at::detail::computeStride(tensor.sizes(), tensor.strides(), wanted).has_value();
}

bool takes_generator(const c10::Argument& parameter) {
  const c10::TypePtr& type = parameter.real_type();
  return type->kind() == c10::TypeKind::OptionalType &&
         type->castRaw<c10::OptionalType>()->getElementType()->kind() ==
             c10::TypeKind::GeneratorType;
}

bool contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool leaves_model(const Graph& graph, StorageId storage) {
  return std::any_of(graph.outputs().begin(), graph.outputs().end(), [&](const auto& output) {
    const auto* id = output.leaf.template find<ValueId>();
    return id != nullptr && graph.value(*id).storage == storage;
  });
}

// May the caller hold this memory? A block's result may be what the block was given.
bool is_callers(const Graph& graph, StorageId storage) {
  const auto holds = [&](const auto& item) { return graph.value(item.value).storage == storage; };
  if (std::any_of(graph.inputs().begin(), graph.inputs().end(), holds)) return true;
  if (std::any_of(graph.weights().begin(), graph.weights().end(), holds)) return true;
  return leaves_model(graph, storage) ||
         std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
           return node.op == "opaque" &&
                  std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
                    return id.valid() && graph.value(id).storage == storage;
                  });
         });
}

bool is_written_after(const Graph& graph, NodeId node, StorageId storage) {
  if (!graph.is_written(storage)) return false;
  for (std::size_t n = node.index() + 1; n < graph.num_nodes(); ++n) {
    const auto writes = graph.writes(NodeId(n));
    if (std::find(writes.begin(), writes.end(), storage) != writes.end()) return true;
  }
  return false;
}

// Would it make a difference if what a block is given and what it gives, which were traced apart,
// were one memory?
bool must_be_apart(const Graph& graph, NodeId block, StorageId given, StorageId result) {
  if (!given.valid() || !result.valid()) return false;
  return is_written_after(graph, block, given) || is_written_after(graph, block, result) ||
         (leaves_model(graph, result) && is_callers(graph, given));
}

}  // namespace

Kernel::Strides Kernel::strides_needed(std::string_view op) {
  if (op == "aten.view.default" || op == "aten._unsafe_view.default") return Strides::viewed;
  if (op == "aten.view.dtype" || op == "aten.view_as_complex.default") {
    return Strides::reinterpreted;
  }
  if (op == "aten.as_strided.default") return Strides::as_traced;
  return Strides::any;
}

Kernel::Kernel(const Graph& graph, NodeId node, const std::vector<int>& slot_of,
               const std::vector<ValueId>& last_uses, c10::Device device, const OpaqueCalls& opaque)
    : node_(node), device_(device) {
  const Node& record = graph.node(node);
  for (const ValueId id : record.outputs) {
    outputs_.push_back(id.valid() ? slot_of[id.index()] : -1);
  }
  if (record.op == "opaque") {
    bind_opaque(graph, slot_of, opaque);
  } else {
    try {
      bind_operator(graph, slot_of, last_uses);
    } catch (const c10::Error& error) {  // such as a device that PyTorch does not know
      throw Error(
          ErrorKind::unsupported_operator,
          fmt::format("[libtorch.load] {} calls {} with arguments that PyTorch refuses: {}; "
                      "expected those of its schema; trace the model again",
                      graph.describe(node), record.op, error.what_without_backtrace()));
    }
  }
  stack_.reserve(std::max<std::size_t>(operands_.size(), outputs_.size()));
}

void Kernel::bind_operator(const Graph& graph, const std::vector<int>& slot_of,
                           const std::vector<ValueId>& last_uses) {
  const Node& node = graph.node(node_);
  const auto [name, overload] = operator_name(node.op);
  op_ = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op_) {
    throw Error(
        ErrorKind::unsupported_operator,
        fmt::format("[libtorch.load] {} needs operator {}, which this PyTorch does not have; "
                    "expected the PyTorch and the libraries the model was traced with; "
                    "import what registers it, or trace again",
                    graph.describe(node_), node.op));
  }
  strides_ = strides_needed(node.op);
  if (strides_ != Strides::any && !graph.inputs_of(node_).empty()) {
    const StorageId storage = graph.value(graph.inputs_of(node_)[0]).storage;
    alias_matters_ = storage.valid() && graph.is_written(storage);
    // as_strided sees the caller's own memory, whatever the strides of what it was given.
    for (const GraphInput& input : graph.inputs()) {
      const bool given = graph.value(input.value).storage == storage;
      alias_matters_ = alias_matters_ || (strides_ == Strides::as_traced && given);
    }
  }
  const c10::FunctionSchema& schema = op_->schema();
  if (const std::string reason = why_refused(schema); !reason.empty()) {
    throw Error(
        ErrorKind::unsupported_operator,
        fmt::format(
            "[libtorch.load] {} calls {}, which no graph may call: {}; expected operators that "
            "compute on tensors; remove it from the model, or put it into an opaque block",
            graph.describe(node_), node.op, reason));
  }
  const std::vector<const Argument*> given = match_arguments(graph, node_, schema);
  check_call(graph, node_, schema, given);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const c10::Argument& parameter = schema.arguments()[i];
    if (given[i] != nullptr) {
      operands_.push_back(bind_argument(*given[i], parameter.real_type(), slot_of, last_uses));
    } else {
      operands_.push_back(
          {Operand::Kind::constant, static_cast<std::uint32_t>(constants_.size()), false, {}, {}});
      constants_.push_back(*parameter.default_value());
    }
    if (takes_generator(parameter)) generator_ = operands_.back().index;
  }
  // A value used twice by one call is moved out by its last mention only.
  std::vector<std::uint32_t> seen;
  for (std::size_t i = operands_.size(); i-- > 0;) {
    Operand& operand = operands_[i];
    const auto once = [&](int slot, bool last) {
      const auto key = static_cast<std::uint32_t>(slot);
      if (!last || std::find(seen.begin(), seen.end(), key) != seen.end()) return false;
      seen.push_back(key);
      return true;
    };
    if (operand.kind == Operand::Kind::slot) {
      operand.last_use = once(static_cast<int>(operand.index), operand.last_use);
    }
    for (std::size_t k = operand.slots.size(); k-- > 0;) {
      operand.last_uses[k] = once(operand.slots[k], operand.last_uses[k]);
    }
  }
  if (node.op == "aten.dropout.default" && device_.is_cpu()) {
    dropout_ = true;
    generator_ = static_cast<std::uint32_t>(constants_.size());
    constants_.emplace_back();
  }
  single_output_ =
      schema.returns().size() == 1 && schema.returns()[0].type()->kind() != c10::TypeKind::ListType;
}

Kernel::Operand Kernel::bind_argument(const Argument& argument, const c10::TypePtr& type,
                                      const std::vector<int>& slot_of,
                                      const std::vector<ValueId>& last_uses) {
  Operand operand;
  if (const auto* id = argument.find<ValueId>()) {
    const c10::TypePtr inner = type->kind() == c10::TypeKind::OptionalType
                                   ? type->castRaw<c10::OptionalType>()->getElementType()
                                   : type;
    if (inner->kind() != c10::TypeKind::ListType) {
      operand.kind = Operand::Kind::slot;
      operand.index = static_cast<std::uint32_t>(slot_of[id->index()]);
      operand.last_use = contains(last_uses, *id);
      return operand;
    }
    // Tensor[] may be written as one tensor.
    return bind_argument(Argument{Argument::List{argument}}, type, slot_of, last_uses);
  }
  if (holds_values(argument)) {
    const c10::TypePtr list = type->kind() == c10::TypeKind::OptionalType
                                  ? type->castRaw<c10::OptionalType>()->getElementType()
                                  : type;
    const auto* list_type = list->castRaw<c10::ListType>();
    const bool optional =
        list_type != nullptr && list_type->getElementType()->kind() == c10::TypeKind::OptionalType;
    operand.kind = optional ? Operand::Kind::optional_list : Operand::Kind::list;
    for (const Argument& item : *argument.find<Argument::List>()) {
      const auto* id = item.find<ValueId>();
      operand.slots.push_back(id == nullptr ? -1 : slot_of[id->index()]);
      operand.last_uses.push_back(id != nullptr && contains(last_uses, *id));
    }
    return operand;
  }
  operand.index = static_cast<std::uint32_t>(constants_.size());
  if (depends_on_batch(argument)) {
    batch_constants_.push_back({operand.index, argument, type});
    constants_.emplace_back();
  } else {
    constants_.push_back(to_ivalue(argument, type, 0, device_));
  }
  return operand;
}

void Kernel::bind_opaque(const Graph& graph, const std::vector<int>& slot_of,
                         const OpaqueCalls& opaque) {
  const Node& node = graph.node(node_);
  const auto found = opaque.find(node.name);
  if (found == opaque.end()) {
    throw Error(ErrorKind::unsupported_operator,
                fmt::format("[libtorch.load] node '{}' is an opaque block, which C++ alone cannot "
                            "call; expected the Python model; run it through kerf.Pipeline",
                            node.name));
  }
  opaque_ = found->second;
  Operand operand;
  operand.kind = Operand::Kind::list;
  std::vector<StorageId> given;
  for (const Argument& item : check_opaque_call(graph, node_)) {
    const ValueId id = *item.find<ValueId>();
    operand.slots.push_back(slot_of[id.index()]);
    operand.last_uses.push_back(false);
    given.push_back(graph.value(id).storage);
  }
  operands_.push_back(std::move(operand));
  for (std::size_t r = 0; r < node.outputs.size(); ++r) {
    if (!node.outputs[r].valid()) continue;
    const StorageId result = graph.value(node.outputs[r]).storage;
    // Inputs may be one tensor at a call: a result that is one of them may be another, too.
    if (std::find(given.begin(), given.end(), result) != given.end()) continue;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (must_be_apart(graph, node_, given[i], result)) apart_.push_back({i, r});
    }
  }
}

// The first argument with strides that the operator can use. A copy is what eager's own reshape
// would make; it is refused where a write through the alias would have to be seen.
void Kernel::fit_strides(const Graph& graph, std::int64_t batch) {
  const at::Tensor& tensor = stack_[0].toTensor();
  const Value& traced = graph.value(graph.inputs_of(node_)[0]);
  bool fits = true;
  if (strides_ == Strides::viewed) {
    fits = can_view(tensor, stack_[1].toIntVector());
  } else if (strides_ == Strides::reinterpreted) {
    fits = tensor.is_contiguous() || (tensor.dim() > 0 && tensor.stride(-1) == 1);
  } else {
    for (std::size_t d = 0; d < traced.strides.size(); ++d) {
      const auto at = static_cast<std::int64_t>(d);
      fits = fits && (tensor.size(at) <= 1 || tensor.stride(at) == traced.strides[d].eval(batch));
    }
    fits = fits && tensor.storage_offset() * tensor.element_size() == traced.offset.eval(batch);
  }
  if (fits) return;
  const bool whole = traced.offset.eval(batch) == 0;
  if (alias_matters_ || (strides_ == Strides::as_traced && !whole)) {
    throw Error(ErrorKind::run_failed,
                fmt::format("its input has strides [{}] on {}, where the model was traced with "
                            "others, and a copy is not possible: the memory is the caller's or is "
                            "written; expected memory laid out as traced; trace the model on {} "
                            "with inputs like these, or put .contiguous() before the operator",
                            fmt::join(tensor.strides(), ", "), device_.str(), device_.str()));
  }
  if (strides_ != Strides::as_traced) {
    stack_[0] = tensor.contiguous();
    return;
  }
  std::vector<std::int64_t> strides;
  for (const Expr& stride : traced.strides) strides.push_back(stride.eval(batch));
  at::Tensor copy = at::empty_strided(tensor.sizes(), strides, tensor.options());
  stack_[0] = copy.copy_(tensor);
}

void Kernel::set_batch(std::int64_t batch) {
  if (batch == bound_batch_) return;
  for (const BatchConstant& constant : batch_constants_) {
    constants_[constant.index] = to_ivalue(constant.argument, constant.type, batch, device_);
  }
  bound_batch_ = batch;
}

std::optional<at::Generator> Kernel::generator() {
  if (!generator_) return std::nullopt;
  c10::IValue& place = constants_[*generator_];
  if (place.isNone()) place = make_generator(device_);
  return place.toGenerator();
}

bool Kernel::seed_generator(std::uint64_t seed) {
  std::optional<at::Generator> own = generator();
  if (!own) return false;
  const std::lock_guard lock(own->mutex());
  own->set_current_seed(seed);
  return true;
}

void Kernel::push(const Operand& operand, Slots& slots) {
  const auto value = [&](int slot, bool last) {
    c10::IValue& place = slots[static_cast<std::size_t>(slot)];
    return last ? std::move(place) : place;
  };
  switch (operand.kind) {
    case Operand::Kind::constant: stack_.push_back(constants_[operand.index]); return;
    case Operand::Kind::slot:
      stack_.push_back(value(static_cast<int>(operand.index), operand.last_use));
      return;
    case Operand::Kind::list: {
      c10::List<at::Tensor> list;
      list.reserve(operand.slots.size());
      for (std::size_t i = 0; i < operand.slots.size(); ++i) {
        list.push_back(value(operand.slots[i], operand.last_uses[i]).toTensor());
      }
      stack_.emplace_back(std::move(list));
      return;
    }
    case Operand::Kind::optional_list: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(operand.slots.size());
      for (std::size_t i = 0; i < operand.slots.size(); ++i) {
        if (operand.slots[i] < 0) {
          list.push_back(std::nullopt);
        } else {
          list.push_back(value(operand.slots[i], operand.last_uses[i]).toTensor());
        }
      }
      stack_.emplace_back(std::move(list));
      return;
    }
  }
}

// Results in the schema's order, lists flattened, as the graph numbers them.
void Kernel::store(Slots& slots) {
  std::size_t next = 0;
  const auto put = [&](c10::IValue&& value) {
    if (next < outputs_.size() && outputs_[next] >= 0) {
      slots[static_cast<std::size_t>(outputs_[next])] = std::move(value);
    }
    ++next;
  };
  for (c10::IValue& result : stack_) {
    if (result.isTensorList()) {
      for (at::Tensor tensor : result.toTensorVector()) put(c10::IValue(std::move(tensor)));
    } else {
      put(std::move(result));
    }
  }
  if (next != outputs_.size() && !outputs_.empty()) {
    throw Error(ErrorKind::run_failed,
                fmt::format("it gave {} results; the graph has {}; trace the model again", next,
                            outputs_.size()));
  }
}

void Kernel::run(const Graph& graph, Slots& slots, std::int64_t batch, std::int64_t whole) {
  if (sharing_.empty()) return call(graph, slots, batch);
  const std::vector<at::Tensor> arguments = sharing_.arguments(slots);
  call(graph, slots, batch);
  sharing_.check(graph, arguments, slots, batch, whole);
}

void Kernel::gather(const Graph& graph, Slots& slots, std::int64_t batch) {
  if (!batch_constants_.empty()) set_batch(batch);
  stack_.clear();
  for (const Operand& operand : operands_) push(operand, slots);
  if (strides_ != Strides::any) fit_strides(graph, batch);
}

std::vector<c10::IValue> Kernel::arguments(const Graph& graph, Slots& slots, std::int64_t batch) {
  gather(graph, slots, batch);
  return std::exchange(stack_, {});
}

void Kernel::call(const Graph& graph, Slots& slots, std::int64_t batch) {
  if (opaque_) return run_opaque(slots, batch);
  gather(graph, slots, batch);
  if (dropout_ && draws_dropout()) {
    call_dropout();
  } else if (c10::GradMode::is_enabled()) {
    op_->callBoxed(stack_);
  } else {
    // Nothing is recorded for backward, so the layer that would do it is passed by. The layer that
    // tracks views and versions stays: weights that change must be seen to change.
    const at::AutoDispatchBelowAutograd below_autograd;
    op_->callBoxed(stack_);
  }
  if (single_output_) {
    if (!outputs_.empty() && outputs_[0] >= 0) {
      slots[static_cast<std::size_t>(outputs_[0])] = std::move(stack_[0]);
    }
  } else {
    store(slots);
  }
  stack_.clear();
}

bool Kernel::draws_dropout() const {
  const double p = stack_[1].toDouble();
  return stack_[2].toBool() && p > 0 && p < 1 && stack_[0].toTensor().numel() > 0;
}

// As PyTorch's own: a mask of zeros and of 1 / (1 - p).
void Kernel::call_dropout() {
  const at::Tensor input = stack_[0].toTensor();
  const double kept = 1 - stack_[1].toDouble();
  at::Tensor mask;
  {
    const c10::AutoGradMode no_grad(false);
    mask = at::empty_like(input);
    mask.bernoulli_(kept, generator());
    mask.div_(kept);
  }
  stack_.clear();
  stack_.emplace_back(input.mul(mask));
}

std::vector<at::Tensor> Kernel::block_arguments(const Slots& slots) const {
  std::vector<at::Tensor> out;
  for (const int slot : operands_[0].slots) {
    out.push_back(slots[static_cast<std::size_t>(slot)].toTensor());
  }
  return out;
}

void Kernel::run_opaque(Slots& slots, std::int64_t batch) {
  const std::vector<at::Tensor> inputs = block_arguments(slots);
  std::vector<at::Tensor> results = opaque_(inputs, batch);
  if (results.size() != outputs_.size()) {
    throw Error(
        ErrorKind::run_failed,
        fmt::format("[libtorch.run] the opaque block gave {} tensors; it gave {} when it was "
                    "traced; trace the model again",
                    results.size(), outputs_.size()));
  }
  check_aliases(inputs, results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (outputs_[i] >= 0) slots[static_cast<std::size_t>(outputs_[i])] = std::move(results[i]);
  }
}

void Kernel::check_aliases(const std::vector<at::Tensor>& inputs,
                           const std::vector<at::Tensor>& results) const {
  for (const auto [input, result] : apart_) {
    const at::Tensor& given = inputs[input];
    if (!given.has_storage() || !results[result].has_storage()) continue;
    if (!given.is_alias_of(results[result])) continue;
    throw Error(ErrorKind::run_failed,
                "the block returned its input itself, or a part of it, where it gave a new tensor "
                "when it was traced, and a write or the caller would see the difference; expected "
                "a new tensor at every call; return x.clone() instead");
  }
}

std::string Kernel::describe_inputs(const Slots& slots) const {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  // The call's own stack holds what was moved out of the slots.
  if (!stack_.empty()) {
    for (const c10::IValue& value : stack_) {
      if (value.isTensor() || value.isTensorList()) add(describe(value));
    }
    return out;
  }
  for (const Operand& operand : operands_) {
    if (operand.kind == Operand::Kind::slot) add(describe(slots[operand.index]));
    for (const int slot : operand.slots) {
      if (slot >= 0) add(describe(slots[static_cast<std::size_t>(slot)]));
    }
  }
  return out;
}

}  // namespace kerf
