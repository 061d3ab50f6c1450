// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/taped_stage.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"
#include "kerf/libtorch/again.h"
#include "kerf/libtorch/autograd_function.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/overlap.h"

namespace kerf {
namespace {

using torch::autograd::variable_list;
using Work = TorchStage::Work;

// A weight with few users has a leaf for each, so that its gradient is summed over micro-batches
// user by user, and then over users: in the same order however the model is cut. One with more
// shares a leaf among the users of a stage, which saves a gradient's memory for each.
constexpr std::size_t kMostLeaves = 3;

bool can_have_gradient(const at::Tensor& tensor) {
  return torch::autograd::isDifferentiableType(tensor.scalar_type());
}

// Counts writes together with the weight: a loss that changes one is found out.
at::Tensor make_leaf(const at::Tensor& tensor) {
  at::Tensor leaf = tensor.detach();
  leaf.set_requires_grad(true);
  return leaf;
}

template <class Item>
const Item* find(const std::vector<Item>& items, ValueId value) {
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Item& item) { return item.value == value; });
  return found == items.end() ? nullptr : &*found;
}

template <class Item>
at::Tensor find_tensor(const std::vector<Item>& items, ValueId value) {
  const Item* const found = find(items, value);
  return found == nullptr ? at::Tensor() : found->tensor();
}

at::Tensor find_gradient(const Tape& tape, ValueId value) {
  const Tape::Leaf* const found = find(tape.leaves, value);
  return found == nullptr ? at::Tensor() : found->sunk.gradient();
}

// Autocast keeps casts of weights for further use: those of a run without gradients have no
// history, and those of a block that runs again end with it.
class NoCastCache {
 public:
  NoCastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoCastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  NoCastCache(const NoCastCache&) = delete;
  NoCastCache& operator=(const NoCastCache&) = delete;

 private:
  bool before_ = at::autocast::is_autocast_cache_enabled();
};

// Says which step's backward is about to run, and lets an interrupt end it.
struct MarkHook : torch::autograd::FunctionPreHook {
  MarkHook(std::size_t& told, std::size_t number) : current(told), step(number) {}
  variable_list operator()(const variable_list& gradients) override {
    current = step;
    poll_interrupt();
    return gradients;
  }
  std::size_t& current;
  std::size_t step;
};

}  // namespace

TapedStage::TapedStage(TorchStage& stage) : stage_(stage) {
  find_places();
  find_ranges();
}

TrainingStep::OfStage& TapedStage::own(const Work& work) const {
  return work.run.training->stages[stage_.program_.stage.index()];
}

void TapedStage::find_places() {
  const Graph& graph = stage_.graph_;
  step_places_.resize(stage_.program_.steps.size());
  for (const ValueId id : stage_.program_.weights) {
    const Value& value = graph.value(id);
    if (graph.is_written(value.storage)) continue;  // a buffer: the model's own tensor
    const bool each = graph.consumers(id).size() <= kMostLeaves;
    const std::size_t first = places_.size();
    for (std::size_t i = 0; i < stage_.program_.steps.size(); ++i) {
      const NodeId node = stage_.program_.steps[i].node;
      const auto inputs = graph.inputs_of(node);
      if (std::find(inputs.begin(), inputs.end(), id) == inputs.end()) continue;
      if (each || places_.size() == first) places_.push_back({value.position, stage_.slot(id), {}});
      places_.back().user = node;
      step_places_[i].push_back(places_.size() - 1);
    }
  }
}

void TapedStage::bind_step(std::size_t step, const Work& work) const {
  const std::vector<WeightLeaf>& leaves = own(work).leaves;
  for (const std::size_t place : step_places_[step]) {
    work.at(places_[place].slot) = leaves[place].tensor;
  }
}

// Before a step of a stage whose gradients of weights are made apart: what leads to weights alone
// gets a function of its own where it meets what leads to leaves (split_backward.h). Returns what
// stood in the slots.
std::vector<std::pair<int, c10::IValue>> TapedStage::part_ways(std::size_t step, const Work& work,
                                                               Tape& tape) const {
  const Graph& graph = stage_.graph_;
  const NodeId node = stage_.program_.steps[step].node;
  std::vector<std::pair<int, c10::IValue>> replaced;
  const auto inputs = graph.inputs_of(node);
  const auto leads = [&](ValueId id) {
    return tape.leads[static_cast<std::size_t>(stage_.slot(id))];
  };
  const bool any = std::any_of(inputs.begin(), inputs.end(), leads);
  const auto writes = graph.writes(node);
  for (const ValueId id : inputs) {
    c10::IValue& slot = work.at(stage_.slot(id));
    if (!any || leads(id) || !slot.isTensor() || !slot.toTensor().requires_grad()) continue;
    if (std::find(writes.begin(), writes.end(), graph.value(id).storage) != writes.end()) {
      tape.whole = true;
      continue;
    }
    const at::Tensor used = slot.toTensor();
    const at::Tensor use = at::alias(used);
    tape.uses.push_back({torch::autograd::impl::gradient_edge(use).function, used});
    replaced.emplace_back(stage_.slot(id), used);
    slot = use;
  }
  if (!any) return replaced;
  const auto mark = [&](ValueId id) {
    if (stage_.slot(id) >= 0) tape.leads[static_cast<std::size_t>(stage_.slot(id))] = true;
  };
  for (const ValueId id : graph.node(node).outputs) {
    if (id.valid()) mark(id);
  }
  for (std::size_t v = 0; !writes.empty() && v < graph.num_values(); ++v) {
    const StorageId storage = graph.values()[v].storage;
    if (std::find(writes.begin(), writes.end(), storage) != writes.end()) mark(ValueId{v});
  }
  return replaced;
}

TapedStage::Range TapedStage::describe_block(std::size_t first, std::size_t last) const {
  const Graph& graph = stage_.graph_;
  const Program& program = stage_.program_;
  Range range{first, last, true, {}, {}, {}};
  std::set<ValueId> made;
  std::set<ValueId> read;
  std::set<StorageId> written;
  for (std::size_t i = first; i < last; ++i) {
    for (const ValueId id : graph.inputs_of(program.steps[i].node)) {
      if (graph.value(id).origin != Origin::weight && !made.contains(id)) read.insert(id);
    }
    for (const ValueId id : graph.node(program.steps[i].node).outputs) {
      if (id.valid()) made.insert(id);
    }
    for (const StorageId storage : graph.writes(program.steps[i].node)) written.insert(storage);
  }
  range.inputs.assign(read.begin(), read.end());
  std::set<ValueId> dead;  // once the block has run
  for (std::size_t i = first; i < last; ++i) {
    dead.insert(program.steps[i].dead.begin(), program.steps[i].dead.end());
  }
  for (const ValueId id : made) {
    if (stage_.slot(id) >= 0 && !dead.contains(id)) range.outputs.push_back(id);
  }
  for (const ValueId id : program.weights) {
    if (written.contains(graph.value(id).storage)) range.buffers.push_back(stage_.slot(id));
  }
  return range;
}

// Not where a second run would write what others see, or where what comes out is memory that came
// in and is written at some time: a write through one name would not reach the other's history.
// What holds of a block wherever it is cut, plan/recompute.h has looked at.
bool TapedStage::can_run_again(const Range& range) const {
  const Graph& graph = stage_.graph_;
  std::set<StorageId> given;
  for (const ValueId id : range.inputs) {
    if (!graph.value(id).scalar) given.insert(graph.value(id).storage);
  }
  for (std::size_t i = range.first; i < range.last; ++i) {
    const NodeId node = stage_.program_.steps[i].node;
    const auto writes = graph.writes(node);
    if (std::any_of(writes.begin(), writes.end(), [&](StorageId s) { return given.contains(s); })) {
      return false;
    }
  }
  return std::none_of(range.outputs.begin(), range.outputs.end(), [&](ValueId id) {
    const Value& value = graph.value(id);
    return !value.scalar && given.contains(value.storage) && graph.is_written(value.storage);
  });
}

void TapedStage::find_ranges() {
  const std::vector<Step>& steps = stage_.program_.steps;
  // What runs again, or is Python's, makes all its gradients at once.
  unsplit_ = std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
    return step.block != 0 || stage_.graph_.node(step.node).op == "opaque";
  });
  for (std::size_t first = 0; first < steps.size();) {
    std::size_t last = first + 1;
    while (last < steps.size() && steps[last].block == steps[first].block) ++last;
    Range range{first, last, false, {}, {}, {}};
    if (steps[first].block != 0) {
      Range block = describe_block(first, last);
      if (can_run_again(block)) range = std::move(block);
    }
    ranges_.push_back(std::move(range));
    first = last;
  }
}

// Weights may have been frozen, or replaced, since the last step.
void TapedStage::make_leaves(const Work& work) const {
  std::vector<WeightLeaf>& leaves = own(work).leaves;
  if (!leaves.empty()) return;
  for (const Place& place : places_) {
    const at::Tensor& weight = stage_.weights_.on(place.weight, stage_.device_);
    const bool trained = stage_.weights_.original(place.weight).requires_grad();
    leaves.push_back({place.weight, place.user, trained ? make_leaf(weight) : weight.detach()});
  }
  if (!stage_.program_.makes_loss) return;
  for (const std::size_t weight : returned_weights()) {
    const at::Tensor& original = stage_.weights_.original(weight);
    leaves.push_back({weight, NodeId{stage_.graph_.num_nodes()},
                      original.requires_grad() ? make_leaf(original) : original.detach()});
  }
}

// Weights that the model returns as they are: a loss may be made of them. Their leaves come after
// those of the places, in this order.
std::vector<std::size_t> TapedStage::returned_weights() const {
  std::vector<std::size_t> out;
  for (const GraphOutput& output : stage_.graph_.outputs()) {
    const auto* const id = output.leaf.find<ValueId>();
    if (id == nullptr || stage_.graph_.value(*id).origin != Origin::weight) continue;
    out.push_back(stage_.graph_.value(*id).position);
  }
  return out;
}

void TapedStage::bind(Work& work, std::vector<c10::IValue>& places, const std::vector<bool>& needs,
                      Tape& tape) const {
  stage_.bind_weights(work);
  const std::size_t num_inputs = stage_.input_slots_.size();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool is_input = i < num_inputs;
    const ValueId value =
        is_input ? stage_.program_.inputs[i] : stage_.program_.received[i - num_inputs];
    const bool needed =
        is_input ? work.run.training->wanted[stage_.input_slots_[i].second] : needs[i - num_inputs];
    c10::IValue& slot = work.at(stage_.slot(value));
    slot = stage_.to_device(std::move(places[i]));
    if (!needed || !slot.isTensor() || !can_have_gradient(slot.toTensor())) continue;
    if (!is_input && !has_route(value)) {
      slot = slot.toTensor().detach();
      continue;
    }
    tape.leaves.push_back({value, SunkTensor(slot.toTensor())});
    slot = tape.leaves.back().tensor();
    tape.leads[static_cast<std::size_t>(stage_.slot(value))] = true;
  }
  const c10::AutoGradMode grad(true);
  for (const auto& group : stage_.program_.copied) copy_written(work, group);
}

// Does the plan send the value's gradient back? None is needed where no reader here has one to give
// (a comparison); otherwise it would be lost without a word.
bool TapedStage::has_route(ValueId value) const {
  const std::vector<Exchange>& out = stage_.program_.gradients_out;
  const bool known = std::any_of(out.begin(), out.end(),
                                 [&](const Exchange& given) { return given.value == value; });
  if (known) return true;
  if (stage_.graph_.value(value).requires_grad) return false;
  throw Error(ErrorKind::run_failed,
              fmt::format("[libtorch.train] '{}' needs a gradient in stage {}, and was traced as a "
                          "tensor that needs none; expected gradients as traced; keep what makes "
                          "and what reads it in one stage, or trace the model again",
                          stage_.graph_.value(value).name, stage_.program_.stage.index()));
}

// As TorchStage::copy_written, with history: the largest of several names of one memory is copied,
// and the others are made from the copy.
void TapedStage::copy_written(const Work& work, const std::vector<ValueId>& group) const {
  std::vector<c10::IValue*> open;
  for (const ValueId id : group) {
    c10::IValue& place = work.at(stage_.slot(id));
    if (place.isTensor()) open.push_back(&place);
  }
  std::stable_sort(open.begin(), open.end(), [](const c10::IValue* a, const c10::IValue* b) {
    return a->toTensor().numel() > b->toTensor().numel();
  });
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // original and copy
  for (c10::IValue* place : open) {
    const at::Tensor tensor = place->toTensor();
    const auto whole = std::find_if(copies.begin(), copies.end(), [&](const auto& pair) {
      return may_share_bytes(pair.first, tensor);
    });
    if (whole == copies.end()) {
      copies.emplace_back(tensor, tensor.clone());
      *place = copies.back().second;
      continue;
    }
    const auto& [original, copy] = *whole;
    const bool inside = original.is_contiguous() &&
                        original.scalar_type() == tensor.scalar_type() &&
                        tensor.storage_offset() >= original.storage_offset();
    if (!inside) {
      throw Error(ErrorKind::run_failed,
                  fmt::format("[libtorch.train] stage {} writes memory that it was given under "
                              "several names, none of which holds it all; expected one tensor; "
                              "keep the nodes that read it in the stage that makes it",
                              stage_.program_.stage.index()));
    }
    *place = copy.as_strided(tensor.sizes(), tensor.strides(),
                             tensor.storage_offset() - original.storage_offset());
  }
}

void TapedStage::mark_step(std::size_t step, const Work& work) {
  for (const ValueId id : stage_.graph_.node(stage_.program_.steps[step].node).outputs) {
    if (!id.valid() || stage_.slot(id) < 0) continue;
    const c10::IValue& made = work.at(stage_.slot(id));
    if (!made.isTensor() || !made.toTensor().requires_grad()) continue;
    const auto& function = made.toTensor().grad_fn();
    if (function) function->add_pre_hook(std::make_unique<MarkHook>(current_, step));
    return;  // one function has all of an operator's results
  }
}

void TapedStage::run_steps(Work& work, std::size_t first, std::size_t last) {
  const bool recorded = c10::GradMode::is_enabled();
  const bool apart = recorded && work.run.training->apart && !unsplit_;
  Tape& tape = own(work).tapes[work.microbatch];
  for (std::size_t i = first; i < last; ++i) {
    poll_interrupt();
    const Node& node = stage_.graph_.node(stage_.program_.steps[i].node);
    const c10::AutoGradMode grad(recorded && node.grad_enabled);
    bind_step(i, work);
    std::vector<std::pair<int, c10::IValue>> replaced;
    if (apart && node.grad_enabled) replaced = part_ways(i, work, tape);
    stage_.execute_step(i, work);
    for (auto& [slot, original] : replaced) {
      if (!work.at(slot).isNone()) work.at(slot) = std::move(original);  // others use it too
    }
    if (recorded && node.grad_enabled) mark_step(i, work);
  }
}

void TapedStage::run_block(Work& work, const Range& range) {
  Again again;
  again.name = stage_.graph_.node(stage_.program_.steps[range.first].node).name;
  const Graph& graph = stage_.graph_;
  bool needed = false;
  bool given = false;  // a gradient where none was traced: the caller's input wants one
  for (const ValueId id : range.inputs) {
    again.inputs.push_back(work.at(stage_.slot(id)));
    const c10::IValue& input = again.inputs.back();
    const bool has_gradient = input.isTensor() && input.toTensor().requires_grad();
    needed = needed || has_gradient;
    given = given || (has_gradient && !graph.value(id).requires_grad);
  }
  const std::vector<WeightLeaf>& leaves = own(work).leaves;
  for (std::size_t i = range.first; i < range.last; ++i) {
    for (const std::size_t p : step_places_[i]) {
      needed = needed || leaves[p].tensor.requires_grad();
    }
  }
  {
    const c10::AutoGradMode no_grad(false);
    const NoCastCache no_cache;
    run_steps(work, range.first, range.last);
  }
  if (!needed) return;
  again.rerun = [this, &range, given, run = &work.run, microbatch = work.microbatch](
                    const std::vector<c10::IValue>& inputs,
                    const std::vector<at::Tensor>& gradients) {
    Frame frame;
    run_again({*run, frame, microbatch}, range, given, inputs, gradients);
  };
  std::vector<at::Tensor> outputs;
  for (const ValueId id : range.outputs) {
    const c10::IValue& made = work.at(stage_.slot(id));
    const bool differentiable = made.isTensor() && (given || graph.value(id).requires_grad);
    outputs.push_back(differentiable ? made.toTensor() : at::Tensor());
  }
  attach(std::move(again), outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined()) work.at(stage_.slot(range.outputs[i])) = outputs[i];
  }
}

void TapedStage::run_again(const Work& first, const Range& range, bool given,
                           const std::vector<c10::IValue>& inputs,
                           const std::vector<at::Tensor>& gradients) {
  Work work = first;
  const c10::AutoGradMode grad(true);
  const NoCastCache no_cache;
  stage_.bind_weights(work);
  // The first run has updated the statistics; the second one's go nowhere.
  for (const int slot : range.buffers) work.at(slot) = work.at(slot).toTensor().clone();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    work.at(stage_.slot(range.inputs[i])) = inputs[i];
  }
  run_steps(work, range.first, range.last);
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> known;
  std::size_t next = 0;
  for (const ValueId id : range.outputs) {
    const c10::IValue& made = work.at(stage_.slot(id));
    if (!made.isTensor() || !can_have_gradient(made.toTensor())) continue;
    if (!given && !stage_.graph_.value(id).requires_grad) continue;  // it was not attached
    const at::Tensor& gradient = gradients[next++];
    if (!gradient.defined() || !made.toTensor().requires_grad()) continue;
    roots.push_back(made.toTensor());
    known.push_back(gradient);
  }
  work.frame.slots.clear();
  execute(work, roots, std::move(known));
}

TapedStage::Forward TapedStage::forward(Work& work, std::vector<c10::IValue>& places,
                                        const std::vector<bool>& needs) {
  make_leaves(work);
  Tape& tape = own(work).tapes[work.microbatch];
  tape = {};
  tape.leads.resize(stage_.num_slots_);
  bind(work, places, needs, tape);
  const c10::AutoGradMode grad(true);
  for (const Range& range : ranges_) {
    if (range.again) {
      run_block(work, range);
    } else {
      run_steps(work, range.first, range.last);
    }
  }
  Forward out;
  for (const Send& send : stage_.program_.sends) {
    stage_.check_slot(send.value, work);
    c10::IValue& made = work.at(stage_.slot(send.value));
    const bool needed = made.isTensor() && made.toTensor().requires_grad();
    out.needs_gradient.push_back(needed);
    out.sends.push_back(made.isTensor() ? c10::IValue(made.toTensor().detach()) : made);
    if (made.isTensor()) tape.outputs.push_back({send.value, made.toTensor()});
  }
  return out;
}

// It would have come to this stage's weights and not to those before.
void TapedStage::refuse_own_backward(const Tape& tape) {
  for (const auto& leaf : tape.leaves) {
    if (!leaf.sunk.gradient().defined()) continue;
    throw Error(ErrorKind::invalid_argument,
                "[libtorch.train] loss_fn has run backward itself; expected it to return the loss, "
                "whose backward is the pipeline's; leave the call out, or use torch.autograd.grad");
  }
}

at::Tensor TapedStage::make_loss(Work& work, Tape& tape, const std::vector<c10::IValue>& results,
                                 const std::vector<bool>& needs) {
  const TrainingStep& step = *work.run.training;
  const Program& program = stage_.program_;
  const c10::AutoGradMode grad(true);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ValueId value = program.results_in[i].value;
    if (find(tape.leaves, value) != nullptr || !results[i].isTensor()) continue;
    if (needs[i]) tape.leaves.push_back({value, SunkTensor(results[i].toTensor())});
  }
  std::vector<c10::IValue> given;
  std::size_t num_weights = 0;
  for (const GraphOutput& output : stage_.graph_.outputs()) {
    const auto* const id = output.leaf.find<ValueId>();
    if (const auto* size = output.leaf.find<Expr>()) {
      given.emplace_back(size->eval(work.batch()));
    } else if (id == nullptr) {
      given.emplace_back();
    } else if (stage_.graph_.value(*id).origin == Origin::input) {
      given.emplace_back(work.run.inputs[work.microbatch][stage_.graph_.value(*id).position]);
    } else if (stage_.graph_.value(*id).origin == Origin::weight) {
      given.emplace_back(own(work).leaves[places_.size() + num_weights++].tensor);
    } else if (const at::Tensor made = find_tensor(tape.outputs, *id); made.defined()) {
      given.emplace_back(made);
    } else if (const at::Tensor leaf = find_tensor(tape.leaves, *id); leaf.defined()) {
      given.emplace_back(leaf);
    } else {
      const auto at = std::find_if(program.results_in.begin(), program.results_in.end(),
                                   [&](const Exchange& e) { return e.value == *id; });
      KERF_CHECK(at != program.results_in.end(), "every result comes to the loss");
      given.push_back(results[static_cast<std::size_t>(at - program.results_in.begin())]);
    }
  }
  try {
    at::Tensor loss = step.loss(given, work.microbatch, work.batch());
    refuse_own_backward(tape);
    return loss;
  } catch (const BlockError&) {
    rethrow_block_error(fmt::format(
        "[libtorch.train] raised by loss_fn, called in the backward of {}", stage_.place_of(work)));
    throw;
  }
}

template <class Run>
void TapedStage::guarded(const Work& work, const Run& run) {
  current_ = stage_.program_.steps.size();
  try {
    run();
  } catch (const Interrupted&) {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    stage_.fail_backward(current_, work, error);
  }
}

void TapedStage::execute(const Work& work, const std::vector<at::Tensor>& roots,
                         const std::vector<at::Tensor>& gradients) {
  if (roots.empty()) return;
  torch::autograd::edge_list edges;
  for (const at::Tensor& root : roots) {
    edges.push_back(torch::autograd::impl::gradient_edge(root));
  }
  guarded(work, [&] {
    torch::autograd::Engine::get_default_engine().execute(edges, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  });
}

void TapedStage::execute_inputs(const Work& work, Tape& tape, std::vector<at::Tensor> roots,
                                std::vector<at::Tensor> gradients) {
  if (roots.empty()) return;
  auto& split = own(work).split[work.microbatch];
  split = std::make_unique<SplitBackward>(roots, gradients, std::move(tape.uses));
  std::vector<SunkTensor> sinks;
  for (const Tape::Leaf& leaf : tape.leaves) sinks.push_back(leaf.sunk);
  if (!split->find_functions(sinks)) {
    split.reset();
    return execute(work, roots, gradients);
  }
  roots.clear();
  gradients.clear();
  guarded(work, [&] {
    std::vector<at::Tensor> made = split->inputs(sinks);
    for (std::size_t i = 0; i < sinks.size(); ++i) sinks[i].set_gradient(std::move(made[i]));
  });
}

void TapedStage::weight_gradients(Work& work) {
  std::unique_ptr<SplitBackward> split = std::move(own(work).split[work.microbatch]);
  if (split) guarded(work, [&] { split->weights(); });
}

std::vector<at::Tensor> TapedStage::backward(Work& work, const std::vector<c10::IValue>& received,
                                             const std::vector<bool>& needs) {
  TrainingStep& step = *work.run.training;
  const Program& program = stage_.program_;
  Tape tape = std::move(own(work).tapes[work.microbatch]);
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> gradients;
  const std::size_t num_gradients = program.gradients_in.size();
  for (std::size_t first = 0, last = 0; first < num_gradients; first = last) {
    const ValueId value = program.gradients_in[first].value;
    while (last < num_gradients && program.gradients_in[last].value == value) ++last;
    at::Tensor sum;  // later stages first, as the engine adds up within a stage
    for (std::size_t i = last; i-- > first;) {
      if (!received[i].isTensor() || !received[i].toTensor().defined()) continue;
      sum = sum.defined() ? sum.add(received[i].toTensor()) : received[i].toTensor();
    }
    at::Tensor target = find_tensor(tape.outputs, value);
    if (!target.defined()) target = find_tensor(tape.leaves, value);
    if (!sum.defined() || !target.defined() || !target.requires_grad()) continue;
    roots.push_back(std::move(target));
    gradients.push_back(std::move(sum));
  }
  at::Tensor loss;
  if (step.loss && program.makes_loss) {
    loss = make_loss(
        work, tape, {received.begin() + static_cast<std::ptrdiff_t>(num_gradients), received.end()},
        {needs.begin() + static_cast<std::ptrdiff_t>(num_gradients), needs.end()});
  } else if (!step.loss) {
    loss = find_tensor(tape.outputs, step.loss_value);
  }
  if (loss.defined()) {
    stage_.check_loss(loss);
    step.losses[work.microbatch] = loss.detach();
    gradients.push_back(at::full_like(loss, step.shares[work.microbatch]));
    roots.push_back(std::move(loss));
  }
  tape.outputs.clear();
  if (step.apart && !unsplit_ && !tape.whole) {
    execute_inputs(work, tape, std::move(roots), std::move(gradients));
  } else {
    execute(work, roots, std::move(gradients));
  }
  std::vector<at::Tensor> out;
  for (const Exchange& given : program.gradients_out) {
    out.push_back(find_gradient(tape, given.value));
  }
  for (const auto& [slot, input] : stage_.input_slots_) {
    const at::Tensor gradient = find_gradient(tape, stage_.graph_.inputs()[input].value);
    if (!gradient.defined()) continue;
    own(work).input_gradients[work.microbatch].push_back({input, gradient});
  }
  return out;
}

}  // namespace kerf
