// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// kerf._torch: what runs on PyTorch. Graphs, plans, profiles and timelines come from and go to
// kerf._core, which must be imported first: both modules are built against the same headers.
#include <ATen/core/Tensor.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "kerf/base/error.h"
#include "kerf/libtorch/measure.h"
#include "kerf/libtorch/threads.h"
#include "kerf/libtorch/torch_pipeline.h"
#include "python/src/interruptible.h"

namespace py = pybind11;

namespace kerf::bindings {
namespace {

using PythonCalls = std::map<std::string, py::object>;

// A Python callable that may be copied, called and dropped by threads that do not hold the
// interpreter lock. The lock is taken for the block alone.
OpaqueCall to_opaque_call(py::object callable) {
  const std::shared_ptr<py::object> held(new py::object(std::move(callable)), [](py::object* p) {
    const py::gil_scoped_acquire lock;
    delete p;
  });
  return [held](const std::vector<at::Tensor>& inputs, std::int64_t batch) {
    const py::gil_scoped_acquire lock;
    try {
      return (*held)(inputs, batch).cast<std::vector<at::Tensor>>();
    } catch (const py::error_already_set& error) {
      // The exception's Python half must not outlive the lock: keep its text.
      throw Error(ErrorKind::run_failed, error.what());
    }
  };
}

OpaqueCalls to_opaque_calls(const PythonCalls& calls) {
  OpaqueCalls out;
  for (const auto& [node, callable] : calls) out.emplace(node, to_opaque_call(callable));
  return out;
}

py::object to_python(const c10::IValue& value) {
  if (value.isTensor()) return py::cast(value.toTensor());
  if (value.isInt()) return py::int_(value.toInt());
  if (value.isDouble()) return py::float_(value.toDouble());
  if (value.isBool()) return py::bool_(value.toBool());
  return py::none();
}

py::tuple run(TorchPipeline& pipeline, const std::vector<at::Tensor>& inputs, int n_microbatches,
              bool record) {
  TorchPipeline::Result result;
  interruptible_call([&] { result = pipeline.run(inputs, n_microbatches, record); });
  py::list outputs;
  for (const c10::IValue& value : result.outputs) outputs.append(to_python(value));
  return py::make_tuple(outputs, result.batch,
                        result.timeline ? py::cast(*result.timeline) : py::none());
}

// By stage: its device, how many recordings there are, why none, and what the device holds of them.
py::list recorded(TorchPipeline& pipeline) {
  std::vector<TorchPipeline::Recorded> stages;
  std::vector<std::int64_t> bytes;
  interruptible_call([&] {
    stages = pipeline.recorded();
    for (const auto& stage : stages) bytes.push_back(pipeline.recorded_bytes(stage.device));
  });
  py::list out;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    py::dict row;
    row["stage"] = s;
    row["device"] = pipeline.plan().cluster.device(stages[s].device).name;
    row["recordings"] = stages[s].recordings;
    row["why_not"] = stages[s].why_not;
    row["device_bytes"] = bytes[s];
    out.append(row);
  }
  return out;
}

Profile measure_on(const Graph& graph, const Cluster& cluster, std::size_t device,
                   std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                   std::int64_t batch, const PythonCalls& opaque, double budget_seconds) {
  MeasureOptions options;
  options.budget_seconds = budget_seconds;
  const OpaqueCalls calls = to_opaque_calls(opaque);
  Profile profile;
  interruptible_call([&] {
    profile = measure(graph, cluster, DeviceId(device), std::move(weights), inputs, batch, calls,
                      options);
  });
  return profile;
}

}  // namespace
}  // namespace kerf::bindings

PYBIND11_MODULE(_torch, m) {
  using namespace kerf;
  using namespace kerf::bindings;
  m.doc() = "Kerf on PyTorch: pipelines and measured profiles. Use it through the package kerf.";
  py::module_::import("kerf._core");

  py::class_<TorchPipeline>(m, "Pipeline")
      .def(py::init([](const Graph& graph, const Plan& plan, std::vector<at::Tensor> weights,
                       const PythonCalls& opaque, std::map<std::string, std::string> reduce,
                       bool device_graphs) {
             OpaqueCalls calls = to_opaque_calls(opaque);
             std::unique_ptr<TorchPipeline> pipeline;
             interruptible_call([&] {
               pipeline = std::make_unique<TorchPipeline>(graph, plan, std::move(weights),
                                                          std::move(calls), std::move(reduce),
                                                          device_graphs);
             });
             return pipeline;
           }),
           py::arg("graph"), py::arg("plan"), py::arg("weights"), py::arg("opaque"),
           py::arg("reduce"), py::arg("device_graphs") = false)
      .def("recorded", &recorded)
      .def("run", &run, py::arg("inputs"), py::arg("n_microbatches"), py::arg("record") = false)
      .def("check_inputs", &TorchPipeline::check_inputs, py::arg("inputs"))
      .def(
          "replace_weights",
          [](TorchPipeline& pipeline, std::vector<at::Tensor> weights) {
            interruptible_call([&] { pipeline.replace_weights(std::move(weights)); });
          },
          py::arg("weights"));

  m.def("check_devices", [](const Cluster& cluster) { find_devices(cluster); }, py::arg("cluster"));
  m.def("measure", &measure_on, py::arg("graph"), py::arg("cluster"), py::arg("device"),
        py::arg("weights"), py::arg("inputs"), py::arg("batch"), py::arg("opaque"),
        py::arg("budget_seconds"));
}
