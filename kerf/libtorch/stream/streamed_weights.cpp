// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/streamed_weights.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/base/hash.h"
#include "kerf/libtorch/stream/device_slots.h"
#include "kerf/libtorch/stream/file_window.h"
#include "kerf/libtorch/stream/host_slots.h"
#include "kerf/libtorch/stream/mapped_file.h"
#include "kerf/libtorch/stream/pages.h"
#include "kerf/libtorch/stream/write_watch.h"

namespace kerf {
namespace {

constexpr std::size_t kFarApart = 1 << 20;  // bytes between weights that are not looked at together

// Of an inference tensor nobody counts the writes: it may always have changed.
std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
}

}  // namespace

StreamedWeights::StreamedWeights(std::vector<Unit> units, at::Device device, std::size_t num_slots,
                                 Bytes slot_bytes) {
  const auto bytes_of_slot = static_cast<std::size_t>(slot_bytes.count);
  if (device.is_cpu()) {
    slots_ = std::make_unique<HostSlots>(num_slots, bytes_of_slot);
  } else {
    slots_ = std::make_unique<DeviceSlots>(device, num_slots, bytes_of_slot);
  }
  for (Unit& unit : units) {
    const Bytes bytes = bytes_of(unit.parameters);
    if (bytes > slot_bytes) {
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("[libtorch.streamed_weights] unit '{}' has {} of weights; expected no "
                      "more than a slot takes, {}; make the slots larger",
                      unit.path, to_string(bytes), to_string(slot_bytes)));
    }
    Placed placed{std::move(unit.path), {}, std::vector<std::vector<at::Tensor>>(num_slots), 0};
    std::size_t offset = 0;
    for (at::Tensor& parameter : unit.parameters) {
      Weight weight{std::move(parameter), {{}, offset}, 0};
      find_home(placed.path, weight);
      offset = slot_aligned(offset + weight.piece.home.nbytes());
      placed.weights.push_back(std::move(weight));
    }
    units_.push_back(std::move(placed));
  }
  mover_ = std::make_unique<CopyThread>(
      [this](std::size_t unit) {
        std::vector<StreamSlots::Piece> pieces;
        for (const Weight& weight : units_[unit].weights) pieces.push_back(weight.piece);
        return pieces;
      },
      *slots_);
  streamer_ = std::make_unique<Streamer>(units_.size(), num_slots, *mover_,
                                         [this](std::size_t unit) { return units_[unit].path; });
}

StreamedWeights::~StreamedWeights() {
  abandon();
  mover_.reset();  // before homes go that it copies from
  slots_->settle();
}

Bytes StreamedWeights::bytes_of(const std::vector<at::Tensor>& parameters) {
  std::size_t bytes = 0;
  for (const at::Tensor& parameter : parameters) bytes = slot_aligned(bytes + parameter.nbytes());
  return {static_cast<std::int64_t>(bytes)};
}

// What the parameter is now.
void StreamedWeights::find_home(const std::string& path, Weight& weight) const {
  const at::Tensor& parameter = weight.parameter;
  if (parameter.layout() != at::kStrided || !parameter.is_cpu() ||
      !parameter.is_non_overlapping_and_dense() || parameter.is_conj() || parameter.is_neg()) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[libtorch.streamed_weights] a weight of unit '{}' is {}; expected a "
                    "dense tensor on the host, its numbers next to each other; keep the unit "
                    "resident",
                    path,
                    parameter.layout() != at::kStrided ? "not strided"
                    : parameter.is_cpu()               ? "spread over its memory"
                                                       : "on " + parameter.device().str()));
  }
  weight.piece.home = parameter.variable_data();
  weight.piece.window = slots_->device().is_cpu() ? FileWindow::of(weight.piece.home) : nullptr;
  weight.piece.is_pinned = !slots_->device().is_cpu() && weight.piece.home.is_pinned();
  weight.version = version_of(parameter);
}

// In place (a version), by other data (an address), or behind PyTorch's back, by what .data gave (a
// written page of the file, or a watched tensor). What a slot holds of the unit is then old.
void StreamedWeights::notice_edits(std::size_t unit) {
  bool edited = false;
  for (Weight& weight : units_[unit].weights) {
    const at::Tensor& now = weight.parameter;
    const bool replaced = now.const_data_ptr() != weight.piece.home.const_data_ptr() ||
                          now.sizes() != weight.piece.home.sizes() ||
                          now.strides() != weight.piece.home.strides() ||
                          now.is_conj() != weight.piece.home.is_conj() ||
                          now.is_neg() != weight.piece.home.is_neg() ||
                          now.scalar_type() != weight.piece.home.scalar_type();
    if (replaced) {
      if (!now.is_cpu()) {
        throw Error(
            ErrorKind::invalid_argument,
            fmt::format("[libtorch.streamed_weights] a weight of unit '{}' was moved to {} while "
                        "the model is placed; expected it on the host, which it is streamed from; "
                        "move it back, or call remove() before the model is moved",
                        units_[unit].path, now.device().str()));
      }
      if (now.nbytes() != weight.piece.home.nbytes()) {  // before anything is taken over
        throw Error(
            ErrorKind::invalid_argument,
            fmt::format("[libtorch.streamed_weights] a weight of unit '{}' has {} bytes now "
                        "and had {} when the model was placed; expected as many; place the "
                        "model again",
                        units_[unit].path, now.nbytes(), weight.piece.home.nbytes()));
      }
      mover_->settle();  // a copy may be reading the old one
      find_home(units_[unit].path, weight);
      for (auto& views : units_[unit].in_slot) views.clear();
      edited = true;
    }
    const std::int64_t version = version_of(weight.parameter);
    edited = edited || version < 0 || version != weight.version;
    weight.version = version;
  }
  edited = edited || may_be_written(units_[unit]);
  if (!edited) return;
  streamer_->invalidate(unit);
  for (const Weight& weight : units_[unit].weights) watch_home(weight);
}

// From here on writes are noticed, unless somebody else has the memory: an array of NumPy, say,
// which writes to it without asking.
void StreamedWeights::watch_home(const Weight& weight) {
  constexpr std::size_t kOwn = 2;  // the parameter's and the home's
  if (weight.piece.home.storage().use_count() == kOwn) watch_writes(weight.piece.home);
}

// The weights of a module lie next to each other in most files: one look at all of them, then. What
// lies elsewhere and is not watched may always have been written.
bool StreamedWeights::may_be_written(const Placed& unit) {
  const std::byte* low = nullptr;
  const std::byte* high = nullptr;
  std::size_t bytes = 0;
  if (std::all_of(unit.weights.begin(), unit.weights.end(), [](const Weight& weight) {
        return weight.piece.home.nbytes() == 0 || is_watched(weight.piece.home);
      })) {
    return false;
  }
  for (const Weight& weight : unit.weights) {
    const auto* const begin = static_cast<const std::byte*>(weight.piece.home.const_data_ptr());
    low = low == nullptr ? begin : std::min(low, begin);
    high = std::max(high, begin + weight.piece.home.nbytes());
    bytes += weight.piece.home.nbytes();
  }
  if (bytes == 0) return false;
  const auto together = MappedFile::at(low);
  if (together && together == MappedFile::at(high - 1) &&
      static_cast<std::size_t>(high - low) < 2 * bytes + kFarApart) {
    if (!any_written(low, static_cast<std::size_t>(high - low))) return false;
  }
  return std::any_of(unit.weights.begin(), unit.weights.end(), [](const Weight& weight) {
    if (weight.piece.home.nbytes() == 0 || is_watched(weight.piece.home)) return false;
    const void* const begin = weight.piece.home.const_data_ptr();
    const auto file = MappedFile::at(begin);
    return !file || any_written(begin, weight.piece.home.nbytes());
  });
}

const std::vector<at::Tensor>& StreamedWeights::views(Placed& unit, std::size_t slot) {
  std::vector<at::Tensor>& views = unit.in_slot[slot];
  if (!views.empty()) return views;
  for (const Weight& weight : unit.weights) views.push_back(slots_->view(slot, weight.piece));
  return views;
}

void StreamedWeights::enter(std::size_t unit) {
  Placed& placed = units_[unit];
  if (placed.entered > 0) {  // from inside of itself
    ++placed.entered;
    return;
  }
  // StreamSlots' tensors are made here and stay: they must not be inference tensors.
  const c10::InferenceMode normal(false);
  notice_edits(unit);
  placed.slot = streamer_->acquire(unit);
  const std::vector<at::Tensor>& there = views(placed, placed.slot);
  for (std::size_t w = 0; w < placed.weights.size(); ++w) {
    Weight& weight = placed.weights[w];
    const auto& window = weight.piece.window;
    if (there[w].is_cpu()) weight.numbers = numbers_of(there[w], !window || window->was_written());
    weight.parameter.set_data(there[w]);
  }
  placed.entered = 1;
}

void StreamedWeights::leave(std::size_t unit) {
  Placed& placed = units_[unit];
  KERF_CHECK(placed.entered > 0, "a unit is left that was not entered");
  if (--placed.entered > 0) return;
  go_home(placed);
  streamer_->release(unit);
}

void StreamedWeights::go_home(Placed& unit) {
  const c10::InferenceMode normal(false);
  std::vector<at::Tensor>& in_slot = unit.in_slot[unit.slot];
  bool kept = false;
  for (std::size_t w = 0; w < unit.weights.size(); ++w) {
    Weight& weight = unit.weights[w];
    const at::Tensor now = weight.parameter.variable_data();
    const bool replaced = now.const_data_ptr() != in_slot[w].const_data_ptr();
    const bool written = replaced || version_of(weight.parameter) != weight.version ||
                         is_written_in_slot(weight, in_slot[w]);
    if (replaced && (now.sizes() != weight.piece.home.sizes() ||
                     now.scalar_type() != weight.piece.home.scalar_type())) {
      weight.version = version_of(weight.parameter);  // it is what it was made; see notice_edits
      continue;
    }
    weight.parameter.set_data(weight.piece.home);
    if (written) weight.piece.home.copy_(now);
    weight.version = version_of(weight.parameter);
    kept = let_go(in_slot[w], now) || written || kept;
  }
  if (kept) in_slot.clear();  // made anew
}

// Through .data, which no version counts. On the host much asks for a pointer to write that only
// reads, so there numbers are looked at.
bool StreamedWeights::is_written_in_slot(const Weight& weight, const at::Tensor& in_slot) const {
  if (in_slot.nbytes() == 0) return false;
  if (!in_slot.is_cpu()) return !is_watched(in_slot);
  const auto& window = weight.piece.window;
  return numbers_of(in_slot, !window || window->is_written()) != weight.numbers;
}

// Nothing where pages are as the file has them. All other numbers are read.
std::optional<std::uint64_t> StreamedWeights::numbers_of(const at::Tensor& in_slot,
                                                         bool may_be_written) {
  if (!may_be_written) return std::nullopt;
  return quick_hash(static_cast<const std::byte*>(in_slot.const_data_ptr()), in_slot.nbytes());
}

// Others that share the storage outlive the slot's use for this unit: the storage takes a copy of
// the numbers along. Returns whether there were any.
bool StreamedWeights::let_go(at::Tensor& in_slot, const at::Tensor& now) {
  // `now` is one of them, unless it is other data.
  const std::size_t ours = now.storage().is_alias_of(in_slot.storage()) ? 2 : 1;
  if (in_slot.storage().use_count() <= ours) return false;
  const at::Tensor copy = in_slot.clone();
  in_slot.mutable_data_ptr();  // it is watched no more
  in_slot.storage().set_data_ptr_noswap(
      copy.storage().set_data_ptr(c10::DataPtr(nullptr, copy.device())));
  return true;
}

void StreamedWeights::abandon() {
  for (Placed& unit : units_) {
    if (std::exchange(unit.entered, 0) > 0) go_home(unit);
  }
  streamer_->abandon();
}

}  // namespace kerf
