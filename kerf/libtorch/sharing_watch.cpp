// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/sharing_watch.h"

#include <ATen/ops/clone.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/graph/sharing.h"

namespace kerf {
namespace {

// Does this batch leave one row, or none, where others have several?
bool is_single(const Value& value, std::int64_t batch) {
  return std::any_of(value.shape.begin(), value.shape.end(), [&](const Expr& size) {
    return !size.is_constant() && size.eval(batch) <= 1;
  });
}

[[noreturn]] void refuse(const Value& value, const at::Tensor& argument, bool traced,
                         std::int64_t batch, std::int64_t whole) {
  std::vector<std::string> expected;
  for (const Expr& stride : value.strides) expected.push_back(stride.str());
  throw Error(
      ErrorKind::run_failed,
      fmt::format(
          "it {} its argument '{}', which a later write shows, and {} when it was traced; the "
          "argument has sizes [{}] and strides [{}] in this {}, and was traced with strides [{}]; "
          "expected memory that is shared as for the whole batch; run with n_microbatches=1 on "
          "the device of the trace, or write x.clone() in the model where a copy is meant",
          traced ? "copies" : "may give the memory of", value.name,
          traced ? "gave its memory" : "copied it", fmt::join(argument.sizes(), ", "),
          fmt::join(argument.strides(), ", "),
          whole > batch ? fmt::format("micro-batch of {}", batch) : "batch",
          fmt::join(expected, ", ")));
}

}  // namespace

bool is_laid_out_as_traced(const at::Tensor& tensor, const Value& traced, std::int64_t batch) {
  for (std::size_t d = 0; d < traced.strides.size(); ++d) {
    const auto at = static_cast<std::int64_t>(d);
    if (tensor.size(at) > 1 && tensor.stride(at) != traced.strides[d].eval(batch)) return false;
  }
  return true;
}

SharingWatch::SharingWatch(const Graph& graph, NodeId node, const std::vector<int>& slot_of,
                           c10::Device device)
    : device_(device) {
  for (const SharingPair& pair : sharing_pairs(graph.data(), node)) {
    const int result = slot_of[pair.result.index()];
    if (result < 0) continue;  // nobody reads it
    pairs_.push_back({pair.argument, slot_of[pair.argument.index()], result, pair.traced});
  }
}

std::vector<at::Tensor> SharingWatch::arguments(const std::vector<c10::IValue>& slots) const {
  std::vector<at::Tensor> out;
  out.reserve(pairs_.size());
  for (const Pair& pair : pairs_) {
    out.push_back(slots[static_cast<std::size_t>(pair.argument_slot)].toTensor());
  }
  return out;
}

SharingWatch::Verdict SharingWatch::judge(const Value& value, const at::Tensor& argument,
                                          bool traced, bool shared, std::int64_t batch,
                                          std::int64_t whole) const {
  const bool part = whole > batch;
  if (!is_single(value, batch) && !(part && is_single(value, whole))) {
    // On the host a whole batch is laid out as the model's. On its way to an accelerator, or into a
    // recording, it may have been packed.
    if (shared == traced || (!part && device_.is_cpu())) return Verdict::right;
    return Verdict::refuse;
  }
  if (!part) return Verdict::right;
  // What cannot be shared where rows are one cannot be where they are many.
  if (!shared && !traced) return Verdict::right;
  // The trace is of several rows: it says what the whole batch does, of memory laid out like this.
  const bool known = !is_single(value, whole) && (is_laid_out_as_traced(argument, value, batch) ||
                                                  is_laid_out_as_traced(argument, value, whole));
  if (!known || !shared) return Verdict::refuse;
  return traced ? Verdict::right : Verdict::copy;
}

void SharingWatch::check(const Graph& graph, const std::vector<at::Tensor>& arguments,
                         std::vector<c10::IValue>& slots, std::int64_t batch,
                         std::int64_t whole) const {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    c10::IValue& place = slots[static_cast<std::size_t>(pairs_[i].result_slot)];
    if (!place.isTensor() || place.toTensor().numel() == 0) continue;
    const at::Tensor& argument = arguments[i];
    const Value& value = graph.value(pairs_[i].argument);
    const bool shared = place.toTensor().is_alias_of(argument);
    switch (judge(value, argument, pairs_[i].traced, shared, batch, whole)) {
      case Verdict::right: break;
      case Verdict::copy: place = at::clone(place.toTensor()); break;
      case Verdict::refuse: refuse(value, argument, pairs_[i].traced, batch, whole);
    }
  }
}

}  // namespace kerf
