// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A device for every op: what the mended cost modes search over. Partitions are formed afterwards.
// Under the original's cost model no coarser grouping of the same placement is cheaper: merging
// partitions can only add waiting and bytes to a path.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/rows.h"
#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

// The graph's ops alone, numbered 0 .. size() in graph order, in flat arrays.
struct OpTable {
  struct Edge {
    std::uint32_t op;  // the other end
    // The tensor, and the leaves that both ends read (the original's rule), over the rate, and the
    // latency that the model counts.
    double seconds;
  };
  explicit OpTable(const Request& request);

  std::size_t size() const { return time.size(); }
  std::span<const Edge> in(std::size_t op) const {
    return {in_edges.data() + in_begin[op], in_edges.data() + in_begin[op + 1]};
  }
  std::span<const Edge> out(std::size_t op) const {
    return {out_edges.data() + out_begin[op], out_edges.data() + out_begin[op + 1]};
  }
  // What is held once a device, however many of its ops use it: leaves, and weights when counted
  // exactly.
  std::span<const std::uint32_t> shared(std::size_t op) const {
    return shared_items[static_cast<std::uint32_t>(op)];
  }

  std::vector<OpIndex> node;  // in the graph
  std::vector<double> time;   // 0 where it is not known
  std::vector<std::int64_t> own_bytes;
  std::vector<std::int64_t> output_bytes;
  std::vector<std::int64_t> item_bytes;
  bool charge_every_reader = true;  // of a tensor from elsewhere; else once a device

  std::vector<std::size_t> in_begin;
  std::vector<Edge> in_edges;
  std::vector<std::size_t> out_begin;
  std::vector<Edge> out_edges;
  Rows shared_items;
};

// Which device each op is on, and what that takes of its memory. Bytes are kept up to date;
// Search::best holds them against device_bytes in debug builds.
class Placement {
 public:
  static constexpr SlotId kNowhere = {};

  Placement(const OpTable& table, std::span<const Device> devices);

  SlotId device(std::size_t op) const { return device_[op]; }
  const std::vector<SlotId>& devices() const { return device_; }
  std::size_t num_devices() const { return limit_.size(); }
  std::int64_t bytes(std::size_t device) const { return bytes_[device]; }
  std::int64_t limit(std::size_t device) const { return limit_[device]; }
  bool over(std::size_t device) const { return bytes_[device] > limit_[device]; }
  bool fits() const;

  // From anywhere, also kNowhere. Linear in the op's neighbours.
  void move(std::size_t op, SlotId device);
  // Moves if no device is over its limit afterwards that was not before; else leaves it.
  bool try_move(std::size_t op, SlotId device);

 private:
  void leave(std::size_t op);
  void enter(std::size_t op, SlotId device);

  const OpTable* table_;
  std::vector<std::int64_t> limit_;
  std::vector<std::int64_t> bytes_;
  std::vector<SlotId> device_;
  std::vector<std::uint32_t> readers_;  // [op * devices + d]: its readers on d
  std::vector<std::uint32_t> holders_;  // [item * devices + d]: ops on d that use it
};

// Longest path of times and transfers between devices, by op.
class CriticalPath {
 public:
  explicit CriticalPath(const OpTable& table);
  // All of it. Returns the length.
  double update(const std::vector<SlotId>& device);
  double length() const { return length_; }
  // The longest path through the op if it were on `device` and all others stayed.
  double through(std::size_t op, SlotId device, const std::vector<SlotId>& devices) const;

 private:
  const OpTable* table_;
  std::vector<double> head_;  // of the paths that end with the op, itself included
  std::vector<double> tail_;  // of those that start with it, itself included
  double length_ = 0;
};

}  // namespace kerf::partition::fx
