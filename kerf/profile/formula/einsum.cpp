// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <unordered_map>

#include "kerf/profile/formula/products.h"

namespace kerf::formula {
namespace {

// What the letters of an equation stand for. An ellipsis may stand for fewer dimensions in one
// operand than in another.
struct Letters {
  std::unordered_map<char, double> sizes;
  double ellipsis = 1;

  double product() const {
    double result = ellipsis;
    for (const auto& [letter, size] : sizes) result *= size;
    return result;
  }
};

// "bh...d" of a tensor of this shape; false when the two do not fit.
bool read_operand(const std::string& term, const std::vector<double>& shape, Letters& letters) {
  std::string dense;
  std::copy_if(term.begin(), term.end(), std::back_inserter(dense),
               [](char c) { return c != ' '; });
  const bool dots = dense.find("...") != std::string::npos;
  const std::size_t named = dense.size() - (dots ? 3 : 0);
  if (named > shape.size() || (!dots && named < shape.size())) return false;
  std::size_t dim = 0;
  double hidden = 1;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    if (dense[i] != '.') {
      double& size = letters.sizes[dense[i]];
      size = std::max(size, shape[dim++]);
      continue;
    }
    for (std::size_t k = 0; k < shape.size() - named; ++k) hidden *= shape[dim++];
    i += 2;
  }
  letters.ellipsis = std::max(letters.ellipsis, hidden);
  return true;
}

// Of one product of two operands: "bhqd,bhkd->bhqk" multiplies once for each b, h, q, d and k.
std::optional<double> pair_macs(const Call& call, const std::vector<ValueId>& operands) {
  const Argument* equation = call.argument(0, "equation");
  const std::string* text = equation == nullptr ? nullptr : equation->find<std::string>();
  if (text == nullptr || operands.empty()) return std::nullopt;
  Letters letters;
  std::size_t at = 0;
  for (const ValueId operand : operands) {
    const std::size_t end = std::min(text->find_first_of(",-", at), text->size());
    if (at > end || !read_operand(text->substr(at, end - at), call.shape(operand), letters)) {
      return std::nullopt;
    }
    at = end + 1;
  }
  return letters.product();
}

double num_products(const std::vector<ValueId>& operands) {
  return static_cast<double>(std::max<std::size_t>(1, operands.size() - 1));
}

std::optional<OpCost> einsum(const Call& call) {
  const std::vector<ValueId> operands = call.tensors(1, "tensors");
  const std::optional<double> macs = pair_macs(call, operands);
  if (!macs) return std::nullopt;
  return matrix_cost(call, *macs * num_products(operands));
}

// Two operands: one product for each gradient. More: as many products as there are in the forward
// for each side of it, shared evenly.
void of_einsum(Backward& backward) {
  const std::vector<ValueId> operands = backward.call().tensors(1, "tensors");
  const double pair = *pair_macs(backward.call(), operands);
  const double each = operands.size() < 2 ? pair
                                          : pair * 2 * num_products(operands) /
                                                static_cast<double>(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    add_product_gradient(backward, operands[i], operands[i == 0 ? operands.size() - 1 : 0], each);
  }
}

}  // namespace

void add_einsum(Table& table) { table.add({einsum, of_einsum}, {"einsum"}); }

}  // namespace kerf::formula
