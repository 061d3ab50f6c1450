// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/products.h"

namespace kerf::formula {
namespace {

// Every output element is a dot product along the last dimension of the left operand.
template <std::size_t Left>
std::optional<OpCost> dot_products(const Call& call) {
  const std::vector<double> left = call.shape(Left);
  if (left.empty()) return std::nullopt;
  return matrix_cost(call, call.output_elements() * left.back());
}

// Broadcast operands of batched products get a gradient for each copy first; matrices do not: the
// batch is folded into the rows.
void sum_copies(Backward& backward, ValueId operand, double expanded) {
  if (backward.wanted(operand) && backward.call().value(operand).shape.size() > 2) {
    backward.sum_to(operand, expanded);
  }
}

// Left and Left + 1 are multiplied; Addend, where it is another, is added.
template <std::size_t Left, std::size_t Addend>
void of_dot_products(Backward& backward) {
  const Call& call = backward.call();
  const ValueId left = call.tensor(Left);
  const ValueId right = call.tensor(Left + 1);
  if (!call.is_tensor(left) || !call.is_tensor(right)) return;
  const double macs = backward.forward().macs;
  add_product_gradient(backward, left, right, macs);
  add_product_gradient(backward, right, left, macs);
  const std::vector<double> output = call.shape(call.node().outputs.front());
  if (output.size() > 2 && macs > 0) {
    sum_copies(backward, left, macs / output.back());
    sum_copies(backward, right, macs / output[output.size() - 2]);
  }
  if constexpr (Addend != Left) add_addend_gradient(backward, call.tensor(Addend));
}

// batch1 [b, n, k], batch2 [b, k, p]: the products are summed over b.
std::optional<OpCost> addbmm(const Call& call) {
  const std::vector<double> left = call.shape(1);
  if (left.size() != 3) return std::nullopt;
  return matrix_cost(call, call.output_elements() * left[0] * left[2]);
}

void of_addbmm(Backward& backward) {
  const Call& call = backward.call();
  const double macs = backward.forward().macs;
  add_product_gradient(backward, call.tensor(1), call.tensor(2), macs);
  add_product_gradient(backward, call.tensor(2), call.tensor(1), macs);
  add_addend_gradient(backward, call.tensor(0));
}

// The last dimensions of both inputs meet in every output element. Their weight stands behind
// them, or, in what a bilinear layer is made of, between them.
template <std::size_t Right>
std::optional<OpCost> bilinear(const Call& call) {
  const std::vector<double> left = call.shape(0);
  const std::vector<double> right = call.shape(Right);
  if (left.empty() || right.empty()) return std::nullopt;
  return matrix_cost(call, call.output_elements() * left.back() * right.back());
}

void of_bilinear(Backward& backward) {
  const Call& call = backward.call();
  const double macs = backward.forward().macs;
  for (const std::size_t position : {0, 1, 2}) {
    add_product_gradient(backward, call.tensor(position), call.tensor(position == 2 ? 0 : 2), macs);
  }
  add_addend_gradient(backward, call.tensor(3));
}

// Contracts the dimensions of the left operand that its third argument lists.
std::optional<OpCost> tensordot(const Call& call) {
  const std::vector<double> left = call.shape(0);
  const Argument* given = call.argument(2, "dims_self");
  const auto* dims = given == nullptr ? nullptr : given->find<Argument::List>();
  if (left.empty() || dims == nullptr) return std::nullopt;
  double length = 1;
  for (const Argument& dim : *dims) {
    const Expr* index = dim.find<Expr>();
    if (index == nullptr || !index->is_constant()) return std::nullopt;
    const std::int64_t rank = static_cast<std::int64_t>(left.size());
    const std::int64_t at = index->constant() < 0 ? index->constant() + rank : index->constant();
    if (at < 0 || at >= rank) return std::nullopt;
    length *= left[static_cast<std::size_t>(at)];
  }
  return matrix_cost(call, call.output_elements() * length);
}

void of_tensordot(Backward& backward) {
  const Call& call = backward.call();
  const double macs = backward.forward().macs;
  add_product_gradient(backward, call.tensor(0), call.tensor(1), macs);
  add_product_gradient(backward, call.tensor(1), call.tensor(0), macs);
}

std::optional<OpCost> outer(const Call& call) { return matrix_cost(call, call.output_elements()); }

void of_outer(Backward& backward) {
  const Call& call = backward.call();
  const double macs = backward.forward().macs;
  add_product_gradient(backward, call.tensor(0), call.tensor(1), macs);
  add_product_gradient(backward, call.tensor(1), call.tensor(0), macs);
}

}  // namespace

std::optional<OpCost> matrix_cost(const Call& call, double macs) {
  return OpCost{Unit::matrix, 2 * macs, macs, call.touched()};
}

void add_product_gradient(Backward& backward, ValueId operand, ValueId other, double macs) {
  if (!backward.wanted(operand)) return;
  const Call& call = backward.call();
  Bytes moved = call.output_bytes() + call.bytes(operand);
  if (call.is_tensor(other)) moved += call.bytes(other);
  backward.add(operand, OpCost{Unit::matrix, 2 * macs, macs, moved});
}

void add_addend_gradient(Backward& backward, ValueId addend) {
  if (backward.wanted(addend)) backward.sum_to(addend, backward.call().output_elements());
}

void add_products(Table& table) {
  table.add({dot_products<0>, of_dot_products<0, 2>}, {"linear"});
  table.add({dot_products<0>, of_dot_products<0, 0>},
            {"mm", "bmm", "matmul", "mv", "dot", "vdot", "inner", "_grouped_mm", "grouped_mm",
             "_scaled_mm", "_scaled_grouped_mm", "linalg_vecdot", "__matmul__", "_int_mm",
             "cosine_similarity", "chain_matmul", "linalg_matmul",
             "transformers.grouped_mm_fallback.default"});
  table.add({dot_products<1>, of_dot_products<1, 0>},
            {"addmm", "baddbmm", "addmv", "_addmm_activation"});
  table.add({addbmm, of_addbmm}, {"addbmm"});
  table.add({bilinear<1>, of_bilinear}, {"bilinear"});
  table.add({bilinear<2>, of_bilinear}, {"_trilinear"});
  table.add({tensordot, of_tensordot}, {"tensordot"});
  table.add({outer, of_outer}, {"outer", "ger", "kron"});
}

}  // namespace kerf::formula
