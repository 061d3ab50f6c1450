// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/table.h"

namespace kerf::formula {
namespace {

Bytes index_bytes(const Call& call) {
  Bytes sum;
  for (const ValueId id : call.inputs()) {
    if (call.is_tensor(id) && !is_floating(call.value(id).dtype)) sum += call.bytes(id);
  }
  return sum;
}

// Reads what it takes, not the whole table.
std::optional<OpCost> gather(const Call& call) {
  return OpCost{Unit::vector, 0, 0, call.output_bytes() * 2 + index_bytes(call)};
}

// Zeros for the whole source, to which the output's gradient is added where it was taken from.
void of_gather(Backward& backward) {
  const Call& call = backward.call();
  for (const ValueId source : backward.wanted()) {
    backward.add(source, call.output_elements(),
                 call.bytes(source) + call.output_bytes() * 3 + index_bytes(call));
  }
}

// embedding(table, indices, padding_idx, scale_grad_by_freq, sparse): a sparse gradient is the
// output's with the indices; a dense one is as large as the table.
void of_embedding(Backward& backward) {
  const Call& call = backward.call();
  if (!call.flag(4, "sparse")) return of_gather(backward);
  for (const ValueId weight : backward.wanted()) backward.add(weight, 0, index_bytes(call) * 2);
}

// Writes as much as the update holds (all arguments but the first), into a copy or in place.
std::optional<OpCost> scatter(const Call& call) {
  Bytes update;
  const ValueId target = call.tensor(0);
  for (const ValueId id : call.inputs()) {
    if (call.is_tensor(id) && id != target) update += call.bytes(id);
  }
  const bool in_place = !call.node().written.empty();
  return OpCost{Unit::vector, 0, 0, update * 2 + (in_place ? Bytes{0} : call.touched())};
}

// The source takes the output's gradient where it was put.
void add_source_gradients(Backward& backward) {
  const Call& call = backward.call();
  for (const ValueId input : backward.wanted()) {
    if (input == call.tensor(0)) continue;
    backward.add(input, 0, call.bytes(input) * 2 + index_bytes(call));
  }
}

// What was there before is gone where something was put: zeros in a copy of the gradient.
void of_overwriting(Backward& backward) {
  const Call& call = backward.call();
  const ValueId target = call.tensor(0);
  if (backward.wanted(target)) {
    backward.add(target, 0, call.bytes(target) * 2 + index_bytes(call));
  }
  add_source_gradients(backward);
}

}  // namespace

void add_indexing(Table& table) {
  table.add({gather, of_embedding}, {"embedding"});
  table.add({gather, of_gather},
            {"index_select", "gather", "index", "take", "take_along_dim", "embedding_bag",
             "_embedding_bag", "_unsafe_index", "max_unpool2d", "max_unpool3d"});
  table.add({scatter, add_source_gradients}, {"scatter_add", "index_add"});
  table.add({scatter, of_overwriting},
            {"scatter", "scatter_reduce", "index_put", "index_copy", "index_fill", "masked_scatter",
             "_index_put_impl", "put", "_unsafe_index_put"});
}

}  // namespace kerf::formula
