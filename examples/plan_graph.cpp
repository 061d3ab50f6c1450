// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Planning in C++, without Python and PyTorch: loads a graph and prints a plan for it.
//
//   plan_graph examples/mlp.graph cpu:0=2GiB,cpu:1=1GiB 4
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "kerf/device/devices.h"
#include "kerf/driver/make_problem.h"
#include "kerf/driver/plan.h"
#include "kerf/emit/report/table.h"
#include "kerf/graph/text.h"

namespace {

int plan_graph(const char* path, const char* devices, int n_microbatches) {
  kerf::ProblemSettings settings;
  settings.n_microbatches = n_microbatches;
  // Costs are estimated; give kerf::load_profile("profile.json", graph) where some were measured.
  const kerf::Problem problem =
      kerf::make_problem(kerf::load_graph(path), kerf::parse_devices(devices), {}, settings);

  const auto outcome = kerf::plan(problem);  // verified
  if (!outcome) {
    std::fprintf(stderr, "%s\n", outcome.reason().message().c_str());
    return 1;
  }
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
