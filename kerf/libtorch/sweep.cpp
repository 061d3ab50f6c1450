// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/sweep.h"

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include "kerf/base/interrupt.h"
#include "kerf/graph/dtype.h"
#include "kerf/libtorch/allocator_watch.h"
#include "kerf/libtorch/autograd_function.h"
#include "kerf/libtorch/modes.h"

namespace kerf {
namespace {

using torch::autograd::variable_list;
using Function = AutogradFunction;

// Where gradients end. Those of weights stay until the sweep is over, as a parameter's would.
class Sink : public Function {
 public:
  // The engine runs the highest number first: gradients are taken as soon as they are there.
  explicit Sink(bool keeps) : Function(std::numeric_limits<std::uint64_t>::max()), keeps_(keeps) {}
  void tell(StepClock& clock) { clock_ = &clock; }
  variable_list apply(variable_list&& gradients) override {
    if (keeps_) kept_ = std::move(gradients);
    if (clock_ != nullptr) clock_->pause();
    return {};
  }

 private:
  bool keeps_;
  variable_list kept_;
  StepClock* clock_ = nullptr;
};

struct StepHook : torch::autograd::FunctionPreHook {
  StepHook(StepClock& told, std::size_t number) : clock(told), step(number) {}
  variable_list operator()(const variable_list& gradients) override {
    clock.step(step);
    return gradients;
  }
  StepClock& clock;
  std::size_t step;
};

// Saved tensors and the function's inputs are still there when it is called.
struct CloseHook : torch::autograd::FunctionPostHook {
  explicit CloseHook(AllocatorWatch& told) : watch(told) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    watch.close();
    return outputs;
  }
  AllocatorWatch& watch;
};

// Visits each edge into a function that can be reached from `roots`, once per function.
void for_each_function(const torch::autograd::edge_list& roots,
                       const std::function<void(const torch::autograd::Edge&)>& visit) {
  std::unordered_set<Function*> seen;  // looked up only
  torch::autograd::edge_list open;
  const auto meet = [&](const torch::autograd::Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge);
  };
  for (const auto& root : roots) meet(root);
  while (!open.empty()) {
    const torch::autograd::Edge edge = open.back();
    open.pop_back();
    for (const auto& next : edge.function->next_edges()) meet(next);
    visit(edge);
  }
}

// Tells the clock before each function between `roots` and the sinks.
void hook_functions(const torch::autograd::edge_list& roots, std::size_t step, StepClock& clock,
                    AllocatorWatch* watch) {
  for_each_function(roots, [&](const torch::autograd::Edge& edge) {
    Function& function = *edge.function;
    if (auto* sink = dynamic_cast<Sink*>(&function)) return sink->tell(clock);
    function.add_pre_hook(std::make_unique<StepHook>(clock, step));
    if (watch != nullptr) function.add_post_hook(std::make_unique<CloseHook>(*watch));
  });
}

// Where gradients of a block's inputs end and, if wanted, those of its own parameters.
torch::autograd::edge_list ends_of_block(const torch::autograd::edge_list& roots, bool parameters) {
  torch::autograd::edge_list out;
  for_each_function(roots, [&](const torch::autograd::Edge& edge) {
    Function* const function = edge.function.get();
    const bool is_parameter = dynamic_cast<torch::autograd::AccumulateGrad*>(function) != nullptr;
    if (dynamic_cast<Sink*>(function) != nullptr || (parameters && is_parameter)) {
      out.push_back(edge);
    }
  });
  return out;
}

void append_tensors(const c10::IValue& result, std::vector<at::Tensor>& out) {
  if (result.isTensorList()) {
    for (const at::Tensor& tensor : result.toTensorVector()) out.push_back(tensor);
  } else {
    out.push_back(result.isTensor() ? result.toTensor() : at::Tensor());
  }
}

}  // namespace

struct Sweep::Call {
  struct Input {
    int slot = -1;
    c10::IValue value;
    bool requires_grad = false;
    bool is_weight = false;
    bool is_written = false;
  };
  Kernel* kernel = nullptr;
  std::vector<Input> inputs;
  std::vector<c10::IValue> stack;   // prepared arguments, then what came of them
  std::vector<at::Tensor> results;  // in the order of the node's outputs
};

Sweep::Sweep(const Graph& graph, c10::Device device, std::int64_t batch)
    : graph_(graph), device_(device), batch_(batch), used_(graph.num_values()) {
  for (std::size_t v = 0; v < graph.num_values(); ++v)
    used_[v] = !graph.consumers(ValueId(v)).empty();
  for (const GraphOutput& output : graph.outputs()) {
    if (const auto* id = output.leaf.find<ValueId>()) used_[id->index()] = true;
  }
}

Sweep::~Sweep() = default;

void Sweep::add(Kernel& kernel, const Slots& slots, const SlotOf& slot_of) {
  const c10::AutoGradMode no_grad(false);
  const NodeId node = kernel.node();
  const auto inputs = graph_.inputs_of(node);
  const auto writes = graph_.writes(node);
  const auto requires_grad = [&](ValueId id) {
    return id.valid() && graph_.value(id).requires_grad;
  };
  const std::vector<ValueId>& outputs = graph_.node(node).outputs;
  const bool from_nowhere = std::none_of(inputs.begin(), inputs.end(), requires_grad) &&
                            std::any_of(outputs.begin(), outputs.end(), requires_grad);
  Call& call = calls_.emplace_back();
  call.kernel = &kernel;
  for (const ValueId id : inputs) {
    const Value& value = graph_.value(id);
    Call::Input& input = call.inputs.emplace_back();
    input.slot = slot_of(id);
    input.value = slots[static_cast<std::size_t>(input.slot)];
    input.is_weight = value.origin == Origin::weight;
    input.requires_grad = value.requires_grad;
    if (!input.value.isTensor()) continue;
    const bool changes = value.storage.valid() && graph_.is_written(value.storage);
    input.is_written = std::find(writes.begin(), writes.end(), value.storage) != writes.end();
    // A tensor made without a gradient gets one when one with a gradient is written into it.
    if (from_nowhere && changes && !input.is_weight && is_floating(value.dtype)) {
      input.requires_grad = true;
    }
    at::Tensor tensor = input.value.toTensor().variable_data();
    if (changes && !input.is_weight) tensor = tensor.clone();
    input.value = std::move(tensor);
  }
}

// Fresh tensors on the held memory: the last sweep's have a history, and may have been written.
void Sweep::prepare(Call& call, GradientsOf gradients) {
  const Node& node = graph_.node(call.kernel->node());
  const c10::AutoGradMode no_grad(false);
  for (const Call::Input& input : call.inputs) {
    const auto slot = static_cast<std::size_t>(input.slot);
    if (slot >= slots_.size()) slots_.resize(slot + 1);
    if (!input.value.isTensor()) {
      slots_[slot] = input.value;
      continue;
    }
    at::Tensor tensor = input.value.toTensor().variable_data();
    if (input.is_written && !input.is_weight) tensor = tensor.clone();
    const bool wanted = input.is_weight ? gradients == GradientsOf::inputs_and_weights
                                        : gradients != GradientsOf::nothing;
    if (wanted && input.requires_grad && node.grad_enabled) {
      AutogradFunctionPtr sink = make_autograd_function<Sink>(input.is_weight);
      const std::uint32_t number = sink->add_input_metadata(tensor);
      torch::autograd::impl::set_gradient_edge(tensor, {std::move(sink), number});
    }
    slots_[slot] = std::move(tensor);
  }
  const c10::AutoGradMode grad(gradients != GradientsOf::nothing && node.grad_enabled);
  if (call.kernel->is_opaque()) {
    for (at::Tensor& tensor : call.kernel->block_arguments(slots_)) {
      call.stack.emplace_back(std::move(tensor));
    }
  } else {
    call.stack = call.kernel->arguments(graph_, slots_, batch_);
  }
  std::fill(slots_.begin(), slots_.end(), c10::IValue());
}

void Sweep::run(Call& call) {
  const Node& node = graph_.node(call.kernel->node());
  if (call.kernel->is_opaque()) {
    std::vector<at::Tensor> inputs;
    for (const c10::IValue& value : call.stack) inputs.push_back(value.toTensor());
    call.stack.clear();
    for (at::Tensor& made : call.kernel->block()(inputs, batch_)) {
      call.stack.emplace_back(std::move(made));
    }
    return;
  }
  std::optional<AutocastScope> autocast;
  if (!node.autocast.empty()) autocast.emplace(node.autocast, device_);
  call.kernel->op()->callBoxed(call.stack);
}

void Sweep::forward(GradientsOf gradients, StepClock& clock) {
  clear();
  gradients_ = gradients;
  const std::size_t most = std::max<std::size_t>(1, std::min(calls_.size(), clock.most_steps()));
  for (std::size_t first = 0; first < calls_.size();) {
    const std::size_t last = std::min(calls_.size(), first + most);
    for (std::size_t i = first; i < last; ++i) prepare(calls_[i], gradients);
    clock.start();
    for (std::size_t i = first; i < last; ++i) {
      Call& call = calls_[i];
      const Node& node = graph_.node(call.kernel->node());
      const c10::AutoGradMode grad(gradients != GradientsOf::nothing && node.grad_enabled);
      poll_interrupt();
      clock.step(i);
      run(call);
    }
    clock.stop();
    for (std::size_t i = first; i < last; ++i) {
      for (const c10::IValue& result : calls_[i].stack) append_tensors(result, calls_[i].results);
      calls_[i].stack.clear();
    }
    first = last;
  }
}

torch::autograd::edge_list Sweep::take_roots(Call& call, std::vector<at::Tensor>& gradients) {
  const std::vector<ValueId>& outputs = graph_.node(call.kernel->node()).outputs;
  torch::autograd::edge_list roots;
  for (std::size_t r = 0; r < std::min(outputs.size(), call.results.size()); ++r) {
    const at::Tensor& result = call.results[r];
    if (!outputs[r].valid() || !is_used(outputs[r])) continue;
    if (!result.defined() || !result.requires_grad()) continue;
    roots.push_back(torch::autograd::impl::gradient_edge(result));
    const c10::AutoGradMode no_grad(false);
    gradients.push_back(at::ones_like(result));
  }
  call.results.clear();
  return roots;
}

void Sweep::backward_of_block(std::size_t number, StepClock& clock) {
  variable_list gradients;
  const torch::autograd::edge_list roots = take_roots(calls_[number], gradients);
  const torch::autograd::edge_list ends =
      ends_of_block(roots, gradients_ == GradientsOf::inputs_and_weights);
  if (ends.empty()) return;
  clock.start();
  clock.step(number);
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/false, ends);
  clock.stop();
}

void Sweep::backward_of(std::size_t first, std::size_t last, StepClock& clock,
                        AllocatorWatch* watch) {
  torch::autograd::edge_list roots;
  variable_list gradients;
  for (std::size_t i = last; i-- > first;) {  // in the order in which they will run
    const torch::autograd::edge_list own = take_roots(calls_[i], gradients);
    hook_functions(own, i, clock, watch);
    roots.insert(roots.end(), own.begin(), own.end());
  }
  if (roots.empty()) return;
  clock.start();
  torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
  clock.stop();
}

void Sweep::backward(StepClock& clock, AllocatorWatch* watch) {
  const std::size_t most = std::max<std::size_t>(1, std::min(calls_.size(), clock.most_steps()));
  for (std::size_t last = calls_.size(); last > 0;) {
    poll_interrupt();
    std::size_t first = last - 1;
    if (calls_[first].kernel->is_opaque()) {
      backward_of_block(first, clock);
    } else {
      while (first > 0 && last - first < most && !calls_[first - 1].kernel->is_opaque()) --first;
      backward_of(first, last, clock, watch);
    }
    last = first;
  }
}

void Sweep::clear() {
  for (Call& call : calls_) {
    call.stack.clear();
    call.results.clear();
  }
}

}  // namespace kerf
