// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "kerf/plan/plan.h"
#include "kerf/runtime/batching.h"
#include "python/src/module.h"
#include "python/src/verdict.h"

namespace kerf::bindings {

namespace {

std::vector<std::pair<std::size_t, std::int64_t>> pairs_of(const std::vector<LossTarget>& targets) {
  std::vector<std::pair<std::size_t, std::int64_t>> out;
  for (const LossTarget& target : targets) out.emplace_back(target.input, target.ignored);
  return out;
}

}  // namespace

void init_runtime(py::module_& m) {
  m.def("check_plan_matches", &check_plan_matches, py::arg("plan"), py::arg("graph"));
  m.def("micro_batch_sizes", &micro_batch_sizes, py::arg("batch"), py::arg("n_microbatches"));
  m.def(
      "input_dims",
      [](const Graph& graph) {
        std::vector<std::pair<int, std::int64_t>> out;
        for (const BatchDim& at : input_dims(graph)) out.emplace_back(at.dim, at.factor);
        return out;
      },
      py::arg("graph"), "For each input (dimension of the batch or -1, rows a sample).");
  m.def(
      "check_samples_are_separate",
      [](const Graph& graph, const std::map<std::string, std::string>& reduce,
         bool batch_independent) {
        return NamedVerdict{graph, check_samples_are_separate(graph, reduce, batch_independent)};
      },
      py::arg("graph"), py::arg("reduce"), py::arg("batch_independent"));
  m.def(
      "check_trained_batch",
      [](const Graph& graph, const std::string& loss, const std::string& reduction, bool weighted,
         bool batch_independent) {
        const TrainedBatch found =
            check_trained_batch(graph, loss, reduction, weighted, batch_independent);
        return py::make_tuple(NamedVerdict{graph, found.verdict}, pairs_of(found.targets));
      },
      py::arg("graph"), py::arg("loss"), py::arg("reduction"), py::arg("weighted"),
      py::arg("batch_independent"),
      "What is known of cutting a batch for training, and (input, the target in it that is "
      "ignored).");
  m.def(
      "reduced_targets",
      [](const Graph& graph, const std::map<std::string, std::string>& reduce) {
        return pairs_of(reduced_targets(graph, reduce));
      },
      py::arg("graph"), py::arg("reduce"), "(input, the target in it that is ignored).");
}

}  // namespace kerf::bindings
