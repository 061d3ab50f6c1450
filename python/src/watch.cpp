// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Have Python objects changed since they were last looked at? Asked on every call of a pipeline
// about every module of a model, so it compares identities, and asks a dictionary or a class for
// its version number first: one comparison for all that is in it.
//
// What is compared is held, so that no address is used again meanwhile. A cycle through a watch is
// seen by Python's collector.
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "python/src/module.h"

// Later versions of Python keep no version number in a dictionary.
#define KERF_DICT_VERSIONS (PY_VERSION_HEX < 0x030D0000)

namespace kerf::bindings {
namespace {

#if KERF_DICT_VERSIONS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
std::uint64_t dict_version(PyObject* dict) {
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
#pragma GCC diagnostic pop
#endif

// Some names in a dictionary and what they led to; a null value: the name was not there.
struct Names {
  std::vector<py::object> keys;
  std::vector<py::object> values;
};

// One dictionary. With `whole` set nothing may come, go or change; else the names count alone.
struct DictWatch {
  py::object dict;
  Names names;
  bool whole = false;
};

// What is asked of a dictionary on every call. A model has thousands that are in no cache between
// two calls: kept apart from what is seldom needed, they are fetched several at a time.
struct DictVersion {
  PyObject* dict;  // held by the DictWatch
  std::uint64_t version = 0;
};

// What a class and its bases give for some names.
struct ClassWatch {
  py::object type;
  Names names;
  unsigned int version = 0;
};

// The items of a list, by identity.
struct ListWatch {
  py::object list;
  std::vector<py::object> items;
};

struct TypeWatch {
  py::object object;
  py::object type;
};

// An object that is compared as a whole with what it was, such as a set.
struct ValueWatch {
  py::object object;
  py::object copy;
};

// An array of numbers that shows its memory, such as numpy's.
struct BytesWatch {
  py::object array;
  std::string bytes;
};

// An attribute that is no entry of a dictionary (a slot, a counter of a tensor): compared as equal.
struct AttributeWatch {
  py::object object;
  py::object name;
  py::object value;
};

// All entries, in their order.
bool same_entries(PyObject* dict, const Names& names) {
  if (PyDict_Size(dict) != static_cast<Py_ssize_t>(names.keys.size())) return false;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (std::size_t i = 0; PyDict_Next(dict, &position, &key, &value) != 0; ++i) {
    if (key != names.keys[i].ptr() || value != names.values[i].ptr()) return false;
  }
  return true;
}

bool same_names(PyObject* dict, const Names& names) {
  for (std::size_t i = 0; i < names.keys.size(); ++i) {
    PyObject* const now = PyDict_GetItemWithError(dict, names.keys[i].ptr());
    if (now == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (now != names.values[i].ptr()) return false;
  }
  return true;
}

bool same(const DictWatch& watch) {
  return (watch.whole ? same_entries : same_names)(watch.dict.ptr(), watch.names);
}

bool same(ClassWatch& watch) {
  auto* const type = reinterpret_cast<PyTypeObject*>(watch.type.ptr());
  // 0: nobody has looked anything up since the class, or one of its bases, was changed.
  if (type->tp_version_tag != 0 && type->tp_version_tag == watch.version) return true;
  for (std::size_t i = 0; i < watch.names.keys.size(); ++i) {
    if (_PyType_Lookup(type, watch.names.keys[i].ptr()) != watch.names.values[i].ptr()) {
      return false;
    }
  }
  watch.version = type->tp_version_tag;
  return true;
}

bool same(const ListWatch& watch) {
  PyObject* const list = watch.list.ptr();
  if (PyList_GET_SIZE(list) != static_cast<Py_ssize_t>(watch.items.size())) return false;
  for (std::size_t i = 0; i < watch.items.size(); ++i) {
    if (PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i)) != watch.items[i].ptr()) return false;
  }
  return true;
}

bool same(const TypeWatch& watch) {
  return reinterpret_cast<PyObject*>(Py_TYPE(watch.object.ptr())) == watch.type.ptr();
}

bool same(const ValueWatch& watch) {
  const int equal = PyObject_RichCompareBool(watch.object.ptr(), watch.copy.ptr(), Py_EQ);
  if (equal < 0) PyErr_Clear();  // tensors among them: not known to be equal
  return equal > 0;
}

std::string bytes_of(const py::object& array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_FULL_RO) != 0) throw py::error_already_set();
  std::string out(static_cast<std::size_t>(view.len), '\0');
  const int failed = PyBuffer_ToContiguous(out.data(), &view, view.len, 'C');
  PyBuffer_Release(&view);
  if (failed != 0) throw py::error_already_set();
  return out;
}

bool same(const BytesWatch& watch) { return bytes_of(watch.array) == watch.bytes; }

bool same(const AttributeWatch& watch) {
  PyObject* const found = PyObject_GetAttr(watch.object.ptr(), watch.name.ptr());
  if (found == nullptr) {
    PyErr_Clear();
    return !watch.value;
  }
  const py::object now = py::reinterpret_steal<py::object>(found);
  return watch.value && same(ValueWatch{now, watch.value});
}

Names names_of(const py::list& keys) {
  Names out;
  for (const py::handle key : keys) {
    py::object name = py::reinterpret_borrow<py::object>(key);
    if (PyUnicode_CheckExact(key.ptr()) != 0) {  // so that a look-up compares addresses first
      PyObject* text = name.release().ptr();
      PyUnicode_InternInPlace(&text);
      name = py::reinterpret_steal<py::object>(text);
    }
    out.keys.push_back(std::move(name));
  }
  return out;
}

class ObjectWatch {
 public:
  void add_type(const py::object& object) { types_.push_back({object, py::type::of(object)}); }

  void add_names(const py::dict& dict, const py::list& keys) {
    DictWatch watch{dict, names_of(keys)};
    for (const py::object& key : watch.names.keys) {
      PyObject* const value = PyDict_GetItemWithError(dict.ptr(), key.ptr());
      if (value == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
      watch.names.values.push_back(py::reinterpret_borrow<py::object>(value));
    }
    add(std::move(watch));
  }

  void add_dict(const py::dict& dict) {
    DictWatch watch{dict, {}, true};
    for (const auto& [key, value] : dict) {
      watch.names.keys.push_back(py::reinterpret_borrow<py::object>(key));
      watch.names.values.push_back(py::reinterpret_borrow<py::object>(value));
    }
    add(std::move(watch));
  }

  void add_list(const py::list& list) {
    ListWatch watch{list, {}};
    for (const py::handle item : list) {
      watch.items.push_back(py::reinterpret_borrow<py::object>(item));
    }
    lists_.push_back(std::move(watch));
  }

  void add_value(const py::object& object, const py::object& copy) {
    values_.push_back({object, copy});
  }

  void add_bytes(const py::object& array) { bytes_.push_back({array, bytes_of(array)}); }

  void add_class(const py::type& type, const py::list& keys) {
    ClassWatch watch{type, names_of(keys)};
    for (const py::object& key : watch.names.keys) {
      PyObject* const found =
          _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type.ptr()), key.ptr());
      watch.names.values.push_back(py::reinterpret_borrow<py::object>(found));
    }
    classes_.push_back(std::move(watch));
  }

  void add_attribute(const py::object& object, const py::str& name) {
    PyObject* const found = PyObject_GetAttr(object.ptr(), name.ptr());
    if (found == nullptr) PyErr_Clear();
    attributes_.push_back({object, name, py::reinterpret_steal<py::object>(found)});
  }

  bool unchanged() {
    const auto all = [](auto& watches) {
      for (auto& watch : watches) {
        if (!same(watch)) return false;
      }
      return true;
    };
    return all(types_) && same_dicts() && all(classes_) && all(lists_) && all(values_) &&
           all(bytes_) && all(attributes_);
  }

  // Calls `visit` with everything that is held.
  template <class Visit>
  void each(Visit&& visit) {
    for (TypeWatch& w : types_) visit(w.object), visit(w.type);
    for (DictWatch& w : dicts_) visit(w.dict), each_name(w.names, visit);
    for (ClassWatch& w : classes_) visit(w.type), each_name(w.names, visit);
    for (ValueWatch& w : values_) visit(w.object), visit(w.copy);
    for (BytesWatch& w : bytes_) visit(w.array);
    for (AttributeWatch& w : attributes_) visit(w.object), visit(w.name), visit(w.value);
    for (ListWatch& w : lists_) {
      visit(w.list);
      for (py::object& item : w.items) visit(item);
    }
  }

  void clear() {
    types_.clear();
    dicts_.clear();
    versions_.clear();
    classes_.clear();
    lists_.clear();
    values_.clear();
    bytes_.clear();
    attributes_.clear();
  }

 private:
  void add(DictWatch watch) {
    versions_.push_back({watch.dict.ptr()});
    dicts_.push_back(std::move(watch));
  }

  bool same_dicts() {
    for (std::size_t i = 0; i < versions_.size(); ++i) {
#if KERF_DICT_VERSIONS
      const std::uint64_t version = dict_version(versions_[i].dict);
      if (version == versions_[i].version) continue;
#endif
      if (!same(dicts_[i])) return false;
#if KERF_DICT_VERSIONS
      versions_[i].version = version;
#endif
    }
    return true;
  }

  template <class Visit>
  static void each_name(Names& names, Visit&& visit) {
    for (py::object& key : names.keys) visit(key);
    for (py::object& value : names.values) visit(value);
  }

  std::vector<TypeWatch> types_;
  std::vector<DictWatch> dicts_;
  std::vector<DictVersion> versions_;  // of dicts_
  std::vector<ClassWatch> classes_;
  std::vector<ListWatch> lists_;
  std::vector<ValueWatch> values_;
  std::vector<BytesWatch> bytes_;
  std::vector<AttributeWatch> attributes_;
};

ObjectWatch* watch_in(PyObject* self) {
  // The collector may come between the object and its C++ half.
  auto* const instance = reinterpret_cast<py::detail::instance*>(self);
  if (!instance->get_value_and_holder().holder_constructed()) return nullptr;
  return py::handle(self).cast<ObjectWatch*>();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  ObjectWatch* const watch = watch_in(self);
  if (watch == nullptr) return 0;
  int stopped = 0;
  watch->each([&](py::object& held) {
    if (stopped == 0 && held) stopped = visit(held.ptr(), arg);
  });
  return stopped;
}

int clear(PyObject* self) {
  // Moved out first: what is dropped may run code that looks at this watch.
  if (ObjectWatch* const watch = watch_in(self)) ObjectWatch(std::move(*watch)).clear();
  return 0;
}

}  // namespace

void init_watch(py::module_& m) {
  const auto collectable = [](PyHeapTypeObject* heap_type) {
    PyTypeObject* const type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = &traverse;
    type->tp_clear = &clear;
  };
  py::class_<ObjectWatch>(m, "ObjectWatch", py::custom_type_setup(collectable),
                          "Have objects changed since they were added? By identity.")
      .def(py::init<>())
      .def("add_type", &ObjectWatch::add_type, py::arg("object"))
      .def("add_names", &ObjectWatch::add_names, py::arg("dict"), py::arg("keys"))
      .def("add_dict", &ObjectWatch::add_dict, py::arg("dict"))
      .def("add_list", &ObjectWatch::add_list, py::arg("list"))
      .def("add_value", &ObjectWatch::add_value, py::arg("object"), py::arg("copy"))
      .def("add_bytes", &ObjectWatch::add_bytes, py::arg("array"))
      .def("add_class", &ObjectWatch::add_class, py::arg("type"), py::arg("keys"))
      .def("add_attribute", &ObjectWatch::add_attribute, py::arg("object"), py::arg("name"))
      .def("unchanged", &ObjectWatch::unchanged);
}

}  // namespace kerf::bindings
