// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operands of products of stacks of matrices. Private to profile/saved.
#pragma once

#include "kerf/profile/saved/saved_call.h"

namespace kerf {

// Keeps an operand as at::matmul hands it on: its dimensions before the last two spread to those
// of the result and made one. A copy, unless strides allow a view.
void keep_stack(SavedCall& call, ValueId operand);

// Matrices in the stack of the result.
std::int64_t num_matrices(const SavedCall& call);

}  // namespace kerf
