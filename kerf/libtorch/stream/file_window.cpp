// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/file_window.h"

#include <ATen/Version.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "kerf/libtorch/stream/mapped_file.h"

namespace kerf {
namespace {

constexpr std::size_t kFewBytes = std::size_t{1} << 20;  // a copy stays in the processor's caches
constexpr int kMostWindows = 1 << 13;  // a process has 65,530 mappings by default, for everything
constexpr std::size_t kVectorAlignment = 64;  // of every tensor that PyTorch makes

std::atomic<int> windows = 0;

#ifdef MADV_POPULATE_READ
constexpr int kPopulate = MADV_POPULATE_READ;
#else
constexpr int kPopulate = 22;
#endif

bool system_can_populate() {
  static const bool can = ::madvise(page_begin(&kFewBytes), 0, kPopulate) == 0;
  return can;
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
  if (home.nbytes() < kFewBytes || !system_can_populate() || !MappedFile::knows_what_is_written() ||
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
}

FileWindow::~FileWindow() {
  --windows;
  ::munmap(pages_, page_bytes_);
}

void FileWindow::advise(int advice) const {
  if (::madvise(pages_, page_bytes_, advice) != 0) file_->fail(std::strerror(errno));
}

void FileWindow::open(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  slot_ = slot;
  advise(MADV_DONTNEED);  // what a forward has written to them
  check();                // the last page is there even where the file ends within it
  ::madvise(pages_, page_bytes_, MADV_WILLNEED);  // reads more at once than the next line does
  advise(kPopulate);
  file_->read_written(home_, bytes_, data_);
}

void FileWindow::close(std::size_t slot) {
  const std::lock_guard lock(mutex_);
  if (slot_ != slot) return;
  slot_.reset();
  advise(MADV_DONTNEED);
}

void FileWindow::check() const { file_->check(home_, bytes_); }

bool FileWindow::is_written() const { return file_->is_written(data_, bytes_); }

}  // namespace kerf
