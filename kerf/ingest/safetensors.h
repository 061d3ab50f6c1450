// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints in the safetensors format: what tensors there are and where their bytes lie. The
// bytes themselves are not read, so a checkpoint of any size is described in milliseconds.
//
//   for (const SafetensorsFile& file : read_checkpoint("llama").files) {
//     for (const StoredTensor& tensor : file.tensors) { ... pread(tensor.offset) ... }
//   }
//
// A file is data from a stranger. What is wrong with it is one Error(invalid_argument) that names
// the file and the tensor; what the system refuses (no such file, permissions) is Error(io).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kerf/base/units.h"
#include "kerf/graph/dtype.h"

namespace kerf {

struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // empty for a scalar
  std::int64_t offset = 0;          // of the first byte, from the start of the file
  Bytes bytes;                      // as many as shape and dtype need

  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

struct SafetensorsFile {
  std::string path;
  Bytes size;                                   // of the whole file
  std::map<std::string, std::string> metadata;  // `__metadata__`
  // By offset. They fill the file from the end of its header to its end: the format allows neither
  // gaps nor overlaps, so offset + bytes <= size. Elements are little-endian, rows in C order.
  std::vector<StoredTensor> tensors;
};

// One file: 8 bytes of length, little-endian, a JSON header of that length (100 MB at most, as in
// the format's own reader), the data. Dtypes that Kerf does not have (F4, F6_*) are refused.
SafetensorsFile read_safetensors(const std::string& path);

struct Checkpoint {
  std::vector<SafetensorsFile> files;  // by path; no two hold a tensor of the same name
};

// `path` is a .safetensors file, an index (*.json with a `weight_map`), or a folder. Of a folder
// the first of these is read: model.safetensors, model.safetensors.index.json, the only index,
// the only .safetensors file. Links are followed. An index may name only files beside it, and
// every tensor that it names must be in the file that it says; tensors of these files that it does
// not name are returned, too.
Checkpoint read_checkpoint(const std::string& path);

}  // namespace kerf
