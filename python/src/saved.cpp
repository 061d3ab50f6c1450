// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/saved/saved.h"

#include <pybind11/stl.h>

#include "python/src/module.h"

namespace kerf::bindings {
namespace {

std::int64_t batch_or_example(const Graph& graph, std::int64_t batch) {
  return batch == 0 ? graph.data().example_batch : batch;
}

// (name, storage, bytes) of a value; (None, None, bytes) of a tensor of the operator's own.
py::tuple saved_tensor(const Graph& graph, const SavedTensor& tensor, std::int64_t batch) {
  if (!tensor.value.valid()) return py::make_tuple(py::none(), py::none(), tensor.bytes.count);
  const Value& value = graph.value(tensor.value);
  return py::make_tuple(value.name, value.storage.index(),
                        graph.storage(value.storage).bytes.eval(batch));
}

py::dict saved_sets(const Graph& graph, std::int64_t batch, bool accelerator) {
  batch = batch_or_example(graph, batch);
  const SavedSets sets = find_saved(graph, batch, accelerator);
  py::list rows;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    py::list row;
    for (const SavedTensor& tensor : sets.of(NodeId{n})) {
      row.append(saved_tensor(graph, tensor, batch));
    }
    rows.append(std::move(row));
  }
  const SavedBytes bytes = saved_bytes(graph, sets, batch);
  py::dict out;
  out["made"] = bytes.made.count;
  out["inputs"] = bytes.inputs.count;
  out["by_node"] = std::move(rows);
  out["ops_without_rule"] = sets.ops_without_rule;
  return out;
}

}  // namespace

void init_saved(py::module_& m) {
  m.def(
      "saved_sets", &saved_sets, py::arg("graph"), py::arg("batch") = 0,
      py::arg("accelerator") = false,
      "What backward keeps of a training step. `by_node`: for each node the values whose "
      "memory it keeps (name, storage, bytes of the storage), and tensors of its own (None, None, "
      "bytes). `made` and `inputs`: distinct "
      "bytes of the graph, weights left out. `ops_without_rule`: taken to keep all they see.");
}

}  // namespace kerf::bindings
