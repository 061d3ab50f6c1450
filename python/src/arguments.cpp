// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "python/src/arguments.h"

#include <fmt/format.h>
#include <pybind11/complex.h>
#include <pybind11/stl.h>

#include "kerf/base/error.h"

namespace kerf::bindings {

void refuse_record(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_graph,
              fmt::format("[graph.capture] {}; expected {}; report this model", found, expected));
}

DType to_dtype(const std::string& name) {
  const auto dtype = find_dtype(name);
  if (!dtype) refuse_record(fmt::format("dtype '{}'", name), "a dtype Kerf knows");
  return *dtype;
}

Expr to_expr(const py::handle& object) {
  if (py::isinstance<py::int_>(object)) return Expr(object.cast<std::int64_t>());
  if (py::isinstance<py::str>(object)) return Expr::parse(object.cast<std::string>());
  if (py::isinstance<Sym>(object)) return Expr::parse(object.cast<const Sym&>().text);
  refuse_record(fmt::format("a size {}", py::repr(object).cast<std::string>()),
                "a number or an expression");
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
  refuse_record(fmt::format("an argument {}", py::repr(object).cast<std::string>()), "plain data");
}

void add_arguments(Node& node, const py::sequence& args, const py::dict& kwargs) {
  for (const py::handle item : args) node.args.push_back({"", to_argument(item)});
  for (const auto& [key, item] : kwargs) {
    node.args.push_back({key.cast<std::string>(), to_argument(item)});
  }
}

py::object to_object(const Argument& argument) {
  if (const auto* flag = argument.find<bool>()) return py::bool_(*flag);
  if (const auto* size = argument.find<Expr>()) {
    return size->is_constant() ? py::object(py::int_(size->constant()))
                               : py::cast(Sym{size->str()});
  }
  if (const auto* number = argument.find<double>()) return py::float_(*number);
  if (const auto* number = argument.find<std::complex<double>>()) return py::cast(*number);
  if (const auto* text = argument.find<std::string>()) return py::str(*text);
  if (const auto* dtype = argument.find<DType>()) {
    return py::cast(DTypeMark{std::string(torch_name(*dtype))});
  }
  if (const auto* device = argument.find<DeviceName>()) return py::cast(*device);
  if (const auto* name = argument.find<EnumName>()) return py::cast(*name);
  if (const auto* id = argument.find<ValueId>()) {
    return py::cast(Ref{static_cast<std::uint32_t>(id->index())});
  }
  if (const auto* list = argument.find<Argument::List>()) {
    py::list out;
    for (const Argument& element : *list) out.append(to_object(element));
    return out;
  }
  return py::none();
}

void init_arguments(py::module_& m) {
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
}

}  // namespace kerf::bindings
