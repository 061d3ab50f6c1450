// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/operator_name.h>

#include "kerf/graph/operator.h"
#include "kerf/libtorch/symbolic/to_argument.h"

namespace kerf {

// What PyTorch's schema says of an operator, in the graph's words.
struct OperatorFacts {
  Operator op;
  std::vector<bool> by_keyword;     // by parameter: may it be given by name alone?
  std::vector<ArgumentForm> forms;  // by parameter
  // No formula or no rule for what is kept knows it, and it is made of others: whoever watches
  // looks at those.
  bool look_inside = false;
};

// Looked up once an operator; the reference lasts as long as the process. Safe from any thread.
const OperatorFacts& facts_of(const c10::OperatorName& name);

}  // namespace kerf
