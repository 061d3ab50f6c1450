// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace kerf {

class MappedFile;

// In place of a copy in a slot: the pages of a mapped file that a weight lies in, at addresses of
// their own. They are those that the system keeps of the file anyway, and take memory of this
// process from `open` to `close`. Writing to them changes neither the file nor the weight's home.
//
//   if (const auto window = FileWindow::of(home)) FileWindow::open({window}, slot, is_awaited);
//   ... window->data() ...
class FileWindow {
 public:
  // Null where the numbers have to be copied: they are few or in no file, their addresses could
  // change what comes out, there are many windows, or the system lacks what it takes.
  static std::shared_ptr<FileWindow> of(const at::Tensor& home);
  ~FileWindow();
  FileWindow(const FileWindow&) = delete;
  FileWindow& operator=(const FileWindow&) = delete;

  void* data() const { return data_; }

  // Fetches the pages of all, for a slot. The numbers are then the homes', those included that this
  // process has written there. `is_awaited`: by a thread that does nothing meanwhile. Throws
  // Error(io) where a file was cut off.
  static void open(const std::vector<std::shared_ptr<FileWindow>>& windows, std::size_t slot,
                   const std::atomic<bool>& is_awaited);
  // Gives the memory back, unless it has been opened for another slot since. Any thread's.
  void close(std::size_t slot);
  // Throws Error(io) where the file was cut off since: reading would end the process.
  void check() const;
  // Since `open` by anybody, or before it to the weight's home.
  bool is_written();
  // The same when that was last asked, or at `open`.
  bool was_written() const { return was_written_; }

 private:
  FileWindow(std::shared_ptr<MappedFile> file, const at::Tensor& home, std::byte* pages);
  void prepare(std::size_t slot);
  void bring_written();
  void advise(int advice) const;

  std::shared_ptr<MappedFile> file_;
  const std::byte* home_;  // in the file's own mapping
  std::size_t bytes_;
  std::byte* pages_;
  std::size_t page_bytes_;
  std::byte* data_;  // in the pages
  std::mutex mutex_;
  std::optional<std::size_t> slot_;
  bool was_written_ = false;
};

}  // namespace kerf
