// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// einsum of two operands: both are permuted and reshaped to stacks of matrices, and multiplied.
#include <algorithm>
#include <string>
#include <vector>

#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

struct Equation {
  std::string left;
  std::string right;
  std::string result;
};

// Nothing of an equation that has dots, repeated labels, more operands or no arrow.
bool read_equation(std::string_view text, Equation& equation) {
  std::string plain;
  std::copy_if(text.begin(), text.end(), std::back_inserter(plain),
               [](char c) { return c != ' '; });
  const std::size_t comma = plain.find(',');
  const std::size_t arrow = plain.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) return false;
  equation = {plain.substr(0, comma), plain.substr(comma + 1, arrow - comma - 1),
              plain.substr(arrow + 2)};
  for (const std::string* part : {&equation.left, &equation.right, &equation.result}) {
    std::string letters = *part;
    std::sort(letters.begin(), letters.end());
    const bool repeats = std::adjacent_find(letters.begin(), letters.end()) != letters.end();
    if (repeats || letters.find_first_of(".,") != std::string::npos) return false;
  }
  return true;
}

bool has(const std::string& labels, char label) { return labels.find(label) != std::string::npos; }

// Labels in the order in which at::einsum lays dimensions out: those of the result, then the
// others by letter.
std::string label_order(const Equation& e) {
  std::string rest;
  for (const char label : e.left + e.right) {
    if (!has(e.result, label) && !has(rest, label)) rest += label;
  }
  std::sort(rest.begin(), rest.end());
  return e.result + rest;
}

// Can these dimensions of an operand be made one without a copy?
bool merge(const SavedCall& call, ValueId id, const std::string& labels, const std::string& group) {
  std::int64_t expected = -1;
  for (auto label = group.rbegin(); label != group.rend(); ++label) {
    const int dim = static_cast<int>(labels.find(*label));
    if (call.size(id, dim) == 1) continue;
    if (expected >= 0 && call.stride(id, dim) != expected) return false;
    expected = call.stride(id, dim) * call.size(id, dim);
  }
  return true;
}

void einsum(SavedCall& call) {
  const Argument* const text = call.argument(0, "equation");
  const Argument* const operands = call.argument(1, "tensors");
  std::vector<ValueId> tensors;
  if (operands != nullptr) for_each_value(*operands, [&](ValueId id) { tensors.push_back(id); });
  Equation e;
  const auto* const words = text == nullptr ? nullptr : text->find<std::string>();
  if (words == nullptr || tensors.size() != 2 || !read_equation(*words, e)) return call.give_up();
  std::string shared, only_left, only_right, summed;
  for (const char label : label_order(e)) {
    const bool in_both = has(e.left, label) && has(e.right, label);
    const bool in_result = has(e.result, label);
    if (!in_both && !in_result) return call.give_up();  // summed before the product
    std::string& group =
        !in_both ? (has(e.left, label) ? only_left : only_right) : (in_result ? shared : summed);
    group += label;
  }
  const auto keep = [&](ValueId id, const std::string& labels, const std::string& free) {
    const bool is_view = merge(call, id, labels, shared) && merge(call, id, labels, free) &&
                         merge(call, id, labels, summed);
    is_view || summed.empty() ? call.keep(id) : call.keep_copy(id);
  };
  if (call.needs(tensors[0])) keep(tensors[1], e.right, only_right);
  if (call.needs(tensors[1])) keep(tensors[0], e.left, only_left);
}

}  // namespace

void add_saved_einsum_rules(SavedRules& rules) { rules.add({"einsum"}, einsum); }

}  // namespace kerf
