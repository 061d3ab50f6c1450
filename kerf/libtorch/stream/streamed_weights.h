// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kerf/base/units.h"
#include "kerf/libtorch/stream/copy_thread.h"
#include "kerf/libtorch/stream/stream_slots.h"
#include "kerf/runtime/stream/streamer.h"

namespace kerf {

// Parameters of modules that are on a device (the host is one) only while their module runs:
// outside of that each is what it was, its home (a mapped file, or other memory of the host).
//
//   StreamedWeights weights({{"layers.0", parameters}, ...}, at::kCUDA, 2, slot_bytes);
//   weights.enter(0);  ... the module's forward ...  weights.leave(0);   weights.end_call();
//
// Not for several threads at once. Edits of a parameter, in place or by giving it other data, are
// seen by the next `enter`; what a forward writes into a parameter goes back to its home. Whoever
// keeps a view of a parameter from inside of a forward (a result, an attribute) gets a copy.
class StreamedWeights {
 public:
  struct Unit {
    std::string path;
    std::vector<at::Tensor> parameters;
  };

  // Throws Error(invalid_argument) for parameters that are not dense and on the host, and for a
  // unit that is larger than a slot.
  StreamedWeights(std::vector<Unit> units, at::Device device, std::size_t num_slots,
                  Bytes slot_bytes);
  // The parameters are at home again.
  ~StreamedWeights();
  StreamedWeights(const StreamedWeights&) = delete;
  StreamedWeights& operator=(const StreamedWeights&) = delete;

  // What a unit takes in a slot: every parameter begins at an aligned address.
  static Bytes bytes_of(const std::vector<at::Tensor>& parameters);

  void enter(std::size_t unit);
  void leave(std::size_t unit);
  void end_call() { streamer_->end_call(); }
  void call_is_like(std::size_t kind) { streamer_->call_is_like(kind); }
  // A call was left without its ends (an interrupt): all parameters are at home again.
  void abandon();
  const Streamer::Stats& stats() const { return streamer_->stats(); }

 private:
  struct Weight {
    at::Tensor parameter;
    StreamSlots::Piece piece;              // its home, and where it lies in a slot
    std::int64_t version = 0;              // when the unit was last entered or left
    std::optional<std::uint64_t> numbers;  // on the host, when the unit was entered: a hash
  };
  struct Placed {
    std::string path;
    std::vector<Weight> weights;
    std::vector<std::vector<at::Tensor>> in_slot;  // by slot: the weights as they lie there
    std::size_t slot = 0;                          // while it is entered
    int entered = 0;
  };

  void find_home(const std::string& path, Weight& weight) const;
  void notice_edits(std::size_t unit);
  static void watch_home(const Weight& weight);
  static bool may_be_written(const Placed& unit);
  const std::vector<at::Tensor>& views(Placed& unit, std::size_t slot);
  void go_home(Placed& unit);
  bool is_written_in_slot(const Weight& weight, const at::Tensor& in_slot) const;
  static std::optional<std::uint64_t> numbers_of(const at::Tensor& in_slot, bool may_be_written);
  static bool let_go(at::Tensor& in_slot, const at::Tensor& now);

  std::vector<Placed> units_;
  std::unique_ptr<StreamSlots> slots_;
  std::unique_ptr<CopyThread> mover_;
  std::unique_ptr<Streamer> streamer_;
};

}  // namespace kerf
