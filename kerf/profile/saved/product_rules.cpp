// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Matrix products. Each operand is kept for the gradient of the other, in the form in which the
// product of matrices, or of stacks of them, took it: as it is, or as a copy where it had to be
// laid out anew.
#include <algorithm>

#include "kerf/profile/saved/rules.h"
#include "kerf/profile/saved/stack.h"

namespace kerf {
namespace {

void keep_operands(SavedCall& call, ValueId a, ValueId b) {
  if (call.needs(a)) call.keep(b);
  if (call.needs(b)) call.keep(a);
}

void first_two(SavedCall& call) {
  keep_operands(call, call.tensor(0, "self"), call.tensor(1, "mat2"));
}

// bias + a @ b
void second_and_third(SavedCall& call) {
  keep_operands(call, call.tensor(1, "mat1"), call.tensor(2, "mat2"));
}

// All dimensions but the last become one.
void keep_rows(SavedCall& call, ValueId id) {
  if (call.merges(id, 0, call.rank(id) - 2)) {
    call.keep(id);
  } else {
    call.keep_copy(id);
  }
}

// The same of the transposed stack: all dimensions but the last but one.
void keep_columns(SavedCall& call, ValueId id) {
  const int rank = call.rank(id);
  const bool is_view = call.merges(id, 0, rank - 3) &&
                       (call.size(id, -3) == 1 || call.size(id, -1) == 1 ||
                        call.stride(id, -3) == call.stride(id, -1) * call.size(id, -1));
  if (is_view) {
    call.keep(id);
  } else {
    call.keep_copy(id);
  }
}

void linear(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  const ValueId weight = call.tensor(1, "weight");
  if (call.needs(input)) call.keep(weight);
  if (call.needs(weight)) keep_rows(call, input);
}

// at::matmul folds the larger operand to a matrix where the smaller one is a matrix that needs a
// gradient, or where folding costs no copy.
bool folds(const SavedCall& call, ValueId large, ValueId small, bool large_is_first) {
  if (call.rank(large) < 3 || call.rank(small) > 2) return false;
  if (call.needs(small)) return true;
  if (!large_is_first) return false;
  return call.merges(large, 0, call.rank(large) - 2);
}

void matmul(SavedCall& call) {
  const ValueId a = call.tensor(0, "self");
  const ValueId b = call.tensor(1, "other");
  const int rank = std::max(call.rank(a), call.rank(b));
  if (rank <= 2) return keep_operands(call, a, b);
  const bool a_is_larger = call.rank(a) >= call.rank(b);
  const ValueId large = a_is_larger ? a : b;
  const ValueId small = a_is_larger ? b : a;
  if (folds(call, large, small, a_is_larger)) {
    if (call.needs(large)) call.keep(small);
    if (call.needs(small)) a_is_larger ? keep_rows(call, large) : keep_columns(call, large);
    return;
  }
  if (call.rank(small) < 2) return keep_operands(call, a, b);
  if (call.needs(a)) keep_stack(call, b);
  if (call.needs(b)) keep_stack(call, a);
}

void grouped_product(SavedCall& call) {
  for (const ValueId id : call.graph().inputs_of(call.id())) call.keep(id);
}

// Products of groups of rows, with the ends of the groups.
void products_of_groups(SavedCall& call) {
  first_two(call);
  call.keep(call.tensor(2, "offs"));
}

// Each where one of the others gets a gradient.
void three_factors(SavedCall& call) {
  const ValueId factors[] = {call.tensor(0, "i1"), call.tensor(1, "i2"), call.tensor(2, "i3")};
  for (const ValueId factor : factors) {
    for (const ValueId other : factors) {
      if (other != factor && call.needs(other)) call.keep(factor);
    }
  }
}

}  // namespace

void add_saved_product_rules(SavedRules& rules) {
  rules.add({"mm", "bmm", "mv", "dot", "vdot", "linalg_cross"}, first_two);
  rules.add({"addmm", "baddbmm", "addbmm", "addmv", "addr"}, second_and_third);
  rules.add({"_grouped_mm"}, products_of_groups);
  rules.add({"_trilinear"}, three_factors);
  rules.add({"linear"}, linear);
  rules.add({"matmul"}, matmul);
  rules.add({"transformers.grouped_mm_fallback.default"}, grouped_product);
}

}  // namespace kerf
