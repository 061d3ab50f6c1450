// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/step_memory/ledger.h"

namespace kerf {

TensorId Ledger::make(MemoryKind kind, Bytes bytes) {
  Tensor tensor{kind, bytes, {}, 1};
  if (bytes.count > 0) {
    if (accelerator_) tensor.block = allocator_.allocate(bytes);
    in_use_ += bytes;
    live(kind) += bytes;
    if (is_listing_) {
      tensor.number = num_listed_++;
      events_.push_back({true, tensor.number, bytes, node_});
    }
    const Bytes now = accelerator_ ? allocator_.allocated() : in_use_;
    if (now > peak_) {
      peak_ = now;
      at_peak_ = live_;
      new_peak_ = true;
    }
  }
  if (retired_.empty()) {
    tensors_.push_back(tensor);
    return TensorId{tensors_.size() - 1};
  }
  const TensorId id = retired_.back();
  retired_.pop_back();
  tensors_[id.index()] = tensor;
  return id;
}

void Ledger::release(TensorId id) {
  Tensor& tensor = tensors_[id.index()];
  if (--tensor.owners > 0) return;
  if (tensor.block.valid()) allocator_.free(tensor.block);
  if (is_listing_ && tensor.bytes.count > 0) {
    events_.push_back({false, tensor.number, tensor.bytes, node_});
  }
  in_use_ -= tensor.bytes;
  live(tensor.kind) -= tensor.bytes;
  retired_.push_back(id);
}

void Ledger::recount(TensorId id, MemoryKind kind) {
  Tensor& tensor = tensors_[id.index()];
  live(tensor.kind) -= tensor.bytes;
  live(kind) += tensor.bytes;
  tensor.kind = kind;
}

void Ledger::start_judging() {
  peak_ = accelerator_ ? allocator_.allocated() : in_use_;
  at_peak_ = live_;
  new_peak_ = true;
}

}  // namespace kerf
