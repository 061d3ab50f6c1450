// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Functions with a backward of their own, "kerf.python_function.<Name>": whoever wrote the call
// down has seen what they keep, and made it their third argument.
#include "kerf/graph/operator.h"
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

void python_function(SavedCall& call) {
  const Argument* const saved = call.argument(2, "saved");
  if (saved == nullptr) return;
  for_each_value(*saved, [&](ValueId id) { call.keep(id); });
}

}  // namespace

void add_saved_function_rules(SavedRules& rules) { rules.add({kPythonFunction}, python_function); }

}  // namespace kerf
