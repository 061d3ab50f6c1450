// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The one place where Kerf's errors become Python's.
#include "kerf/base/error.h"

#include "python/src/module.h"

namespace kerf::bindings {
namespace {

PyObject* python_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::invalid_graph:
    case ErrorKind::invalid_profile:
    case ErrorKind::invalid_plan: return PyExc_ValueError;
    case ErrorKind::unsupported_operator: return PyExc_NotImplementedError;
    case ErrorKind::io: return PyExc_OSError;
    case ErrorKind::missing_backend:
    case ErrorKind::run_failed:
    case ErrorKind::internal: return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

// A message may quote a file, and a file may hold anything: bytes that are no text are escaped.
void set_error(PyObject* type, std::string_view message) {
  const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (text) PyErr_SetObject(type, text.ptr());
}

}  // namespace

void init_errors(py::module_&) {
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      set_error(python_type(error.kind()), error.what());
    }
  });
}

}  // namespace kerf::bindings
