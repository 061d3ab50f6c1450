// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of nested values (docs/formats.md, "Specs") as Python literals:
//
//   {"dict": [["y", {"t": 0}], ["n", {"tuple": [3, {"t": 1}]}]]}   ->   {"y": Tensor("y"), "n": (3,
//   Tensor("n"))}
//
// The written file has two functions for them: `unpack` finds the tensors of a value of that form,
// `fill` makes one.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "kerf/base/json.h"
#include "kerf/emit/codegen/code.h"

namespace kerf::codegen {

class PatternWriter {
 public:
  using NameTensor = std::function<Code(std::size_t number)>;

  // `what` names the description in messages; `device` is what a device that was left open is.
  PatternWriter(std::string what, NameTensor tensor, std::string device = "ANY_DEVICE")
      : what_(std::move(what)), tensor_(std::move(tensor)), device_(std::move(device)) {}

  // Throws Error(unsupported_operator) for what a file cannot hold, Error(invalid_graph) for what
  // is no description.
  Code write(const Json& spec) { return part(spec, 0); }

  // Kinds of parts that need help from the file: "Made", "Row", "Node", "Member", "Again",
  // "ANY_DEVICE", "set".
  const std::set<std::string>& kinds() const { return kinds_; }
  bool uses_batch() const { return uses_batch_; }

 private:
  Code part(const Json& spec, int depth);
  Code special(const std::string& kind, const Json& spec, int depth);
  std::vector<Code> parts(const Json& list, int depth);
  Code pairs(const Json& list, int depth);
  Code object(const Json& spec, int depth);
  Code set(const std::string& kind, const Json& items);
  Code named(const std::string& kind, std::vector<Code> items);
  [[noreturn]] void refuse(std::string_view found) const;
  [[noreturn]] void malformed() const;

  std::string what_;
  NameTensor tensor_;
  std::string device_;
  std::set<std::string> kinds_;
  bool uses_batch_ = false;
};

// The JSON in a spec. Throws Error(invalid_graph).
Json parse_spec(const std::string& text, std::string_view what);

}  // namespace kerf::codegen
