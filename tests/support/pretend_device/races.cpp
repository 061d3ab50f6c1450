// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/races.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>

namespace pretend {
namespace {

constexpr std::size_t kMaxReports = 100;

std::vector<std::string>& reports() {
  static auto* it = new std::vector<std::string>;
  return *it;
}

// Streams by number, to name the earlier one.
std::map<std::size_t, std::string>& names() {
  static auto* it = new std::map<std::size_t, std::string>;
  return *it;
}

void report(const Access& before, const Access& now, const Block& block) {
  if (reports().size() >= kMaxReports) return;
  auto text = c10::str(now.what, " on ", names()[now.stream], now.write ? " writes" : " reads",
                       " bytes ", now.begin, " to ", now.end, " of a block of ", block.bytes,
                       " bytes", block.device < 0 ? " of pinned memory" : "", " that ", before.what,
                       " on ", names()[before.stream], before.write ? " writes" : " reads",
                       ", without waiting for it");
  if (std::find(reports().begin(), reports().end(), text) == reports().end()) {
    reports().push_back(std::move(text));
  }
}

}  // namespace

void note_access(Block& block, std::size_t begin, std::size_t end, bool write, Stream& stream,
                 const std::string& what, const Clock* also_after) {
  if (begin >= end) return;
  std::lock_guard lock(issue_mutex());
  auto& name = names()[stream.number];
  if (name.empty()) name = c10::str("pretend:", int{stream.device}, " stream ", stream.id);
  const Access now{begin, end, stream.number, stream.clock.at(stream.number), write, what, false};
  const auto is_over = [&](Access& before) {
    // What the host has waited for comes before all that it issues from now on.
    if (knows(host_clock(), before.stream, before.task)) return true;
    if (before.end <= begin || end <= before.begin) return false;
    const bool ordered = knows(stream.clock, before.stream, before.task) ||
                         (also_after != nullptr && knows(*also_after, before.stream, before.task));
    if (!ordered && (write || before.write) && !before.told) {
      report(before, now, block);
      before.told = true;
    }
    const bool covered = begin <= before.begin && before.end <= end;
    return covered && (write || (!before.write && before.stream == stream.number));
  };
  std::erase_if(block.accesses, is_over);
  block.accesses.push_back(now);
}

std::vector<std::string> races() {
  std::lock_guard lock(issue_mutex());
  return reports();
}

void clear_races() {
  std::lock_guard lock(issue_mutex());
  reports().clear();
}

}  // namespace pretend
