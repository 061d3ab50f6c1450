// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/streamed_weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/libtorch/stream/mapped_file.h"

namespace kerf {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFarApart = 1 << 20;  // bytes between weights that are not looked at together

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Of an inference tensor nobody counts the writes: it may always have changed.
std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
}

}  // namespace

StreamedWeights::StreamedWeights(std::vector<Unit> units, std::size_t num_slots, Bytes slot_bytes)
    : slot_bytes_(static_cast<std::size_t>(slot_bytes.count)) {
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
      Weight weight{std::move(parameter), {}, offset, 0};
      find_home(placed.path, weight);
      offset = aligned(offset + weight.home.nbytes());
      placed.weights.push_back(std::move(weight));
    }
    units_.push_back(std::move(placed));
  }
  slot_bytes_ = aligned(slot_bytes_);
  arena_ = at::empty({static_cast<std::int64_t>(num_slots * slot_bytes_ + kAlignment)}, at::kByte);
  auto* const begin = reinterpret_cast<std::byte*>(
      aligned(reinterpret_cast<std::uintptr_t>(arena_.mutable_data_ptr())));
  std::vector<std::byte*> slots;
  for (std::size_t s = 0; s < num_slots; ++s) slots.push_back(begin + s * slot_bytes_);
  mover_ = std::make_unique<FileMover>(
      [this](std::size_t unit) {
        std::vector<FileMover::Piece> pieces;
        for (const Weight& weight : units_[unit].weights)
          pieces.push_back({weight.home, weight.offset});
        return pieces;
      },
      std::move(slots));
  streamer_ = std::make_unique<Streamer>(units_.size(), num_slots, *mover_);
}

StreamedWeights::~StreamedWeights() { abandon(); }

Bytes StreamedWeights::bytes_of(const std::vector<at::Tensor>& parameters) {
  std::size_t bytes = 0;
  for (const at::Tensor& parameter : parameters) bytes = aligned(bytes + parameter.nbytes());
  return {static_cast<std::int64_t>(bytes)};
}

// What the parameter is now.
void StreamedWeights::find_home(const std::string& path, Weight& weight) const {
  const at::Tensor& parameter = weight.parameter;
  if (parameter.layout() != at::kStrided || !parameter.is_cpu() || !parameter.is_contiguous() ||
      parameter.is_conj() || parameter.is_neg()) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[libtorch.streamed_weights] a weight of unit '{}' is {}; expected a "
                    "dense tensor on the host, its numbers in order; keep the unit resident",
                    path,
                    parameter.layout() != at::kStrided ? "not strided"
                    : parameter.is_cpu()               ? "not contiguous"
                                                       : "on " + parameter.device().str()));
  }
  weight.home = parameter.variable_data();
  weight.version = version_of(parameter);
}

// In place (a version), by other data (an address), or behind PyTorch's back, by what .data gave (a
// written page of the file). What a slot holds of the unit is then old.
void StreamedWeights::notice_edits(std::size_t unit) {
  bool edited = false;
  for (Weight& weight : units_[unit].weights) {
    const at::Tensor& now = weight.parameter;
    const bool replaced =
        now.const_data_ptr() != weight.home.const_data_ptr() ||
        now.sizes() != weight.home.sizes() || now.strides() != weight.home.strides() ||
        now.is_conj() != weight.home.is_conj() || now.is_neg() != weight.home.is_neg() ||
        now.scalar_type() != weight.home.scalar_type();
    if (replaced) {
      if (now.nbytes() != weight.home.nbytes()) {  // before anything is taken over
        throw Error(
            ErrorKind::invalid_argument,
            fmt::format("[libtorch.streamed_weights] a weight of unit '{}' has {} bytes now "
                        "and had {} when the model was placed; expected as many; place the "
                        "model again",
                        units_[unit].path, now.nbytes(), weight.home.nbytes()));
      }
      find_home(units_[unit].path, weight);
      for (auto& views : units_[unit].in_slot) views.clear();
      edited = true;
    }
    const std::int64_t version = version_of(weight.parameter);
    edited = edited || version < 0 || version != weight.version;
    weight.version = version;
  }
  edited = edited || has_written_pages(units_[unit]);
  if (edited) streamer_->invalidate(unit);
}

// The weights of a module lie next to each other in most files: one look at all of them, then. What
// lies elsewhere may always have been written.
bool StreamedWeights::has_written_pages(const Placed& unit) {
  const std::byte* low = nullptr;
  const std::byte* high = nullptr;
  std::size_t bytes = 0;
  for (const Weight& weight : unit.weights) {
    const auto* const begin = static_cast<const std::byte*>(weight.home.const_data_ptr());
    low = low == nullptr ? begin : std::min(low, begin);
    high = std::max(high, begin + weight.home.nbytes());
    bytes += weight.home.nbytes();
  }
  if (bytes == 0) return false;
  const auto together = MappedFile::at(low);
  if (together && together == MappedFile::at(high - 1) &&
      static_cast<std::size_t>(high - low) < 2 * bytes + kFarApart) {
    if (!together->is_written(low, static_cast<std::size_t>(high - low))) return false;
  }
  return std::any_of(unit.weights.begin(), unit.weights.end(), [](const Weight& weight) {
    const void* const begin = weight.home.const_data_ptr();
    const auto file = MappedFile::at(begin);
    return !file || file->is_written(begin, weight.home.nbytes());
  });
}

const std::vector<at::Tensor>& StreamedWeights::views(Placed& unit, std::size_t slot) {
  std::vector<at::Tensor>& views = unit.in_slot[slot];
  if (!views.empty()) return views;
  auto* const begin = reinterpret_cast<std::byte*>(
      aligned(reinterpret_cast<std::uintptr_t>(arena_.mutable_data_ptr())) + slot * slot_bytes_);
  for (const Weight& weight : unit.weights) {
    views.push_back(at::from_blob(
        begin + weight.offset, weight.home.sizes(), [held = arena_](void*) {},
        weight.home.options()));
  }
  return views;
}

void StreamedWeights::enter(std::size_t unit) {
  Placed& placed = units_[unit];
  if (placed.entered > 0) {  // from inside of itself
    ++placed.entered;
    return;
  }
  // Slots' tensors are made here and stay: they must not be inference tensors.
  const c10::InferenceMode normal(false);
  notice_edits(unit);
  placed.slot = streamer_->acquire(unit);
  const std::vector<at::Tensor>& there = views(placed, placed.slot);
  for (std::size_t w = 0; w < placed.weights.size(); ++w) {
    placed.weights[w].sample = sample(there[w]);
    placed.weights[w].parameter.set_data(there[w]);
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
                         sample(in_slot[w]) != weight.sample;
    if (replaced &&
        (now.sizes() != weight.home.sizes() || now.scalar_type() != weight.home.scalar_type())) {
      weight.version = version_of(weight.parameter);  // it is what it was made; see notice_edits
      continue;
    }
    weight.parameter.set_data(weight.home);
    if (written) weight.home.copy_(now);
    weight.version = version_of(weight.parameter);
    kept = let_go(in_slot[w], now) || kept;
  }
  if (kept) in_slot.clear();  // made anew
}

// Some numbers of a weight: what is written without PyTorch's knowing (through .data) changes most
// of them in most cases, and all cannot be looked at.
std::uint64_t StreamedWeights::sample(const at::Tensor& weight) {
  constexpr std::size_t kSamples = 256;
  const auto* const bytes = static_cast<const unsigned char*>(weight.const_data_ptr());
  const std::size_t size = weight.nbytes();
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  const std::size_t words = size / sizeof(std::uint64_t);
  const std::size_t step = std::max<std::size_t>(1, words / kSamples);
  for (std::size_t i = 0; i < words; i += step) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    hash = (hash ^ word) * 1099511628211ULL;
  }
  for (std::size_t i = words * sizeof(std::uint64_t); i < size; ++i) {
    hash = (hash ^ bytes[i]) * 1099511628211ULL;
  }
  return hash;
}

// Others that share the storage outlive the slot's use for this unit: the storage takes a copy of
// the numbers along. Returns whether there were any.
bool StreamedWeights::let_go(at::Tensor& in_slot, const at::Tensor& now) {
  // `now` is one of them, unless it is other data.
  const std::size_t ours = now.storage().is_alias_of(in_slot.storage()) ? 2 : 1;
  if (in_slot.storage().use_count() <= ours) return false;
  const at::Tensor copy = in_slot.clone();
  in_slot.storage().set_data_ptr_noswap(
      copy.storage().set_data_ptr(c10::DataPtr(nullptr, c10::kCPU)));
  return true;
}

void StreamedWeights::abandon() {
  for (Placed& unit : units_) {
    if (std::exchange(unit.entered, 0) > 0) go_home(unit);
  }
  streamer_->abandon();
}

}  // namespace kerf
