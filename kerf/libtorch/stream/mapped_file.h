// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kerf/base/units.h"

namespace kerf {

class HostWeight;
class MappedFile;

// Writes the numbers of these weights to a file in the folder, and gives them back as they lie in
// it. The file has no name any more: its space is free when nobody
// uses the tensors. Throws Error(io); no file is left then.
std::vector<at::Tensor> move_to_file(const std::string& folder,
                                     const std::vector<HostWeight>& weights);

// A file as memory that the system fetches and drops as it likes. Writing to it changes this
// process's copy of a page, never the file.
//
//   const auto file = MappedFile::open("model.safetensors");
//   at::Tensor weight = file->tensor(offset, at::kFloat, {4096, 4096});   // reads nothing yet
class MappedFile : public std::enable_shared_from_this<MappedFile> {
 public:
  // Throws Error(io) with the path.
  static std::shared_ptr<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // The tensor keeps the file mapped. Throws Error(io) if it ends after the file.
  at::Tensor tensor(std::size_t offset, at::ScalarType type, at::IntArrayRef shape);
  // Its elements are in the file as these strides have them in memory, without gaps.
  at::Tensor tensor(std::size_t offset, at::ScalarType type, at::IntArrayRef shape,
                    at::IntArrayRef strides);

  // The file that an address lies in, if any.
  static std::shared_ptr<MappedFile> at(const void* address);

  // The bytes as a tensor at `from`, which lies in the mapping, has them: from the file, without
  // taking memory for the mapping, and from the pages that this process has written. Throws
  // Error(io) where the file cannot be read to its end: it was cut off meanwhile.
  void read(const void* from, std::size_t bytes, void* to) const;

  // What of it this process has written, to `to`, which has the bytes of the file. Returns whether
  // there was any.
  bool read_written(const void* from, std::size_t bytes, void* to) const;
  // Throws Error(io) where the file ends before these bytes do: it was cut off meanwhile.
  void check(const void* from, std::size_t bytes) const;
  [[noreturn]] void fail(const std::string& found) const;

  // The pages that the bytes lie in once more, at addresses of their own: as the file has them, and
  // with writes of their own. munmap is the caller's; null where the system refuses.
  std::byte* map_again(const void* from, std::size_t bytes) const;

  // Bytes per second of reading so many bytes from there on now.
  double speed(const void* from, std::size_t bytes) const;

 private:
  MappedFile(std::string path, int file, std::byte* memory, std::size_t size);
  std::size_t offset_of(const void* from) const;
  std::string path_;
  int file_;
  std::byte* memory_;
  std::size_t size_;
};

// Bytes of the host's memory, from the file itself where they are mapped.
void read_host(const void* from, std::size_t bytes, void* to);

}  // namespace kerf
