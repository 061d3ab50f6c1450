// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Planning in C++, without Python and PyTorch: loads a graph and prints a plan for it.
//
//   plan_graph out/model.graph cpu:0=2GiB,cpu:1=1GiB 4
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "kerf/device/devices.h"
#include "kerf/emit/report/table.h"
#include "kerf/graph/text.h"
#include "kerf/partition/registry/registry.h"
#include "kerf/profile/estimate.h"
#include "kerf/verify/verify_plan.h"

namespace {

int plan_graph(const char* path, const char* devices, int n_microbatches) {
  kerf::Problem problem;
  problem.graph = kerf::load_graph(path);
  problem.cluster = kerf::parse_devices(devices);
  problem.n_microbatches = n_microbatches;
  // Or kerf::load_profile("profile.json", problem.graph), where one was measured.
  const std::string& kind = problem.cluster.devices[0].kind;
  problem.profile = kerf::estimate(problem.graph, kerf::device_kind(kind), problem.micro_batch());

  const auto outcome = kerf::plan(problem);
  if (!outcome) {
    std::fprintf(stderr, "%s\n", outcome.reason().message().c_str());
    return 1;
  }
  kerf::check_plan(problem.graph, &problem.profile, *outcome);  // throws unless the plan is sound
  std::fputs(kerf::plan_table(*outcome, &problem.graph).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: plan_graph model.graph devices [n_microbatches]\n");
    return 2;
  }
  try {
    const int n_microbatches = argc > 3 ? std::atoi(argv[3]) : 1;
    if (n_microbatches < 1) {
      std::fprintf(stderr, "plan_graph: n_microbatches must be at least 1\n");
      return 2;
    }
    return plan_graph(argv[1], argv[2], n_microbatches);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan_graph: %s\n", error.what());
    return 2;
  }
}
