// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "python/src/torch/stream.h"

#include <ATen/core/Tensor.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/ingest/safetensors.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/stream/host_weight.h"
#include "kerf/libtorch/stream/linear_speed.h"
#include "kerf/libtorch/stream/mapped_file.h"
#include "kerf/libtorch/stream/pinned_arena.h"
#include "kerf/libtorch/stream/streamed_weights.h"
#include "kerf/libtorch/stream/write_watch.h"
#include "kerf/libtorch/threads.h"

namespace py = pybind11;

namespace kerf::bindings {
namespace {

// Tensors as they are stored, and the types that they are wanted as.
using Stored = std::vector<std::pair<at::Tensor, at::ScalarType>>;

std::vector<HostWeight> host_weights(const Stored& stored) {
  std::vector<HostWeight> out;
  for (const auto& [tensor, type] : stored) out.emplace_back(tensor, type);
  return out;
}

// The tensors of a checkpoint, by name, as memory that is fetched when it is read.
py::dict map_checkpoint(const std::string& path) {
  py::dict out;
  for (const SafetensorsFile& file : read_checkpoint(path).files) {
    const std::shared_ptr<MappedFile> mapped = MappedFile::open(file.path);
    for (const StoredTensor& stored : file.tensors) {
      out[py::str(stored.name)] = mapped->tensor(static_cast<std::size_t>(stored.offset),
                                                 to_scalar_type(stored.dtype), stored.shape);
    }
  }
  return out;
}

std::unique_ptr<StreamedWeights> make_streamed(
    std::vector<std::pair<std::string, std::vector<at::Tensor>>> units, const at::Device& device,
    std::size_t slots, std::int64_t slot_bytes) {
  std::vector<StreamedWeights::Unit> given;
  for (auto& [path, parameters] : units) given.push_back({path, std::move(parameters)});
  return std::make_unique<StreamedWeights>(std::move(given), device, slots, Bytes{slot_bytes});
}

double file_speed(const at::Tensor& tensor, std::size_t most_bytes) {
  const void* const from = tensor.const_data_ptr();
  const auto file = MappedFile::at(from);
  KERF_CHECK(file != nullptr, "the tensor is not in a mapped file");
  return file->speed(from, std::min(most_bytes, tensor.nbytes()));
}

// Read a MiB at a time: mapped ones take no memory.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::size_t kPiece = 1 << 20;
  if (a.nbytes() != b.nbytes()) return false;
  std::vector<std::byte> left(kPiece);
  std::vector<std::byte> right(kPiece);
  const auto* const from_a = static_cast<const std::byte*>(a.const_data_ptr());
  const auto* const from_b = static_cast<const std::byte*>(b.const_data_ptr());
  for (std::size_t done = 0; done < a.nbytes(); done += kPiece) {
    const std::size_t bytes = std::min(kPiece, a.nbytes() - done);
    read_host(from_a + done, bytes, left.data());
    read_host(from_b + done, bytes, right.data());
    if (std::memcmp(left.data(), right.data(), bytes) != 0) return false;
  }
  return true;
}

// `like`: a weight of the type that counts; it is not read.
std::vector<double> linear_speed(const at::Tensor& like, const at::Device& device,
                                 const std::vector<std::int64_t>& rows) {
  const py::gil_scoped_release release;
  return linear_seconds_per_byte(like.scalar_type(), device, rows);
}

py::dict stats_of(const StreamedWeights& weights) {
  const Streamer::Stats& stats = weights.stats();
  py::dict out;
  out["uses"] = stats.uses;
  out["misses"] = stats.misses;
  out["copies"] = stats.copies;
  out["unused_copies"] = stats.unused;
  return out;
}

}  // namespace

void init_stream(py::module_& m) {
  m.def(
      "map_checkpoint", &map_checkpoint, py::arg("path"),
      "The tensors of a safetensors checkpoint by name; their bytes are read when they are used.");
  m.def(
      "move_to_file",
      [](const std::string& folder, const Stored& stored) {
        return move_to_file(folder, host_weights(stored));
      },
      py::arg("folder"), py::arg("stored"), py::call_guard<py::gil_scoped_release>(),
      "Writes the tensors' numbers, as these types, to a file in a folder; the tensors as they lie "
      "in it.");
  m.def(
      "load",
      [](const at::Tensor& stored, at::ScalarType type, const at::Device& device) {
        return HostWeight(stored, type).load(device);
      },
      py::arg("stored"), py::arg("type"), py::arg("device"),
      py::call_guard<py::gil_scoped_release>(),
      "A tensor of the host in new memory of a device, as this type; read a few MiB at a time.");
  m.def("file_speed", &file_speed, py::arg("tensor"), py::arg("most_bytes"),
        "Bytes per second of reading a tensor that is in a mapped file.");
  m.def("same_bytes", &same_bytes, py::arg("a"), py::arg("b"),
        py::call_guard<py::gil_scoped_release>(),
        "Whether two tensors of the host, without gaps, have the same bytes.");
  m.def("linear_seconds_per_byte", &linear_speed, py::arg("like"), py::arg("device"),
        py::arg("rows"), "Of products of so many rows with a weight like this, by number of rows.");
  m.def(
      "is_mapped",
      [](const at::Tensor& tensor) {
        return tensor.is_cpu() && MappedFile::at(tensor.const_data_ptr()) != nullptr;
      },
      py::arg("tensor"), "Whether the tensor's numbers are in a mapped file.");
  m.def("watch_writes", &watch_writes, py::arg("tensor"),
        "From here on writes to the tensor's memory are noticed; False where they cannot be.");
  m.def("is_watched", &is_watched, py::arg("tensor"),
        "Whether nobody has written to the tensor's memory since it is watched.");
  m.def(
      "slot_bytes_and_extent",
      [](const at::Tensor& weight) {
        const auto begin = reinterpret_cast<std::uintptr_t>(weight.const_data_ptr());
        std::int64_t last = 0;
        for (std::int64_t d = 0; d < weight.dim(); ++d) {
          last += (weight.size(d) - 1) * weight.stride(d);
        }
        const auto extent = static_cast<std::size_t>(weight.numel() > 0 ? last + 1 : 0);
        return std::tuple(StreamedWeights::bytes_of({weight}).count, begin,
                          begin + extent * weight.element_size());
      },
      py::arg("weight"),
      "What a weight takes in a slot; the addresses where its memory begins and ends.");
  py::class_<PinnedArena>(m, "PinnedArena", "Pinned memory that units' weights move to.")
      .def(py::init<std::size_t>(), py::arg("bytes"))
      .def(
          "take",
          [](PinnedArena& arena, const Stored& stored) { return arena.take(host_weights(stored)); },
          py::arg("stored"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("not_pinned", &PinnedArena::not_pinned);
  py::class_<BesideDevice>(m, "BesideDevice",
                           "While it lives, operators of this thread leave a core to others.")
      .def(py::init<>());
  py::class_<StreamedWeights>(m, "StreamedWeights",
                              "Weights that are in memory while their module runs.")
      .def(py::init(&make_streamed), py::arg("units"), py::arg("device"), py::arg("slots"),
           py::arg("slot_bytes"))
      .def("enter", &StreamedWeights::enter, py::arg("unit"),
           py::call_guard<py::gil_scoped_release>())
      .def("leave", &StreamedWeights::leave, py::arg("unit"))
      .def("end_call", &StreamedWeights::end_call)
      .def("call_is_like", &StreamedWeights::call_is_like, py::arg("kind"))
      .def("abandon", &StreamedWeights::abandon)
      .def_property_readonly("stats", &stats_of);
}

}  // namespace kerf::bindings
