// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Options that single methods know. They travel as one value from a face to the method: a new one
// is a field here, a check in the .cpp, and an option of the faces.
#pragma once

#include <cstdint>
#include <string_view>

namespace kerf::place {

// What acyclic and multilevel minimise within their balance.
enum class Minimise : std::uint8_t {
  stage_time,  // the largest load of a part: its time, and the tensors it pays for
  edge_cut,    // over the tensors: cost x parts other than the maker's that hold a reader
};
std::string_view to_string(Minimise minimise);
// Throws Error(invalid_argument), which lists the names.
Minimise parse_minimise(std::string_view name);

struct MixedPipeOptions {
  int stages = 0;  // blocks to share out among the devices; 0: the method finds it
  friend bool operator==(const MixedPipeOptions&, const MixedPipeOptions&) = default;
};

// Of acyclic and multilevel: the largest load of a stage, or the tensors that cross while no stage
// has more time than (1 + imbalance) x its share.
struct BalanceOptions {
  Minimise minimise = Minimise::stage_time;
  double imbalance = 0.03;
  friend bool operator==(const BalanceOptions&, const BalanceOptions&) = default;
};

struct MethodOptions {
  MixedPipeOptions mixed_pipe;
  BalanceOptions balance;
};

// Which of them a method takes.
enum class Takes : std::uint8_t { nothing, mixed_pipe, balance };

// Throws Error(invalid_argument) for options that make no sense, and for those that `method` would
// ignore.
void check_options(const MethodOptions& options, std::string_view method, Takes takes);

}  // namespace kerf::place
