// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

namespace kerf {

class MappedFile;

// In place of a copy in a slot: the pages of a mapped file that a weight lies in, at addresses of
// their own. They are those that the system keeps of the file anyway, and take memory of this
// process from `open` to `close`. Writing to them changes neither the file nor the weight's home.
//
//   if (const auto window = FileWindow::of(home)) { window->open(slot); ... window->data() ... }
class FileWindow {
 public:
  // Null where the numbers have to be copied: they are few or in no file, their addresses could
  // change what comes out, there are many windows, or the system lacks what it takes.
  static std::shared_ptr<FileWindow> of(const at::Tensor& home);
  ~FileWindow();
  FileWindow(const FileWindow&) = delete;
  FileWindow& operator=(const FileWindow&) = delete;

  void* data() const { return data_; }

  // Fetches the pages, for a slot. The numbers are then the home's, those included that this
  // process has written there. Throws Error(io) where the file was cut off.
  void open(std::size_t slot);
  // Gives the memory back, unless it has been opened for another slot since. Any thread's.
  void close(std::size_t slot);
  // Throws Error(io) where the file was cut off since: reading would end the process.
  void check() const;
  // Since `open` by anybody, or before it to the weight's home.
  bool is_written() const;

 private:
  FileWindow(std::shared_ptr<MappedFile> file, const at::Tensor& home, std::byte* pages);
  void advise(int advice) const;

  std::shared_ptr<MappedFile> file_;
  const std::byte* home_;  // in the file's own mapping
  std::size_t bytes_;
  std::byte* pages_;
  std::size_t page_bytes_;
  std::byte* data_;  // in the pages
  std::mutex mutex_;
  std::optional<std::size_t> slot_;
};

}  // namespace kerf
