// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/libtorch/block_error.h"
#include "kerf/libtorch/sharing_watch.h"

namespace kerf {

// The values of one micro-batch in one stage, by slot. Owned by the thread that runs it.
using Slots = std::vector<c10::IValue>;

// An opaque block: the original module, called with the interpreter lock that it takes itself.
// Arguments: the block's tensors and the batch size.
using OpaqueCall =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&, std::int64_t batch)>;

using OpaqueCalls = std::map<std::string, OpaqueCall>;  // by node name

// One node, resolved: its operator's handle, where its arguments come from, where its results go.
// Immutable but for the constants that depend on B, which are made once for each batch size.
class Kernel {
 public:
  // `slot_of[value]`: the value's slot, or -1. Values in `last_uses` are moved out of their slots.
  // Throws Error(unsupported_operator) naming the node when PyTorch has no such operator.
  Kernel(const Graph& graph, NodeId node, const std::vector<int>& slot_of,
         const std::vector<ValueId>& last_uses, c10::Device device, const OpaqueCalls& opaque);

  // `graph` is the one it was made from. `batch` is a micro-batch of `whole`, or all of it.
  void run(const Graph& graph, Slots& slots, std::int64_t batch, std::int64_t whole);

  // For others to call the operator themselves: its handle, null for an opaque block, and the
  // arguments that it would get. Last uses are moved out of `slots`.
  const c10::OperatorHandle* op() const { return op_ ? &*op_ : nullptr; }
  std::vector<c10::IValue> arguments(const Graph& graph, Slots& slots, std::int64_t batch);
  // The same for an opaque block: its tensors, which stay in `slots`, and the block itself.
  std::vector<at::Tensor> block_arguments(const Slots& slots) const;
  const OpaqueCall& block() const { return opaque_; }

  NodeId node() const { return node_; }
  // From now on it sees to it that memory is shared as it would be for the whole batch.
  void watch_sharing(const Graph& graph, const std::vector<int>& slot_of) {
    sharing_ = SharingWatch(graph, node_, slot_of, device_);
  }
  bool is_opaque() const { return static_cast<bool>(opaque_); }
  // Operators that take a generator draw from one of their own, which starts from `seed` now. False
  // for the others.
  bool seed_generator(std::uint64_t seed);
  // That generator; nothing for operators that take none.
  std::optional<at::Generator> generator();
  // The arguments of the call that failed, for the message.
  std::string describe_inputs(const Slots& slots) const;

 private:
  // One parameter of the schema.
  struct Operand {
    enum class Kind : std::uint8_t { constant, slot, list, optional_list } kind = Kind::constant;
    std::uint32_t index = 0;  // into constants_, or the slot
    bool last_use = false;
    std::vector<int> slots;       // of a list; -1: none
    std::vector<bool> last_uses;  // of a list
  };
  struct BatchConstant {  // to be made anew for another B
    std::uint32_t index;
    Argument argument;
    c10::TypePtr type;
  };

  void bind_operator(const Graph& graph, const std::vector<int>& slot_of,
                     const std::vector<ValueId>& last_uses);
  Operand bind_argument(const Argument& argument, const c10::TypePtr& type,
                        const std::vector<int>& slot_of, const std::vector<ValueId>& last_uses);
  void bind_opaque(const Graph& graph, const std::vector<int>& slot_of, const OpaqueCalls& opaque);
  void set_batch(std::int64_t batch);
  void fit_strides(const Graph& graph, std::int64_t batch);
  void push(const Operand& operand, Slots& slots);
  void gather(const Graph& graph, Slots& slots, std::int64_t batch);  // arguments into stack_
  void store(Slots& slots);
  void call(const Graph& graph, Slots& slots, std::int64_t batch);
  void run_opaque(Slots& slots, std::int64_t batch);
  // On a host dropout draws from the kernel's own generator, the numbers that it would draw from
  // PyTorch's with the same seed: stages need not queue for that one.
  bool draws_dropout() const;
  void call_dropout();
  void check_aliases(const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& results) const;

  // Operators that look at the strides of their first argument, which another device's kernels may
  // have laid out otherwise than the traced one's.
  enum class Strides : std::uint8_t { any, viewed, reinterpreted, as_traced };
  static Strides strides_needed(std::string_view op);

  NodeId node_;
  c10::Device device_;
  Strides strides_ = Strides::any;
  bool alias_matters_ = false;  // the memory of the first argument is written by a node
  SharingWatch sharing_;
  std::optional<c10::OperatorHandle> op_;
  std::vector<Operand> operands_;
  std::vector<c10::IValue> constants_;
  std::vector<BatchConstant> batch_constants_;
  std::optional<std::uint32_t> generator_;  // the constant that takes a generator
  bool dropout_ = false;                    // on a host; generator_ is beside its arguments
  std::int64_t bound_batch_ = -1;
  std::vector<int> outputs_;  // slots; -1: nobody wants it
  bool single_output_ = false;
  std::vector<c10::IValue> stack_;  // reused between calls
  OpaqueCall opaque_;
  // A block's input and result, by number, that had memory of their own when it was traced, and
  // must have: a write to one, or the caller, would show the difference.
  struct Apart {
    std::size_t input;
    std::size_t result;
  };
  std::vector<Apart> apart_;
};

}  // namespace kerf
