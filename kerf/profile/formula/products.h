// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What products of two tensors have in common.
#pragma once

#include "kerf/profile/formula/table.h"

namespace kerf::formula {

std::optional<OpCost> matrix_cost(const Call& call, double macs);

// The gradient of `operand` as a product of the output's gradient and the other operand, which
// takes as many multiply-adds as the forward. Nothing when it is not wanted.
void add_product_gradient(Backward& backward, ValueId operand, ValueId other, double macs);
// What is added to a product (a bias, the first argument of addmm) gets the output's gradient.
void add_addend_gradient(Backward& backward, ValueId addend);

}  // namespace kerf::formula
