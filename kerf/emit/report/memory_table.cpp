// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/memory_table.h"

#include <fmt/ranges.h>

#include "kerf/emit/report/text_table.h"

namespace kerf {

std::string memory_table(const StepMemory& memory) {
  std::string out = fmt::format("peak {} in {}{}", to_string(memory.peak), memory.phase,
                                memory.node.empty() ? "" : fmt::format(" at {}", memory.node));
  if (memory.reserved.count > 0) out += fmt::format(", reserved {}", to_string(memory.reserved));
  out += "\n";
  TextTable table({{"at the peak", TextTable::Align::left}, {"bytes"}, {"share"}});
  Bytes sum;
  for (const Bytes bytes : memory.at_peak) sum += bytes;
  const auto add = [&](std::string name, Bytes bytes) {
    const double share = static_cast<double>(bytes.count) / static_cast<double>(memory.peak.count);
    table.add({std::move(name), to_string(bytes), fmt::format("{:.1f} %", 100 * share)});
  };
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    const Bytes bytes = memory.at_peak[k];
    if (bytes.count > 0) add(std::string(to_string(static_cast<MemoryKind>(k))), bytes);
  }
  if (memory.peak > sum) add("rounding", memory.peak - sum);
  out += table.str();
  if (!memory.ops_without_rule.empty()) {
    out += fmt::format(
        "no rule says exactly what these keep for backward; an estimate is counted: {}\n",
        fmt::join(memory.ops_without_rule, ", "));
  }
  return out;
}

}  // namespace kerf
