// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

namespace kerf {
namespace {

using GradientEdge = torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

// Keeps what a function is given when it is called.
struct KeepHook : torch::autograd::FunctionPreHook {
  explicit KeepHook(variable_list& place) : kept(place) {}
  variable_list operator()(const variable_list& gradients) override {
    kept = gradients;
    return gradients;
  }
  variable_list& kept;
};

// Functions in an order in which each comes after those that it leads to; nothing below those that
// `ends` names.
template <class Ends>
std::vector<AutogradFunctionPtr> leaves_first(const edge_list& roots, const Ends& ends) {
  std::vector<AutogradFunctionPtr> order;
  std::unordered_map<AutogradFunction*, bool> done;  // looked up only
  std::vector<std::pair<AutogradFunctionPtr, std::size_t>> open;
  const auto meet = [&](const AutogradFunctionPtr& function) {
    if (function && done.try_emplace(function.get(), false).second) open.emplace_back(function, 0);
  };
  for (const GradientEdge& root : roots) {
    meet(root.function);
    while (!open.empty()) {
      const AutogradFunctionPtr function = open.back().first;
      if (open.back().second < function->next_edges().size() && !ends(*function)) {
        meet(function->next_edge(open.back().second++).function);
        continue;
      }
      order.push_back(function);
      open.pop_back();
    }
  }
  return order;
}

variable_list run_engine(const edge_list& roots, const variable_list& gradients,
                         const edge_list& outputs) {
  if (roots.empty()) return variable_list(outputs.size());
  return torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, /*keep_graph=*/true, /*create_graph=*/false,
      /*accumulate_grad=*/outputs.empty(), outputs);
}

}  // namespace

SplitBackward::SplitBackward(std::vector<at::Tensor> roots, std::vector<at::Tensor> gradients,
                             std::vector<WeightUse> uses)
    : roots_(std::move(roots)), gradients_(std::move(gradients)), uses_(std::move(uses)) {}

SplitBackward::Below SplitBackward::find_uses(const edge_list& edges) const {
  std::unordered_map<AutogradFunction*, std::size_t> numbers;  // looked up only
  for (std::size_t u = 0; u < uses_.size(); ++u) numbers.emplace(uses_[u].function.get(), u);
  Below below;
  const auto is_use = [&](const AutogradFunction& function) {
    return numbers.contains(const_cast<AutogradFunction*>(&function));
  };
  for (const AutogradFunctionPtr& found : leaves_first(edges, is_use)) {
    const auto use = numbers.find(found.get());
    if (use == numbers.end()) {
      const edge_list& next = found->next_edges();
      below.others = below.others || std::none_of(next.begin(), next.end(), [](const auto& edge) {
                       return edge.function != nullptr;
                     });
      continue;
    }
    below.uses.emplace_back(found, 0);
    below.numbers.push_back(use->second);
  }
  return below;
}

bool SplitBackward::find_functions(const std::vector<SunkTensor>& sinks) {
  std::unordered_map<AutogradFunction*, bool> leads;  // to a sink
  for (const SunkTensor& sink : sinks) leads[sink.edge().function.get()] = true;
  edge_list roots;
  for (const at::Tensor& root : roots_) {
    roots.push_back(torch::autograd::impl::gradient_edge(root));
  }
  std::vector<bool> used(uses_.size());
  for (const AutogradFunctionPtr& function :
       leaves_first(roots, [](const AutogradFunction&) { return false; })) {
    bool any = leads[function.get()];
    edge_list others;
    for (const GradientEdge& next : function->next_edges()) {
      if (!next.function) continue;
      any = any || leads[next.function.get()];
      if (!leads[next.function.get()]) others.push_back(next);
    }
    leads[function.get()] = any;
    if (!any || others.empty()) continue;
    auto waiting = std::make_unique<Waiting>(Waiting{function, {}, find_uses(others)});
    if (waiting->below.others) return false;
    for (const std::size_t u : waiting->below.numbers) {
      if (used[u]) return false;
      used[u] = true;
    }
    if (!waiting->below.uses.empty()) waiting_.push_back(std::move(waiting));
  }
  for (const auto& waiting : waiting_) {
    waiting->function->add_pre_hook(std::make_unique<KeepHook>(waiting->gradients));
  }
  for (std::size_t r = 0; r < roots.size(); ++r) {
    const bool leading = leads[roots[r].function.get()];
    (leading ? leading_ : others_).push_back(roots[r]);
    (leading ? leading_gradients_ : others_gradients_).push_back(gradients_[r]);
  }
  return true;
}

std::vector<at::Tensor> SplitBackward::inputs(const std::vector<SunkTensor>& sinks) {
  edge_list outputs;
  for (const SunkTensor& sink : sinks) outputs.push_back(sink.edge());
  std::vector<at::Tensor> made = run_engine(leading_, leading_gradients_, outputs);
  // Functions that wait hold what is below them: what is above, a loss for one, can go.
  roots_.clear();
  gradients_.clear();
  leading_.clear();
  leading_gradients_.clear();
  return made;
}

void SplitBackward::call(Waiting& waiting, variable_list& side) const {
  const variable_list given = std::move(waiting.gradients);  // the function is about to be called
  edge_list roots;
  variable_list gradients;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].defined()) continue;
    roots.emplace_back(waiting.function, static_cast<std::uint32_t>(i));
    gradients.push_back(given[i]);
  }
  const variable_list made = run_engine(roots, gradients, waiting.below.uses);
  for (std::size_t u = 0; u < made.size(); ++u) {
    at::Tensor& sum = side[waiting.below.numbers[u]];
    if (made[u].defined()) sum = sum.defined() ? sum.add(made[u]) : made[u];
  }
}

// Uses that are a leaf's only one: their gradients need no sum with others, and are handed over at
// once. All at the end would be a second set of gradients.
std::vector<bool> SplitBackward::find_single_uses() const {
  std::unordered_map<const c10::TensorImpl*, int> users;  // looked up only
  for (const WeightUse& use : uses_) ++users[use.used.unsafeGetTensorImpl()];
  std::vector<bool> single(uses_.size());
  for (std::size_t u = 0; u < uses_.size(); ++u) {
    const at::Tensor& used = uses_[u].used;
    single[u] = used.is_leaf() && users[used.unsafeGetTensorImpl()] == 1;
  }
  return single;
}

void SplitBackward::weights() {
  variable_list side(uses_.size());
  const std::vector<bool> single = find_single_uses();
  // In the order in which the engine would come to them: the last function first.
  for (auto waiting = waiting_.rbegin(); waiting != waiting_.rend(); ++waiting) {
    call(**waiting, side);
    for (const std::size_t u : (*waiting)->below.numbers) {
      if (!single[u] || !side[u].defined()) continue;
      run_engine({torch::autograd::impl::gradient_edge(uses_[u].used)}, {std::move(side[u])}, {});
      side[u] = at::Tensor();
    }
  }
  edge_list roots = others_;
  variable_list gradients = others_gradients_;
  for (std::size_t u = side.size(); u-- > 0;) {
    if (!side[u].defined()) continue;
    roots.push_back(torch::autograd::impl::gradient_edge(uses_[u].used));
    gradients.push_back(std::move(side[u]));
  }
  run_engine(roots, gradients, {});
}

}  // namespace kerf
