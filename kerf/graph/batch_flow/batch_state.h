// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What is known of one value about the samples of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kerf/base/id.h"
#include "kerf/graph/node.h"

namespace kerf {

// What the rows of a batched value hold: of sample b something that sample b alone decides, the
// same for every sample (zeros, an expanded weight), or the number b itself (arange(B)).
enum class BatchRows : std::uint8_t { own, same, numbers };

// Dimension `dim` of a batched value has outer*B*inner elements, and element (o*B + b)*inner + i
// belongs to sample b: heads folded into the batch are inner, two batches put one after the other
// are outer.
struct BatchState {
  enum class Kind : std::uint8_t {
    fixed,    // the same whatever the samples are and however many there are
    batched,  // see above
    unknown,  // `by` is the first operator that could not be followed
    mixed,    // `by` is the operator that brought samples together
  };
  Kind kind = Kind::fixed;
  BatchRows rows = BatchRows::own;
  int dim = -1;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  NodeId by;
  std::string_view why;  // a fixed text: "adds up the samples"

  static BatchState batched(int dim, std::int64_t outer, std::int64_t inner,
                            BatchRows rows = BatchRows::own) {
    return {Kind::batched, rows, dim, outer, inner, {}, {}};
  }
  static BatchState unknown(NodeId by, std::string_view why) {
    return {Kind::unknown, BatchRows::own, -1, 1, 1, by, why};
  }
  static BatchState mixed(NodeId by, std::string_view why) {
    return {Kind::mixed, BatchRows::own, -1, 1, 1, by, why};
  }

  bool is_fixed() const { return kind == Kind::fixed; }
  bool is_batched() const { return kind == Kind::batched; }
  // Mixed or unknown: nothing that is made of it is known either.
  bool is_lost() const { return kind == Kind::mixed || kind == Kind::unknown; }
  // Is any split of the dimension into outer and inner as right as the one that is noted?
  bool any_layout() const { return rows == BatchRows::same; }
  friend bool operator==(const BatchState&, const BatchState&) = default;
};

// c where a size is c*B exactly, c > 0.
std::optional<std::int64_t> batch_factor(const Expr& size);

// The state of a value that nothing but its shape tells about: the samples one after the other in
// the one dimension that holds B. Nothing when B stands in two dimensions, or not as c*B.
std::optional<BatchState> state_by_shape(const Value& value, BatchRows rows);

}  // namespace kerf
