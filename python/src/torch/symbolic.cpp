// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "python/src/torch/symbolic.h"

#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "kerf/base/error.h"
#include "kerf/libtorch/symbolic/recorder.h"
#include "python/src/torch/block_calls.h"

namespace py = pybind11;

namespace kerf::bindings {
namespace {

void start(Recorder& recorder, const std::string& name, const std::string& kind,
           const std::string& target, const std::pair<std::string, std::string>& scope,
           const std::string& region, const std::string& source,
           const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& weights,
           const std::string& as) {
  Span span;
  span.name = name;
  span.kind = kind;
  span.target = target;
  recorder.start(std::move(span), {{scope.first, scope.second}, region, source}, inputs, weights,
                 as);
}

void add_weight(Recorder& recorder, std::vector<std::string> names, const std::string& kind,
                const at::Tensor& tensor) {
  const auto found = find_weight_kind(kind);
  if (!found) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[symbolic.profile] a weight of kind '{}'; expected parameter, buffer, "
                            "non_persistent_buffer or constant",
                            kind));
  }
  recorder.add_weight(std::move(names), *found, tensor);
}

py::object to_rule_argument(const c10::IValue& value) {
  if (!value.isList()) return to_python(value);
  py::list items;
  for (const c10::IValue& item : value.toList().vec()) items.append(to_python(item));
  return items;
}

// The rule is called while PyTorch is in the midst of a call, with the interpreter unlocked.
void set_rule(Recorder& recorder, std::string op, py::function rule) {
  const auto held = std::make_shared<py::function>(std::move(rule));
  recorder.set_rule(std::move(op), [held](const auto& positional, const auto& named) {
    const py::gil_scoped_acquire lock;
    py::list args;
    py::dict kwargs;
    for (const c10::IValue& value : positional) args.append(to_rule_argument(value));
    for (const auto& [name, value] : named) kwargs[py::str(name)] = to_rule_argument(value);
    return (*held)(*py::tuple(args), **kwargs).template cast<std::pair<double, double>>();
  });
}

void set_function_reader(Recorder& recorder, py::function reader) {
  const auto held = std::make_shared<py::function>(std::move(reader));
  recorder.set_function_reader(
      [held](const std::vector<at::Tensor>& outputs) -> std::optional<FunctionRecord> {
        const py::gil_scoped_acquire lock;
        const py::object found = (*held)(outputs);
        if (found.is_none()) return std::nullopt;
        auto [name, saved, flops] =
            found.cast<std::tuple<std::string, std::vector<at::Tensor>, std::optional<double>>>();
        return FunctionRecord{std::move(name), std::move(saved), flops};
      });
}

}  // namespace

void init_recorder(py::module_& m) {
  py::class_<Recorder>(m, "Recorder",
                       "Writes down as a graph which operators are called in this thread. For "
                       "tensors without data.")
      .def(py::init<std::string, bool>(), py::arg("name"), py::arg("training"))
      .def("add_input", &Recorder::add_input, py::arg("path"), py::arg("name"), py::arg("tensor"))
      .def("add_weight", &add_weight, py::arg("names"), py::arg("kind"), py::arg("tensor"))
      .def("set_rule", &set_rule, py::arg("op"), py::arg("rule"))
      .def("set_function_reader", &set_function_reader, py::arg("reader"))
      .def("start", &start, py::arg("name"), py::arg("kind"), py::arg("target"), py::arg("scope"),
           py::arg("region"), py::arg("source"), py::arg("inputs"), py::arg("weights"),
           py::arg("as_op") = "")
      .def("end", &Recorder::end, py::arg("outputs"))
      .def("abandon", &Recorder::abandon)
      .def(
          "finish",
          [](Recorder& recorder, const std::vector<at::Tensor>& outputs) {
            Recording made = recorder.finish(outputs);
            return py::make_tuple(std::move(made.graph), std::move(made.spans),
                                  std::move(made.flops));
          },
          py::arg("outputs"), "(graph, spans, flops by node)");
}

}  // namespace kerf::bindings
