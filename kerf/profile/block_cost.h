// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What blocks of a graph cost that were measured each by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/json.h"
#include "kerf/base/units.h"

namespace kerf {

struct BlockCost {
  Nanoseconds forward;          // median
  Nanoseconds forward_spread;   // between the quartiles
  Nanoseconds backward;         // of all its gradients; 0 where it has none
  Nanoseconds backward_spread;  // between the quartiles
  // The most that it has allocated at one time, beside its weights, its inputs, and in backward the
  // gradients that come: in backward with what its forward has kept.
  Bytes forward_peak;
  Bytes backward_peak;
  Bytes weights;  // distinct storages of parameters, buffers and constants
  Bytes inputs;   // elements of the tensors that it takes from outside
  Bytes outputs;  // elements of the tensors that it gives away
  int samples = 0;
  friend bool operator==(const BlockCost&, const BlockCost&) = default;
};

// Times, peaks and samples; sizes follow from shapes, and are left out.
Json to_json(const BlockCost& cost);
BlockCost block_cost_from_json(const JsonReader& reader);

struct MeasuredBlock {
  std::string path;           // of the module; of an operator's own module, for one operator
  std::string name;           // class of the module, or the operator
  std::vector<NodeId> nodes;  // ascending
  // Blocks that do the same work have one number, and were measured once.
  std::int64_t kind = 0;
  BlockCost cost;
  friend bool operator==(const MeasuredBlock&, const MeasuredBlock&) = default;
};

// A line of a table: a module at some depth, or an operator by itself.
struct BlockRow {
  std::string path;
  std::string name;
  std::int64_t nodes = 0;
  std::int64_t blocks = 0;  // that were measured, and add up to it
  BlockCost cost;
  friend bool operator==(const BlockRow&, const BlockRow&) = default;
};

// What was taken from a cache of earlier measurements, by kind of block.
struct CacheUse {
  std::string folder;  // empty: none was used
  std::int64_t hits = 0;
  std::int64_t misses = 0;
  std::vector<std::string> reasons;  // of the misses, each with how often
  friend bool operator==(const CacheUse&, const CacheUse&) = default;
};

}  // namespace kerf
