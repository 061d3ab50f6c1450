// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// kerf._torch: what runs on PyTorch. Graphs, plans, profiles and timelines come from and go to
// kerf._core, which must be imported first: both modules are built against the same headers.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>

#include "kerf/base/error.h"
#include "kerf/driver/memory_advice.h"
#include "kerf/libtorch/fold_masks.h"
#include "kerf/libtorch/input_shapes.h"
#include "kerf/libtorch/measure.h"
#include "kerf/libtorch/measure_blocks.h"
#include "kerf/libtorch/out_of_memory.h"
#include "kerf/libtorch/threads.h"
#include "kerf/libtorch/torch_pipeline.h"
#include "kerf/libtorch/torch_stream.h"
#include "python/src/interruptible.h"
#include "python/src/torch/block_calls.h"
#include "python/src/torch/stream.h"
#include "python/src/torch/symbolic.h"

namespace py = pybind11;

namespace kerf::bindings {
namespace {

struct PipelineBlocks {
  BlockCalls blocks;
};

// A pipeline, and the blocks that its threads may be inside of, which end after the threads.
struct PythonPipeline : PipelineBlocks, TorchPipeline {
  PythonPipeline(const Graph& graph, const Plan& plan, std::vector<at::Tensor> weights,
                 BlockCalls block_calls, std::map<std::string, std::string> reduce,
                 bool device_graphs)
      : PipelineBlocks{std::move(block_calls)},
        TorchPipeline(graph, plan, std::move(weights), blocks.calls, std::move(reduce),
                      device_graphs) {}
};

// A turn as a context manager: Python code that runs pipelines meanwhile, and must be alone in
// that.
class PythonTurn {
 public:
  explicit PythonTurn(Turns& turns) : turns_(turns) {}
  void enter() {
    interruptible_call([&] { turn_.emplace(turns_); });
  }
  void leave(const py::args&) { turn_.reset(); }

 private:
  Turns& turns_;
  std::optional<Turn> turn_;
};

// Calls `work` as interruptible_call does. Memory that was not there is answered with what was
// predicted and what would fit.
template <class Work>
void call_pipeline(PythonPipeline& pipeline, Work&& work) {
  try {
    interruptible_call(std::forward<Work>(work), [&] { pipeline.blocks.interrupt(); });
  } catch (const OutOfMemory& error) {
    std::string advice;
    interruptible_call([&] {
      advice = memory_advice(pipeline.plan(), pipeline.graph(), error.device(), error.batch());
    });
    throw OutOfMemory(error.device(), error.batch(), fmt::format("{}; {}", error.what(), advice));
  }
}

// As PyTorch's own error: a RuntimeError, and what programs look for that try a smaller batch.
void init_memory_errors() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const OutOfMemory& error) {
      py::set_error(py::module_::import("torch").attr("OutOfMemoryError"), error.what());
    }
  });
}

py::tuple as_tuple(const TorchPipeline::Result& result) {
  py::list outputs;
  for (const c10::IValue& value : result.outputs) outputs.append(to_python(value));
  return py::make_tuple(outputs, result.batch,
                        result.timeline ? py::cast(*result.timeline) : py::none());
}

py::tuple run(PythonPipeline& pipeline, const std::vector<at::Tensor>& inputs, int n_microbatches,
              bool record) {
  TorchPipeline::Result result;
  call_pipeline(pipeline, [&] { result = pipeline.run(inputs, n_microbatches, record); });
  return as_tuple(result);
}

// A stream of batches. Its threads do not exist in a forked process, and nobody waits for them.
class PythonStream {
 public:
  PythonStream(PythonPipeline& pipeline, bool record)
      : pipeline_(pipeline), stream_(std::make_unique<TorchStream>(pipeline, record)) {}
  ~PythonStream() {
    if (getpid() != made_in_) static_cast<void>(stream_.release());
    try {
      if (stream_) stop();
    } catch (...) {  // a signal's: whoever ends a stream by dropping it hears of it elsewhere
    }
  }
  PythonStream(const PythonStream&) = delete;
  PythonStream& operator=(const PythonStream&) = delete;

  void push(const std::vector<at::Tensor>& inputs, int n_microbatches) {
    call([&] { stream_->push(inputs, n_microbatches); });
  }
  py::tuple pop() {
    TorchPipeline::Result result;
    call([&] { result = stream_->pop(); });
    return as_tuple(result);
  }
  void stop() {
    call([&] { stream_->stop(); });
  }
  std::size_t size() const { return stream_->size(); }
  py::object timeline() const {
    return stream_->timeline() ? py::cast(*stream_->timeline()) : py::none();
  }

 private:
  template <class Work>
  void call(Work&& work) {
    call_pipeline(pipeline_, std::forward<Work>(work));
  }

  PythonPipeline& pipeline_;
  std::unique_ptr<TorchStream> stream_;
  pid_t made_in_ = getpid();
};

// `loss`: a function of the results of a micro-batch, its number and its batch size; or the number
// of the output that is the loss.
py::tuple train(PythonPipeline& pipeline, const std::vector<at::Tensor>& inputs, int n_microbatches,
                const py::object& loss, const std::string& reduction, std::vector<double> weights,
                bool record) {
  TorchPipeline::Training training;
  if (py::isinstance<py::int_>(loss)) {
    training.loss_output = loss.cast<std::size_t>();
  } else {
    training.loss = pipeline.blocks.loss_call(loss);
  }
  if (reduction == "sum") training.reduction = TorchPipeline::Training::Reduction::sum;
  training.weights = std::move(weights);
  TorchPipeline::Trained result;
  call_pipeline(pipeline,
                [&] { result = pipeline.train(inputs, n_microbatches, training, record); });
  py::list gradients;
  for (const at::Tensor& gradient : result.input_gradients) {
    gradients.append(gradient.defined() ? py::cast(gradient) : py::none());
  }
  return py::make_tuple(result.loss, gradients,
                        result.timeline ? py::cast(*result.timeline) : py::none());
}

// By stage: its device, how many recordings there are, why none, and what the device holds of them.
py::list recorded(PythonPipeline& pipeline) {
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

// A hook that was removed again leaves its empty list behind. PyTorch does not export the classes
// of Python's hooks, so they are known by their names.
template <class PythonHook, class Hooks>
bool has_hooks(const Hooks& hooks, std::string_view python_name) {
  return std::any_of(hooks.begin(), hooks.end(), [&](const auto& hook) {
    const auto& given = *hook;
    if (std::string_view(typeid(given).name()).find(python_name) == std::string_view::npos) {
      return true;
    }
    return PyDict_Size(static_cast<const PythonHook&>(given).dict) > 0;
  });
}

// The first of these tensors whose gradient is added to by a node that has hooks of its own.
std::optional<std::size_t> gradient_hook(const std::vector<at::Tensor>& weights) {
  for (std::size_t w = 0; w < weights.size(); ++w) {
    if (!weights[w].requires_grad()) continue;
    const auto node = torch::autograd::impl::try_get_grad_accumulator(weights[w]);
    if (!node) continue;
    if (has_hooks<torch::autograd::PyFunctionPreHook>(node->pre_hooks(), "PyFunctionPreHook") ||
        has_hooks<torch::autograd::PyFunctionPostHook>(node->post_hooks(), "PyFunctionPostHook")) {
      return w;
    }
  }
  return std::nullopt;
}

Profile measure_on(const Graph& graph, const Cluster& cluster, std::size_t device,
                   std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                   std::int64_t batch, const PythonCalls& opaque, double budget_seconds,
                   bool training) {
  MeasureOptions options;
  options.budget_seconds = budget_seconds;
  options.training = training;
  const BlockCalls blocks(opaque);
  Profile profile;
  interruptible_call(
      [&] {
        profile = measure(graph, cluster, DeviceId(device), std::move(weights), inputs, batch,
                          blocks.calls, options);
      },
      [&] { blocks.interrupt(); });
  return profile;
}

// `progress`: called with steps done and all of them, or None.
Profile measure_blocks_on(const Graph& graph, const Cluster& cluster, std::size_t device,
                          std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                          std::int64_t batch, const PythonCalls& opaque, double budget_seconds,
                          bool training, bool recompute, bool every_block, std::string cache_folder,
                          MeasuringConditions conditions, const py::object& progress) {
  BlockOptions options;
  options.budget_seconds = budget_seconds;
  options.training = training;
  options.recompute = recompute;
  options.every_block = every_block;
  options.cache_folder = std::move(cache_folder);
  options.conditions = std::move(conditions);
  if (!progress.is_none()) {
    options.progress = [&progress](std::size_t done, std::size_t total) {
      const py::gil_scoped_acquire lock;
      progress(done, total);
    };
  }
  const BlockCalls blocks(opaque);
  Profile profile;
  interruptible_call(
      [&] {
        profile = measure_blocks(graph, cluster, DeviceId(device), std::move(weights), inputs,
                                 batch, blocks.calls, options);
      },
      [&] { blocks.interrupt(); });
  return profile;
}

}  // namespace
}  // namespace kerf::bindings

PYBIND11_MODULE(_torch, m) {
  using namespace kerf;
  using namespace kerf::bindings;
  m.doc() = "Kerf on PyTorch: pipelines and measured profiles. Use it through the package kerf.";
  py::module_::import("kerf._core");

  init_block_errors();
  init_memory_errors();
  init_stream(m);
  init_recorder(m);

  py::class_<PythonPipeline>(m, "Pipeline")
      .def(py::init([](const Graph& graph, const Plan& plan, std::vector<at::Tensor> weights,
                       const PythonCalls& opaque, std::map<std::string, std::string> reduce,
                       bool device_graphs) {
             BlockCalls blocks(opaque);
             std::unique_ptr<PythonPipeline> pipeline;
             interruptible_call([&] {
               pipeline = std::make_unique<PythonPipeline>(graph, plan, std::move(weights),
                                                           std::move(blocks), std::move(reduce),
                                                           device_graphs);
             });
             return pipeline;
           }),
           py::arg("graph"), py::arg("plan"), py::arg("weights"), py::arg("opaque"),
           py::arg("reduce"), py::arg("device_graphs") = false)
      .def("recorded", &recorded)
      .def("run", &run, py::arg("inputs"), py::arg("n_microbatches"), py::arg("record") = false)
      .def("train", &train, py::arg("inputs"), py::arg("n_microbatches"), py::arg("loss"),
           py::arg("reduction"), py::arg("weights"), py::arg("record") = false)
      .def("check_inputs", &TorchPipeline::check_inputs, py::arg("inputs"))
      .def(
          "replace_weights",
          [](PythonPipeline& pipeline, std::vector<at::Tensor> weights) {
            interruptible_call([&] { pipeline.replace_weights(std::move(weights)); });
          },
          py::arg("weights"));

  py::class_<PythonStream>(m, "Stream", "Batches that follow each other through a pipeline.")
      .def(py::init<PythonPipeline&, bool>(), py::arg("pipeline"), py::arg("record") = false,
           py::keep_alive<1, 2>())
      .def("push", &PythonStream::push, py::arg("inputs"), py::arg("n_microbatches"))
      .def("pop", &PythonStream::pop)
      .def("stop", &PythonStream::stop)
      .def("__len__", &PythonStream::size)
      .def_property_readonly("timeline", &PythonStream::timeline);

  py::class_<Turns>(m, "Turns", "At something that one call uses at a time.").def(py::init<>());
  py::class_<PythonTurn>(m, "Turn", "with Turn(turns): waits, or refuses to wait for ever.")
      .def(py::init<Turns&>(), py::arg("turns"), py::keep_alive<1, 2>())
      .def("__enter__", &PythonTurn::enter)
      .def("__exit__", &PythonTurn::leave);

  m.def("check_devices", [](const Cluster& cluster) { find_devices(cluster); }, py::arg("cluster"));
  m.def("gradient_hook", &gradient_hook, py::arg("weights"),
        "The number of the first weight with a hook on the node that adds to its gradient.");
  m.def("fold_masks", &fold_masks, py::arg("graph"), py::call_guard<py::gil_scoped_release>());
  m.def(
      "check_inputs",
      [](const Graph& graph, const std::vector<at::Tensor>& inputs) {
        return check_input_shapes(graph, input_dims(graph), inputs);
      },
      py::arg("graph"), py::arg("inputs"), "The batch size of a call; 0 where it has none.");
  m.def("measure", &measure_on, py::arg("graph"), py::arg("cluster"), py::arg("device"),
        py::arg("weights"), py::arg("inputs"), py::arg("batch"), py::arg("opaque"),
        py::arg("budget_seconds"), py::arg("training") = false);
  m.def("measure_blocks", &measure_blocks_on, py::arg("graph"), py::arg("cluster"),
        py::arg("device"), py::arg("weights"), py::arg("inputs"), py::arg("batch"),
        py::arg("opaque"), py::arg("budget_seconds"), py::arg("training"), py::arg("recompute"),
        py::arg("every_block"), py::arg("cache_folder"), py::arg("conditions"),
        py::arg("progress") = py::none());
}
