// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/chain_input.h"

#include <fmt/format.h>

#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/raise/finish.h"

namespace kerf::partition {

ChainInput::ChainInput(const Problem& given)
    : problem(given),
      intervals(given),
      cuttable(cut_positions(given.graph)),
      bound(best_lower_bound(given)) {}

Outcome<Plan, Infeasible> place(const ChainInput& input, const Arrangement& arrangement) {
  return finish_plan(input.problem, intervals(arrangement.cuts), arrangement.devices, "chain",
                     input.bound);
}

Infeasible explain_shortage(Infeasible reason) {
  reason.what_would_help = fmt::format(
      "in the best contiguous split no device exceeds its limit by more than {}: raise the limits "
      "by that much, add a device, or use smaller micro-batches",
      to_string(reason.short_by));
  return reason;
}

Infeasible unproved(Infeasible reason) {
  reason.caveat = "the search was stopped early; this is not proved impossible";
  return reason;
}

}  // namespace kerf::partition
