// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/pages.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace kerf {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// What the kernel says of this process's pages; -1 where it does not.
int page_map() {
  static const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  return file;
}

// Of an entry of the page map.
constexpr std::uint64_t kPresent = 1ULL << 63;
constexpr std::uint64_t kSwapped = 1ULL << 62;
constexpr std::uint64_t kOfFile = 1ULL << 61;

// PAGEMAP_SCAN of Linux 6.7, which C libraries' headers may lack: ranges of pages instead of an
// entry for each, and large pages, or none, in one step.
struct ScannedRange {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t categories;
};
struct ScanRequest {
  std::uint64_t size = sizeof(ScanRequest);
  std::uint64_t flags = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t walk_end = 0;
  std::uint64_t ranges = 0;
  std::uint64_t num_ranges = 0;
  std::uint64_t max_pages = 0;
  std::uint64_t inverted = 0;
  std::uint64_t all_of = 0;
  std::uint64_t any_of = 0;
  std::uint64_t returned = 0;
};
constexpr unsigned long kScan = _IOWR('f', 16, ScanRequest);
constexpr std::uint64_t kScanFile = 1U << 2;
constexpr std::uint64_t kScanPresent = 1U << 3;
constexpr std::uint64_t kScanSwapped = 1U << 4;

class WrittenPages {
 public:
  WrittenPages(const void* from, std::size_t bytes, std::size_t most)
      : begin_(page_begin(from)), end_(begin_ + page_bytes(from, bytes)), most_(most) {}

  std::vector<Pages> find() {
    static const bool can_scan = page_map() >= 0 && WrittenPages(begin_, 1, 1).scan();
    if (can_scan && scan()) return found_;
    found_.clear();
    if (page_map() >= 0 && read_entries()) return found_;
    return {{begin_, end_}};
  }

 private:
  // Whether there is room for more.
  bool add(const std::byte* begin, const std::byte* end) {
    if (!found_.empty() && found_.back().end == begin) {
      found_.back().end = end;
    } else if (found_.size() < most_) {
      found_.push_back({begin, end});
    }
    return found_.size() < most_;
  }

  bool scan() {
    std::array<ScannedRange, 64> ranges;
    ScanRequest request;
    request.begin = reinterpret_cast<std::uintptr_t>(begin_);
    request.end = reinterpret_cast<std::uintptr_t>(end_);
    request.ranges = reinterpret_cast<std::uintptr_t>(ranges.data());
    request.num_ranges = std::min(ranges.size(), most_);
    request.all_of = request.inverted = kScanFile;
    request.any_of = kScanPresent | kScanSwapped;
    request.returned = kScanPresent;
    while (request.begin < request.end) {
      const int count = ::ioctl(page_map(), kScan, &request);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 || request.walk_end <= request.begin) return false;
      for (int i = 0; i < count; ++i) {
        const auto& range = ranges[static_cast<std::size_t>(i)];
        if (!add(reinterpret_cast<const std::byte*>(range.begin),
                 reinterpret_cast<const std::byte*>(range.end))) {
          return true;
        }
      }
      request.begin = request.walk_end;
    }
    return true;
  }

  bool read_entries() {
    std::vector<std::uint64_t> entries(8192);
    const auto pages = static_cast<std::size_t>(end_ - begin_) / page_size();
    const auto first = reinterpret_cast<std::uintptr_t>(begin_) / page_size();
    for (std::size_t page = 0; page < pages; page += entries.size()) {
      const std::size_t count = std::min(entries.size(), pages - page);
      if (!read_all(page_map(), entries.data(), count * sizeof(std::uint64_t),
                    (first + page) * sizeof(std::uint64_t))) {
        return false;
      }
      for (std::size_t i = 0; i < count; ++i) {
        const bool is_here = (entries[i] & (kPresent | kSwapped)) != 0;
        if (!is_here || (entries[i] & kOfFile) != 0) continue;
        const std::byte* const at = begin_ + (page + i) * page_size();
        if (!add(at, at + page_size())) return true;
      }
    }
    return true;
  }

  const std::byte* begin_;
  const std::byte* end_;
  std::size_t most_;
  std::vector<Pages> found_;
};

}  // namespace

std::byte* page_begin(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<std::byte*>(at - at % page_size());
}

std::size_t page_bytes(const void* from, std::size_t bytes) {
  const auto size =
      static_cast<std::size_t>(static_cast<const std::byte*>(from) - page_begin(from)) + bytes;
  return (size + page_size() - 1) / page_size() * page_size();
}

std::vector<Pages> written_pages(const void* from, std::size_t bytes, std::size_t most) {
  return WrittenPages(from, bytes, most).find();
}

bool system_knows_written_pages() { return page_map() >= 0; }

bool read_all(int file, void* to, std::size_t bytes, std::size_t offset) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t count = ::pread(file, at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    offset += static_cast<std::size_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace kerf
