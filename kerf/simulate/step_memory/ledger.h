// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensors that are alive, by kind, and the most that ever were. Private to simulate/step_memory.
#pragma once

#include <utility>
#include <vector>

#include "kerf/simulate/caching_allocator.h"
#include "kerf/simulate/step_memory/step_memory.h"

namespace kerf {

using TensorId = Id<struct TensorTag>;

class Ledger {
 public:
  explicit Ledger(bool accelerator) : accelerator_(accelerator) {}

  // With one owner. A tensor without bytes is known, and takes none.
  TensorId make(MemoryKind kind, Bytes bytes);
  void share(TensorId id) { ++tensors_[id.index()].owners; }
  // The last owner's release frees it.
  void release(TensorId id);
  int owners(TensorId id) const { return tensors_[id.index()].owners; }
  void recount(TensorId id, MemoryKind kind);  // from now on it is of this kind

  // The peak counts from here.
  void start_judging();
  // From here on. `node`: who makes and releases, as Step sets it.
  void start_listing() { is_listing_ = true; }
  void set_node(NodeId node) { node_ = node; }
  std::vector<BlockEvent> take_blocks() { return std::move(events_); }
  // Since it was last asked?
  bool found_new_peak() { return std::exchange(new_peak_, false); }

  Bytes in_use() const { return accelerator_ ? allocator_.allocated() : in_use_; }
  Bytes peak() const { return peak_; }
  const MemoryKinds& at_peak() const { return at_peak_; }
  Bytes of(MemoryKind kind) const { return live_[static_cast<std::size_t>(kind)]; }
  Bytes peak_reserved() const { return allocator_.peak_reserved(); }

 private:
  struct Tensor {
    MemoryKind kind;
    Bytes bytes;
    BlockId block;
    int owners;
    std::size_t number = kOlderBlock;
  };
  Bytes& live(MemoryKind kind) { return live_[static_cast<std::size_t>(kind)]; }

  bool accelerator_;
  CachingAllocator allocator_;
  std::vector<Tensor> tensors_;
  std::vector<TensorId> retired_;
  MemoryKinds live_{};
  MemoryKinds at_peak_{};
  Bytes in_use_;  // on a host
  Bytes peak_;
  bool new_peak_ = false;
  bool is_listing_ = false;
  NodeId node_;
  std::vector<BlockEvent> events_;
  std::size_t num_listed_ = 0;
};

}  // namespace kerf
