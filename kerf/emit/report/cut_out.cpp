// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/cut_out.h"

#include <set>

#include "kerf/plan/passes.h"

namespace kerf {

std::vector<Bytes> cut_bytes_of_stages(const Plan& plan) {
  std::vector<Bytes> out(plan.num_stages());
  for (const Cut& cut : plan.cuts) {
    std::set<DeviceId> receivers;
    for (const StageId to : cut.to) receivers.insert(plan.stage(to).device);
    receivers.erase(plan.stage(cut.from).device);
    out[cut.from.index()] += cut.bytes * static_cast<std::int64_t>(receivers.size());
  }
  return out;
}

std::vector<Bytes> gradient_bytes_of_stages(const Plan& plan) {
  std::vector<Bytes> out(plan.num_stages());
  if (!plan.training) return out;
  const Passes passes = unroll(plan);
  for (std::size_t c = plan.cuts.size(); c < passes.cuts.size(); ++c) {
    const Cut& gradient = passes.cuts[c];
    out[stage_of_pass(passes.shape, gradient.from).index()] += gradient.bytes;
  }
  return out;
}

}  // namespace kerf
