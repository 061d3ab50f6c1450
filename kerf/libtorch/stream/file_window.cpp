// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/file_window.h"

#include <ATen/Version.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "kerf/libtorch/stream/fetch_pages.h"
#include "kerf/libtorch/stream/mapped_file.h"
#include "kerf/libtorch/stream/pages.h"

namespace kerf {
namespace {

constexpr std::size_t kFewBytes = std::size_t{1} << 20;  // a copy stays in the processor's caches
constexpr int kMostWindows = 1 << 13;  // a process has 65,530 mappings by default, for everything
constexpr std::size_t kVectorAlignment = 64;  // of every tensor that PyTorch makes

std::atomic<int> windows = 0;

// Linux 5.18 and later, for mappings that ask for large pages. Earlier ones would read MADV_RANDOM
// a page at a time.
bool system_reads_large_pages() {
  static const bool does = [] {
    utsname system{};
    int major = 0;
    int minor = 0;
    return ::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
           std::pair(major, minor) >= std::pair(5, 18);
  }();
  return does;
}

// Vectors of AVX are read from any address alike: products were equal to the bit wherever the
// weights began. Without them a product may begin with single numbers up to an aligned address,
// and add in another order.
std::size_t needed_alignment(const at::Tensor& home) {
  static const bool any = at::get_cpu_capability().rfind("AVX", 0) == 0;
  return any ? home.element_size() : kVectorAlignment;
}

}  // namespace

std::shared_ptr<FileWindow> FileWindow::of(const at::Tensor& home) {
  const void* const begin = home.const_data_ptr();
  if (home.nbytes() < kFewBytes || !system_can_fetch_pages() || !system_knows_written_pages() ||
      reinterpret_cast<std::uintptr_t>(begin) % needed_alignment(home) != 0) {
    return nullptr;
  }
  auto file = MappedFile::at(begin);
  if (!file || windows >= kMostWindows) return nullptr;
  std::byte* const pages = file->map_again(begin, home.nbytes());
  if (pages == nullptr) return nullptr;
  return std::shared_ptr<FileWindow>(new FileWindow(std::move(file), home, pages));
}

FileWindow::FileWindow(std::shared_ptr<MappedFile> file, const at::Tensor& home, std::byte* pages)
    : file_(std::move(file)),
      home_(static_cast<const std::byte*>(home.const_data_ptr())),
      bytes_(home.nbytes()),
      pages_(pages),
      page_bytes_(page_bytes(home_, bytes_)),
      data_(pages + (home_ - page_begin(home_))) {
  ++windows;
  if (!system_reads_large_pages()) return;
  // What is not in the system's memory yet is read 2 MiB at a time, and kept so where the file
  // system can: one entry to fill, and to drop, for 512. Without reading ahead, which would go on
  // into what another module has, or into what stays in memory.
  ::madvise(pages_, page_bytes_, MADV_HUGEPAGE);
  ::madvise(pages_, page_bytes_, MADV_RANDOM);
}

FileWindow::~FileWindow() {
  --windows;
  ::munmap(pages_, page_bytes_);
}

void FileWindow::advise(int advice) const {
  if (::madvise(pages_, page_bytes_, advice) != 0) file_->fail(std::strerror(errno));
}

void FileWindow::open(const std::vector<std::shared_ptr<FileWindow>>& windows, std::size_t slot,
                      const std::atomic<bool>& is_awaited) {
  std::vector<Pages> pages;
  for (const auto& window : windows) {
    window->prepare(slot);
    pages.push_back({window->pages_, window->pages_ + window->page_bytes_});
  }
  if (const auto failure = fetch_pages(pages, is_awaited)) {
    windows[failure->which]->file_->fail(std::strerror(failure->error));
  }
  for (const auto& window : windows) window->bring_written();
}

void FileWindow::prepare(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  slot_ = slot;
  advise(MADV_DONTNEED);  // what a forward has written to them
  check();                // the last page is there even where the file ends within it
  // Earlier systems read more at once with it than they do for each page.
  if (!system_reads_large_pages()) ::madvise(pages_, page_bytes_, MADV_WILLNEED);
}

void FileWindow::bring_written() {
  const std::lock_guard lock(mutex_);
  was_written_ = file_->read_written(home_, bytes_, data_);
}

void FileWindow::close(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  if (slot_ != slot) return;
  slot_.reset();
  advise(MADV_DONTNEED);
}

void FileWindow::check() const { file_->check(home_, bytes_); }

bool FileWindow::is_written() {
  was_written_ = any_written(data_, bytes_);
  return was_written_;
}

}  // namespace kerf
