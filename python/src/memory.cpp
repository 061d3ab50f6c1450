// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/predict_memory.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include "kerf/base/error.h"
#include "kerf/emit/report/memory_table.h"
#include "kerf/simulate/caching_allocator.h"
#include "python/src/module.h"
#include "python/src/recompute.h"

namespace kerf::bindings {
namespace {

StepMemory memory(const Graph& graph, std::int64_t batch, bool training,
                  const std::string& optimizer, const Recompute& recompute, const std::string& kind,
                  const Profile* profile, bool blocks) {
  return predict_memory(graph, {.batch = batch,
                                .training = training,
                                .optimizer = optimizer,
                                .recompute = to_choice(recompute),
                                .device_kind = kind,
                                .profile = profile,
                                .list_blocks = blocks});
}

std::vector<std::string> exempted(const Graph& graph, const std::string& mode,
                                  const std::vector<std::string>& exempt) {
  return recomputed_without(graph, mode, exempt);
}

py::dict at_peak(const StepMemory& memory) {
  py::dict out;
  Bytes sum;
  for (const Bytes bytes : memory.at_peak) sum += bytes;
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    out[py::str(std::string(to_string(static_cast<MemoryKind>(k))))] = memory.at_peak[k].count;
  }
  out["rounding"] = (memory.peak - sum).count;
  return out;
}

py::list blocks_of(const StepMemory& memory) {
  py::list out;
  for (const BlockEvent& event : memory.blocks) {
    const std::int64_t number =
        event.block == kOlderBlock ? -1 : static_cast<std::int64_t>(event.block);
    const std::int64_t node =
        event.node.valid() ? static_cast<std::int64_t>(event.node.index()) : -1;
    out.append(py::make_tuple(event.is_made, number, event.bytes.count, node));
  }
  return out;
}

}  // namespace

void init_memory(py::module_& m) {
  m.def("recomputed_without", &exempted, py::arg("graph"), py::arg("mode"), py::arg("exempt"),
        "The modules that a mode of recomputation names, without those that are exempt.");
  py::class_<StepMemory>(m, "StepMemory",
                         "What one step of a model takes on one device, by `kerf.memory`.")
      .def_property_readonly(
          "peak", [](const StepMemory& s) { return s.peak.count; }, "Bytes in use, at most.")
      .def_property_readonly(
          "reserved", [](const StepMemory& s) { return s.reserved.count; },
          "Bytes that PyTorch's allocator takes from an accelerator, at most; 0 on a host.")
      .def_property_readonly("at_peak", &at_peak,
                             "Bytes at the peak: weights, gradients, optimizer, saved, "
                             "temporaries, inputs, results, workspace; and rounding, what the "
                             "allocator of an accelerator adds to them. Their sum is the peak.")
      .def_readonly("phase", &StepMemory::phase, "Of the peak: forward, backward or optimizer.")
      .def_readonly("node", &StepMemory::node, "That runs at the peak; empty in the optimizer.")
      .def_property_readonly(
          "saved", [](const StepMemory& s) { return s.saved.count; },
          "Bytes that forward leaves for backward.")
      .def_property_readonly(
          "added_by_forward", [](const StepMemory& s) { return s.added_by_forward.count; },
          "What forward adds to the bytes in use: those, and its results, as the allocator rounds "
          "them.")
      .def_readonly("ops_without_rule", &StepMemory::ops_without_rule,
                    "Operators of which no rule says exactly what they keep for backward: fused "
                    "recurrent layers, of which an estimate is counted; others are taken to keep "
                    "all they see.")
      .def_property_readonly("blocks", &blocks_of,
                             "With blocks=True: every block of the step in its order, as (made or "
                             "given up, number, bytes, node that ran); -1 for blocks from before "
                             "the step, and for no node.")
      .def("__str__", &memory_table)
      .def("__repr__", [](const StepMemory& s) {
        return fmt::format("kerf.StepMemory(peak {}, reserved {}, in {})", to_string(s.peak),
                           to_string(s.reserved), s.phase);
      });
  py::class_<CachingAllocator>(m, "CachingAllocator",
                               "PyTorch's allocator of an accelerator as arithmetic.")
      .def(py::init<>())
      .def(
          "allocate",
          [](CachingAllocator& a, std::int64_t bytes) {
            if (bytes <= 0) {
              throw Error(ErrorKind::invalid_argument,
                          fmt::format("[simulate.caching_allocator] a block of {} bytes; expected "
                                      "one byte or more",
                                      bytes));
            }
            return a.allocate(Bytes{bytes}).index();
          },
          py::arg("bytes"), "The block's number, for free().")
      .def(
          "free", [](CachingAllocator& a, std::size_t block) { a.free(BlockId{block}); },
          py::arg("block"))
      .def("empty_cache", &CachingAllocator::empty_cache)
      .def("reset_peaks", &CachingAllocator::reset_peaks)
      .def_property_readonly("allocated",
                             [](const CachingAllocator& a) { return a.allocated().count; })
      .def_property_readonly("reserved",
                             [](const CachingAllocator& a) { return a.reserved().count; })
      .def_property_readonly("peak_allocated",
                             [](const CachingAllocator& a) { return a.peak_allocated().count; })
      .def_property_readonly("peak_reserved",
                             [](const CachingAllocator& a) { return a.peak_reserved().count; });
  m.def("memory", &memory, py::arg("graph"), py::arg("batch") = 0, py::arg("training") = true,
        py::arg("optimizer") = "adamw", py::arg("recompute") = Recompute("as_traced"),
        py::arg("device_kind") = "cuda", py::kw_only(), py::arg("profile") = nullptr,
        py::arg("blocks") = false,
        "Predicts the memory of one step of the whole model on one device: a training step from "
        "its second on, or an inference pass.\n\n"
        "batch        0: the traced example's\n"
        "optimizer    sgd, sgd_momentum, adam, adamw, rmsprop, adagrad, or none\n"
        "recompute    none, as_traced (the model's own checkpoints), all (every layer, as in "
        "kerf.plan), or a list of module paths\n"
        "device_kind  a kind of device, which need not be present\n"
        "profile      of this graph and batch, measured on an accelerator: its workspaces, which "
        "follow from cuDNN's choice of kernels, replace those of the rules\n"
        "blocks       list every block of the step in StepMemory.blocks");
}

}  // namespace kerf::bindings
