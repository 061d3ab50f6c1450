// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The seam between the tracer, which speaks Python objects, and the graph's records.
#include "kerf/graph/builder.h"

#include <fmt/format.h>
#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include "kerf/base/error.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

// Markers for arguments that plain Python objects cannot tell apart.
struct Sym {
  std::string text;
};
struct Ref {
  std::uint32_t id;
};
struct DTypeMark {
  std::string name;
};

[[noreturn]] void fail(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_graph,
              fmt::format("[graph.builder] {}; expected {}; report this model", found, expected));
}

DType to_dtype(const std::string& name) {
  const auto dtype = find_dtype(name);
  if (!dtype) fail(fmt::format("dtype '{}'", name), "a dtype Kerf knows");
  return *dtype;
}

Expr to_expr(const py::handle& object) {
  if (py::isinstance<py::int_>(object)) return Expr(object.cast<std::int64_t>());
  if (py::isinstance<py::str>(object)) return Expr::parse(object.cast<std::string>());
  if (py::isinstance<Sym>(object)) return Expr::parse(object.cast<const Sym&>().text);
  fail(fmt::format("a size {}", py::repr(object).cast<std::string>()), "a number or an expression");
}

std::vector<Expr> to_sizes(const py::handle& list) {
  std::vector<Expr> out;
  for (const py::handle item : list) out.push_back(to_expr(item));
  return out;
}

Argument to_argument(const py::handle& object) {
  if (object.is_none()) return {};
  if (py::isinstance<py::bool_>(object)) return {object.cast<bool>()};
  if (py::isinstance<py::int_>(object)) return {Expr(object.cast<std::int64_t>())};
  if (py::isinstance<py::float_>(object)) return {object.cast<double>()};
  if (py::isinstance<py::str>(object)) return {object.cast<std::string>()};
  if (py::isinstance<Ref>(object)) return {ValueId(object.cast<const Ref&>().id)};
  if (py::isinstance<Sym>(object)) return {Expr::parse(object.cast<const Sym&>().text)};
  if (py::isinstance<DTypeMark>(object)) {
    return {to_dtype(object.cast<const DTypeMark&>().name)};
  }
  if (py::isinstance<DeviceName>(object)) return {object.cast<const DeviceName&>()};
  if (py::isinstance<EnumName>(object)) return {object.cast<const EnumName&>()};
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    Argument::List list;
    for (const py::handle item : object) list.push_back(to_argument(item));
    return {std::move(list)};
  }
  if (PyComplex_Check(object.ptr()) != 0) return {object.cast<std::complex<double>>()};
  fail(fmt::format("an argument {}", py::repr(object).cast<std::string>()), "plain data");
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
    if (!found) fail(fmt::format("argument '{}' of '{}'", wanted, node.name), "one of its own");
  }
  return out;
}

std::vector<std::uint32_t> add_node(
    GraphBuilder& builder, const std::string& name, const std::string& op, const py::list& args,
    const py::dict& kwargs, const py::list& outputs, std::uint32_t scope, const std::string& source,
    const std::string& region, bool grad_enabled,
    const std::vector<std::tuple<std::string, std::string, bool>>& autocast, bool random,
    const std::vector<std::string>& written_args, const std::vector<std::string>& aliased_args) {
  Node node;
  node.name = name;
  node.op = op;
  for (const py::handle item : args) node.args.push_back({"", to_argument(item)});
  for (const auto& [key, item] : kwargs) {
    node.args.push_back({key.cast<std::string>(), to_argument(item)});
  }
  node.written = values_of(node, written_args);
  node.may_alias = values_of(node, aliased_args);
  node.scope = ScopeId(scope);
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
  for (const ValueId id : builder.add_node(std::move(node), pointers)) {
    ids.push_back(static_cast<std::uint32_t>(id.index()));
  }
  return ids;
}

void set_outputs(GraphBuilder& builder, const py::list& leaves,
                 const std::vector<std::string>& names, const std::string& in_spec,
                 const std::string& out_spec) {
  std::vector<GraphOutput> outputs;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    outputs.push_back({to_argument(leaves[i]), names.at(i)});
  }
  builder.set_outputs(std::move(outputs), in_spec, out_spec);
}

bool add_condition(GraphBuilder& builder, const py::object& left, const std::string& relation,
                   const py::object& right, const std::string& source) {
  const auto found = find_relation(relation);
  if (!found) fail(fmt::format("the relation '{}'", relation), "==, !=, < or <=");
  return builder.add_condition({to_expr(left), *found, to_expr(right), source});
}

}  // namespace

void init_graph_builder(py::module_& m) {
  py::class_<Sym>(m, "Sym", "A symbolic integer: an expression in B.")
      .def(py::init<std::string>())
      .def_readonly("text", &Sym::text)
      .def("__repr__", [](const Sym& s) { return "Sym('" + s.text + "')"; });
  py::class_<Ref>(m, "Ref", "A value of the graph.")
      .def(py::init<std::uint32_t>())
      .def_readonly("id", &Ref::id)
      .def("__repr__", [](const Ref& r) { return "Ref(" + std::to_string(r.id) + ")"; });
  py::class_<DTypeMark>(m, "DType")
      .def(py::init<std::string>())
      .def_readonly("name", &DTypeMark::name);
  py::class_<DeviceName>(m, "Dev", "A device; empty: the stage's own.")
      .def(py::init<std::string>(), py::arg("name") = "")
      .def_readonly("name", &DeviceName::name);
  py::class_<EnumName>(m, "Enum")
      .def(py::init<std::string, std::string>())
      .def_readonly("type", &EnumName::type)
      .def_readonly("name", &EnumName::name);

  py::class_<GraphBuilder>(m, "GraphBuilder")
      .def(py::init<std::string, bool>(), py::arg("name"), py::arg("training"))
      .def("set_batch", &GraphBuilder::set_batch, py::arg("example"))
      .def("add_note", &GraphBuilder::add_note, py::arg("text"))
      .def("add_condition", &add_condition, py::arg("left"), py::arg("relation"), py::arg("right"),
           py::arg("source") = "")
      .def(
          "add_attribute",
          [](GraphBuilder& b, std::string path, std::string name, const py::object& value) {
            b.add_attribute(std::move(path), std::move(name), to_argument(value));
          },
          py::arg("path"), py::arg("name"), py::arg("value"))
      .def(
          "add_scope",
          [](GraphBuilder& b, const std::string& path, const std::string& class_name) {
            return b.add_scope(path, class_name).index();
          },
          py::arg("path"), py::arg("class_name"))
      .def(
          "add_input",
          [](GraphBuilder& b, std::string path, std::string name, const std::string& dtype,
             const py::object& shape, const py::object& strides, std::int64_t storage,
             const py::object& storage_bytes, const py::object& offset, bool requires_grad) {
            return b
                .add_input(std::move(path),
                           make_spec(std::move(name), dtype, shape, strides, storage, storage_bytes,
                                     offset, requires_grad))
                .index();
          },
          py::arg("path"), py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("strides"),
          py::arg("storage"), py::arg("storage_bytes"), py::arg("offset"), py::arg("requires_grad"))
      .def(
          "add_weight",
          [](GraphBuilder& b, std::vector<std::string> names, const std::string& kind,
             const std::string& dtype, const py::object& shape, const py::object& strides,
             std::int64_t storage, const py::object& storage_bytes, const py::object& offset,
             bool requires_grad, const py::bytes& data) {
            const auto found = find_weight_kind(kind);
            if (!found || names.empty()) fail("weight kind '" + kind + "' or no name", "both");
            std::string name = names[0];
            return b
                .add_weight(std::move(names), *found,
                            make_spec(std::move(name), dtype, shape, strides, storage,
                                      storage_bytes, offset, requires_grad),
                            data)
                .index();
          },
          py::arg("names"), py::arg("kind"), py::arg("dtype"), py::arg("shape"), py::arg("strides"),
          py::arg("storage"), py::arg("storage_bytes"), py::arg("offset"), py::arg("requires_grad"),
          py::arg("data") = py::bytes())
      .def("add_node", &add_node, py::arg("name"), py::arg("op"), py::arg("args"),
           py::arg("kwargs"), py::arg("outputs"), py::arg("scope") = 0, py::arg("source") = "",
           py::arg("region") = "", py::arg("grad_enabled") = true,
           py::arg("autocast") = std::vector<std::tuple<std::string, std::string, bool>>{},
           py::arg("random") = false, py::arg("written_args") = std::vector<std::string>{},
           py::arg("aliased_args") = std::vector<std::string>{})
      .def("set_outputs", &set_outputs, py::arg("leaves"), py::arg("names"), py::arg("in_spec"),
           py::arg("out_spec"))
      .def("finish", &GraphBuilder::finish);
}

}  // namespace kerf::bindings
