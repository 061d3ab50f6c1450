// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/spans/span_storages.h"

#include <algorithm>

#include "kerf/base/sort_unique.h"

namespace kerf {

SpanStorages::SpanStorages(const Graph& graph, const std::vector<Span>& spans,
                           const SavedSets& sets)
    : graph_(graph),
      spans_(spans),
      sets_(sets),
      owners_(graph.storages().size(), Owner::nobody),
      makers_(graph.storages().size(), kNobody),
      first_keeper_(graph.storages().size(), kNobody),
      added_(spans.size()) {
  for (const Weight& weight : graph.weights()) {
    const bool is_parameter = weight.kind == WeightKind::parameter;
    owners_[storage_of(weight.value).index()] = is_parameter ? Owner::parameter : Owner::buffer;
  }
  find_makers();
  find_keepers();
}

// Inputs of the graph are made where they are handed out; what no span hands out, before all.
void SpanStorages::find_makers() {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const auto note = [&](ValueId id) {
      if (!id.valid() || graph_.value(id).scalar) return;
      std::int64_t& maker = makers_[storage_of(id).index()];
      if (maker == kNobody) maker = static_cast<std::int64_t>(i);
    };
    for (std::size_t n = spans_[i].first.index(); n < spans_[i].last.index(); ++n) {
      for (const ValueId id : graph_.nodes()[n].outputs) note(id);
    }
    for (const ValueId id : spans_[i].outputs) note(id);
  }
}

void SpanStorages::find_keepers() {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    for (std::size_t n = spans_[i].first.index(); n < spans_[i].last.index(); ++n) {
      for (const SavedTensor& tensor : sets_.of(NodeId{n})) {
        added_[i] += tensor.bytes;
        if (!tensor.value.valid()) continue;
        const StorageId storage = storage_of(tensor.value);
        if (is_weight(storage) || is_kept(storage)) continue;
        first_keeper_[storage.index()] = static_cast<std::int64_t>(i);
        const std::int64_t maker = makers_[storage.index()];
        added_[maker == kNobody ? i : static_cast<std::size_t>(maker)] += bytes(storage);
      }
    }
  }
}

std::vector<StorageId> SpanStorages::made_outputs(std::size_t span) const {
  std::vector<StorageId> made;
  for (const ValueId id : spans_[span].outputs) {
    const StorageId storage = storage_of(id);
    if (!storage.valid() || is_weight(storage)) continue;
    if (makers_[storage.index()] == static_cast<std::int64_t>(span)) made.push_back(storage);
  }
  sort_unique(made);
  return made;
}

SpanStorages::Kept SpanStorages::kept_by(std::size_t span) const {
  Kept kept;
  std::vector<StorageId> inputs;
  std::vector<StorageId> inside;
  const std::vector<StorageId> outputs = made_outputs(span);
  for (std::size_t n = spans_[span].first.index(); n < spans_[span].last.index(); ++n) {
    for (const SavedTensor& tensor : sets_.of(NodeId{n})) {
      kept.inside += tensor.bytes;
      if (!tensor.value.valid()) continue;
      const StorageId storage = storage_of(tensor.value);
      if (is_weight(storage)) continue;
      const bool is_own = makers_[storage.index()] == static_cast<std::int64_t>(span);
      const bool is_output = std::binary_search(outputs.begin(), outputs.end(), storage);
      if (!is_output) (is_own ? inside : inputs).push_back(storage);
    }
  }
  sort_unique(inputs);
  sort_unique(inside);
  for (const StorageId id : inputs) kept.inputs += bytes(id);
  for (const StorageId id : inside) kept.inside += bytes(id);
  return kept;
}

Bytes SpanStorages::weight_bytes(std::size_t span, bool parameters) const {
  std::vector<StorageId> storages;
  const Owner wanted = parameters ? Owner::parameter : Owner::buffer;
  const auto note = [&](ValueId id) {
    const StorageId storage = storage_of(id);
    if (storage.valid() && owners_[storage.index()] == wanted) storages.push_back(storage);
  };
  for (const ValueId id : spans_[span].weights) note(id);
  for (const ValueId id : spans_[span].inputs) {
    if (graph_.value(id).origin == Origin::weight) note(id);
  }
  sort_unique(storages);
  Bytes sum;
  for (const StorageId id : storages) sum += bytes(id);
  return sum;
}

Bytes SpanStorages::all_weight_bytes(bool parameters) const {
  const Owner wanted = parameters ? Owner::parameter : Owner::buffer;
  Bytes sum;
  for (std::size_t s = 0; s < owners_.size(); ++s) {
    if (owners_[s] == wanted) sum += bytes(StorageId{s});
  }
  return sum;
}

Bytes SpanStorages::input_bytes(std::size_t span) const {
  Bytes sum;
  for (const ValueId id : spans_[span].inputs) {
    const Value& value = graph_.value(id);
    if (value.scalar || value.origin == Origin::weight || !is_floating(value.dtype)) continue;
    sum += value.bytes(0);
  }
  return sum;
}

}  // namespace kerf
