// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The seam between the tracer, which speaks Python objects, and the graph's records.
#include "kerf/graph/capture/capture.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include "python/src/arguments.h"

namespace kerf::bindings {
namespace {

std::vector<Expr> to_sizes(const py::handle& list) {
  std::vector<Expr> out;
  for (const py::handle item : list) out.push_back(to_expr(item));
  return out;
}

TensorSpec make_spec(std::string name, const std::string& dtype, const py::handle& shape,
                     const py::handle& strides, std::int64_t storage, const py::handle& bytes,
                     const py::handle& offset, bool requires_grad) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.dtype = to_dtype(dtype);
  spec.shape = to_sizes(shape);
  spec.strides = to_sizes(strides);
  spec.storage_key = storage;
  spec.storage_bytes = to_expr(bytes);
  spec.offset = to_expr(offset);
  spec.requires_grad = requires_grad;
  return spec;
}

TensorSpec to_spec(const py::dict& record) {
  if (record.contains("scalar") && record["scalar"].cast<bool>()) {
    TensorSpec spec;
    spec.name = record["name"].cast<std::string>();
    spec.dtype = to_dtype(record["dtype"].cast<std::string>());
    spec.scalar = true;
    return spec;
  }
  return make_spec(record["name"].cast<std::string>(), record["dtype"].cast<std::string>(),
                   record["shape"], record["strides"], record["storage"].cast<std::int64_t>(),
                   record["storage_bytes"], record["offset"], record["requires_grad"].cast<bool>());
}

// Names a value by the schema's argument: position as text ("0") or keyword.
std::vector<ValueId> values_of(const Node& node, const std::vector<std::string>& arguments) {
  std::vector<ValueId> out;
  for (const std::string& wanted : arguments) {
    bool found = false;
    for (std::size_t i = 0; i < node.args.size(); ++i) {
      const std::string& name = node.args[i].name;
      if ((name.empty() ? std::to_string(i) : name) != wanted) continue;
      found = true;
      for_each_value(node.args[i].value, [&](ValueId id) { out.push_back(id); });
    }
    if (!found)
      refuse_record(fmt::format("argument '{}' of '{}'", wanted, node.name), "one of its own");
  }
  return out;
}

std::vector<std::uint32_t> add_call(
    Capture& capture, const std::string& name, const std::string& op, const py::list& args,
    const py::dict& kwargs, const py::list& outputs,
    const std::pair<std::string, std::string>& scope, const std::string& source,
    const std::string& region, bool grad_enabled,
    const std::vector<std::tuple<std::string, std::string, bool>>& autocast, bool refused,
    bool random, const std::vector<std::string>& written_args,
    const std::vector<std::string>& aliased_args) {
  Node node;
  node.name = name;
  node.op = op;
  add_arguments(node, args, kwargs);
  node.written = values_of(node, written_args);
  node.may_alias = values_of(node, aliased_args);
  node.source = source;
  node.region = region;
  node.grad_enabled = grad_enabled;
  for (const auto& [device, dtype, enabled] : autocast) {
    node.autocast.push_back({device, to_dtype(dtype), enabled});
  }
  node.random = random;

  std::vector<TensorSpec> specs;
  specs.reserve(outputs.size());
  std::vector<const TensorSpec*> pointers;
  for (const py::handle item : outputs) {
    if (item.is_none()) {
      pointers.push_back(nullptr);
    } else {
      specs.push_back(to_spec(item.cast<py::dict>()));
      pointers.push_back(&specs.back());
    }
  }
  std::vector<std::uint32_t> ids;
  for (const ValueId id :
       capture.add_call(std::move(node), {scope.first, scope.second}, pointers, refused)) {
    ids.push_back(static_cast<std::uint32_t>(id.index()));
  }
  return ids;
}

void set_outputs(Capture& capture, const py::list& leaves, const std::vector<std::string>& names) {
  std::vector<GraphOutput> outputs;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    outputs.push_back({to_argument(leaves[i]), names.at(i)});
  }
  capture.builder().set_outputs(std::move(outputs));
}

bool add_condition(Capture& capture, const py::object& left, const std::string& relation,
                   const py::object& right, const std::string& source) {
  const auto found = find_relation(relation);
  if (!found) refuse_record(fmt::format("the relation '{}'", relation), "==, !=, < or <=");
  return capture.builder().add_condition({to_expr(left), *found, to_expr(right), source});
}

}  // namespace

void init_capture(py::module_& m) {
  py::class_<Capture>(m, "Capture")
      .def(py::init<std::string, bool>(), py::arg("name"), py::arg("training"))
      .def(
          "set_batch", [](Capture& c, std::int64_t example) { c.builder().set_batch(example); },
          py::arg("example"))
      .def(
          "add_note", [](Capture& c, std::string text) { c.builder().add_note(std::move(text)); },
          py::arg("text"))
      .def("add_condition", &add_condition, py::arg("left"), py::arg("relation"), py::arg("right"),
           py::arg("source") = "")
      .def(
          "add_attribute",
          [](Capture& c, std::string path, std::string name, const py::object& value) {
            c.builder().add_attribute(std::move(path), std::move(name), to_argument(value));
          },
          py::arg("path"), py::arg("name"), py::arg("value"))
      .def(
          "add_scope",
          [](Capture& c, const std::string& path, const std::string& class_name) {
            return c.builder().add_scope(path, class_name).index();
          },
          py::arg("path"), py::arg("class_name"))
      .def(
          "add_input",
          [](Capture& c, std::string path, std::string name, const std::string& dtype,
             const py::object& shape, const py::object& strides, std::int64_t storage,
             const py::object& storage_bytes, const py::object& offset, bool requires_grad) {
            return c.builder()
                .add_input(std::move(path),
                           make_spec(std::move(name), dtype, shape, strides, storage, storage_bytes,
                                     offset, requires_grad))
                .index();
          },
          py::arg("path"), py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("strides"),
          py::arg("storage"), py::arg("storage_bytes"), py::arg("offset"), py::arg("requires_grad"))
      .def(
          "add_weight",
          [](Capture& c, std::vector<std::string> names, const std::string& kind,
             const std::string& dtype, const py::object& shape, const py::object& strides,
             std::int64_t storage, const py::object& storage_bytes, const py::object& offset,
             bool requires_grad, const py::bytes& data) {
            const auto found = find_weight_kind(kind);
            if (!found || names.empty())
              refuse_record("weight kind '" + kind + "' or no name", "both");
            std::string name = names[0];
            return c.builder()
                .add_weight(std::move(names), *found,
                            make_spec(std::move(name), dtype, shape, strides, storage,
                                      storage_bytes, offset, requires_grad),
                            data)
                .index();
          },
          py::arg("names"), py::arg("kind"), py::arg("dtype"), py::arg("shape"), py::arg("strides"),
          py::arg("storage"), py::arg("storage_bytes"), py::arg("offset"), py::arg("requires_grad"),
          py::arg("data") = py::bytes())
      .def("add_operator", &Capture::add_operator, py::arg("operator"))
      .def("add_call", &add_call, py::arg("name"), py::arg("op"), py::arg("args"),
           py::arg("kwargs"), py::arg("outputs"),
           py::arg("scope") = std::pair<std::string, std::string>(), py::arg("source") = "",
           py::arg("region") = "", py::arg("grad_enabled") = true,
           py::arg("autocast") = std::vector<std::tuple<std::string, std::string, bool>>{},
           py::arg("refused") = false, py::arg("random") = false,
           py::arg("written_args") = std::vector<std::string>{},
           py::arg("aliased_args") = std::vector<std::string>{})
      .def("set_outputs", &set_outputs, py::arg("leaves"), py::arg("names"))
      .def("simplify", &Capture::simplify)
      .def(
          "set_specs",
          [](Capture& c, std::string in_spec, std::string out_spec) {
            c.builder().set_specs(std::move(in_spec), std::move(out_spec));
          },
          py::arg("in_spec"), py::arg("out_spec"))
      .def("finish", &Capture::finish);
}

}  // namespace kerf::bindings
