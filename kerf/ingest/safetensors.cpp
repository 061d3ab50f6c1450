// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/ingest/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "kerf/base/json.h"
#include "kerf/base/printable.h"

namespace kerf {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostHeader = 100'000'000;
constexpr std::size_t kLengthBytes = 8;

constexpr std::string_view kWriteAgain = "write it again with safetensors";
constexpr std::string_view kCopyAgain = "copy or download it again";
constexpr std::string_view kConvert =
    "convert it: safetensors.torch.save_file(torch.load(path, weights_only=True), new_path)";

[[noreturn]] void refuse(std::string_view path, std::string_view found, std::string_view expected,
                         std::string_view remedy, ErrorKind kind = ErrorKind::invalid_argument) {
  throw Error(kind, printable(fmt::format("[ingest.safetensors] {}: {}; expected {}; {}", path,
                                          found, expected, remedy)));
}

class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    // A pipe may never be written to.
    if (fs::exists(status) && !fs::is_regular_file(status)) {
      refuse(path, fs::is_directory(status) ? "a folder" : "a device or a pipe", "a file",
             "give the path of a file", ErrorKind::io);
    }
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (file_ == nullptr) fail(errno);
    size_ = fs::file_size(path, failed);
    if (failed) fail(failed.value());
  }

  std::uint64_t size() const { return size_; }

  // The next bytes; fewer where the file ends.
  std::string read(std::size_t count) {
    std::string out(std::min<std::uint64_t>(count, size_), '\0');
    out.resize(std::fread(out.data(), 1, out.size(), file_.get()));
    if (std::ferror(file_.get()) != 0) fail(errno);
    return out;
  }

 private:
  [[noreturn]] void fail(int error) const {
    refuse(path_, fmt::format("cannot read it: {}", std::strerror(error)),
           "a .safetensors file or a folder with one", "check the path and its permissions",
           ErrorKind::io);
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_ = 0;
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t out = 0;
  for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
    out = out << 8 | static_cast<unsigned char>(*byte);
  }
  return out;
}

// Files that people have instead. A header of 640 bytes starts as a pickle does, so this is asked
// of files that are no safetensors.
void refuse_foreign(std::string_view path, std::string_view start) {
  constexpr std::string_view kExpected = "a safetensors file";
  const bool pickled = start.size() > 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5 &&
                       little_endian(start.substr(0, kLengthBytes)) > kMostHeader;
  if (pickled || start.starts_with("PK\x03\x04")) {
    refuse(path, "a pickle or a zip archive, as torch.save writes them", kExpected, kConvert);
  }
  if (start.starts_with("version ")) {
    refuse(path, "a pointer of Git LFS", kExpected, "fetch the file with git lfs pull");
  }
  if (start.starts_with("GGUF")) {
    refuse(path, "a GGUF file", kExpected, "give the checkpoint it was made from");
  }
}

std::string read_header(InputFile& file, const std::string& path) {
  const std::string start = file.read(kLengthBytes + 1);
  if (start.size() < kLengthBytes) {
    refuse(path, fmt::format("a file of {} bytes", start.size()), "8 bytes and a header",
           kCopyAgain);
  }
  const std::uint64_t length = little_endian(std::string_view(start).substr(0, kLengthBytes));
  const bool fits = length > 0 && length <= file.size() - kLengthBytes;
  if (!fits || length > kMostHeader || start.back() != '{') refuse_foreign(path, start);
  if (length > kMostHeader) {
    refuse(path, fmt::format("a header of {} bytes", length),
           fmt::format("a safetensors file, with {} at most", kMostHeader), "give another file");
  }
  if (!fits) {
    refuse(path, fmt::format("a header of {} bytes in a file of {}", length, file.size()),
           "a file that holds its header", kCopyAgain);
  }
  if (start.back() != '{') {
    refuse(path, "a header that does not start with '{'", "a safetensors file",
           "give another file");
  }
  std::string header = "{" + file.read(static_cast<std::size_t>(length) - 1);
  if (header.size() != length) refuse(path, "less than a moment ago", "a file at rest", kCopyAgain);
  return header;
}

constexpr std::array<std::pair<std::string_view, DType>, 19> kDTypes{{
    {"F64", DType::f64},
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"F8_E4M3", DType::f8e4m3fn},
    {"F8_E5M2", DType::f8e5m2},
    {"F8_E4M3FNUZ", DType::f8e4m3fnuz},
    {"F8_E5M2FNUZ", DType::f8e5m2fnuz},
    {"F8_E8M0", DType::f8e8m0fnu},
    {"I64", DType::i64},
    {"I32", DType::i32},
    {"I16", DType::i16},
    {"I8", DType::i8},
    {"U64", DType::u64},
    {"U32", DType::u32},
    {"U16", DType::u16},
    {"U8", DType::u8},
    {"BOOL", DType::boolean},
    {"C64", DType::c64},
}};

DType read_dtype(const std::string& path, const std::string& tensor, const std::string& name) {
  std::string known;
  for (const auto& [spelling, dtype] : kDTypes) {
    if (spelling == name) return dtype;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", spelling);
  }
  refuse(path, fmt::format("tensor '{}' of dtype '{}'", tensor, name), "one of " + known,
         "convert the tensor to one of them");
}

std::int64_t read_count(const JsonReader& json) {
  const std::int64_t value = json.as_integer();
  if (value < 0) json.fail(std::to_string(value), "0 or more");
  return value;
}

// Nothing where it leaves 64 bits.
std::optional<std::int64_t> bytes_of(const std::vector<std::int64_t>& shape, DType dtype) {
  std::int64_t out = element_size(dtype);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(out, size, &out)) return std::nullopt;
  }
  return out;
}

// With an offset from the start of the data, as in the file.
StoredTensor read_tensor(const std::string& path, const std::string& name, const JsonReader& json) {
  StoredTensor out;
  out.name = name;
  const std::string dtype = json.text("dtype");
  out.dtype = read_dtype(path, name, dtype);
  for (const JsonReader& size : json.children("shape")) out.shape.push_back(read_count(size));
  const std::vector<JsonReader> ends = json.children("data_offsets");
  if (ends.size() != 2) {
    json.child("data_offsets").fail(fmt::format("{} numbers", ends.size()), "two");
  }
  out.offset = read_count(ends[0]);
  const std::int64_t end = read_count(ends[1]);
  if (end < out.offset) ends[1].fail(std::to_string(end), fmt::format("{} or more", out.offset));
  out.bytes = Bytes{end - out.offset};
  const std::optional<std::int64_t> needed = bytes_of(out.shape, out.dtype);
  if (needed != out.bytes.count) {
    refuse(path,
           fmt::format("tensor '{}' of {} bytes, {}[{}]", name, out.bytes.count, dtype,
                       fmt::join(out.shape, ", ")),
           needed ? fmt::format("{} bytes", *needed) : "fewer than 2^63 elements", kWriteAgain);
  }
  return out;
}

// Sorts and checks that the tensors fill the data; offsets then count from the start of the file.
void lay_out(SafetensorsFile& file, std::int64_t data_start) {
  constexpr std::string_view kExpected = "tensors one after the other, without overlaps or gaps";
  std::sort(file.tensors.begin(), file.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  const std::int64_t data_size = file.size.count - data_start;
  std::int64_t end = 0;
  for (StoredTensor& tensor : file.tensors) {
    if (tensor.offset < end) {
      refuse(file.path,
             fmt::format("tensor '{}' at byte {} of the data, where another one ends at {}",
                         tensor.name, tensor.offset, end),
             kExpected, kWriteAgain);
    }
    if (tensor.offset > end) {
      refuse(file.path,
             fmt::format("no tensor in bytes {} to {} of the data, in front of '{}'", end,
                         tensor.offset, tensor.name),
             kExpected, kWriteAgain);
    }
    if (tensor.bytes.count > data_size - end) {
      refuse(file.path,
             fmt::format("{} bytes of data, and tensor '{}' at {} to {}", data_size, tensor.name,
                         end, end + tensor.bytes.count),
             "a whole file", kCopyAgain);
    }
    end += tensor.bytes.count;
    tensor.offset += data_start;
  }
  if (end != data_size) {
    refuse(file.path, fmt::format("{} bytes behind the last tensor", data_size - end), kExpected,
           kWriteAgain);
  }
}

// The parser refuses a name that is there twice, unless an escape hides it: "a" and "\u0061".
void forbid_hidden_duplicates(const std::string& path, const JsonDocument& document,
                              std::size_t distinct) {
  std::size_t fields = 0;
  for (auto field = document.first(0); field != document.last(0); ++fields) {
    field = document.next(field + 1);
  }
  if (fields != distinct) {
    refuse(path, "a name twice, once with escapes", "names that differ", kWriteAgain);
  }
}

std::vector<std::string> list_folder(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    out.push_back(entry->path().filename().string());
  }
  if (failed) {
    refuse(folder, "cannot list it: " + failed.message(), "a folder with a checkpoint",
           "check its permissions", ErrorKind::io);
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_pickle_name(std::string_view name) {
  return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") ||
         name.ends_with(".ckpt") || name.ends_with(".bin.index.json");
}

// The name of the file to start from.
std::string choose_file(const std::string& folder) {
  std::vector<std::string> files;
  std::vector<std::string> indexes;
  std::string pickle;
  const std::vector<std::string> names = list_folder(folder);
  for (const char* const usual : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::binary_search(names.begin(), names.end(), usual)) return usual;
  }
  for (const std::string& name : names) {
    if (is_pickle_name(name)) {
      pickle = name;
    } else if (name.ends_with(".safetensors")) {
      files.push_back(name);
    } else if (name.ends_with(".index.json")) {
      indexes.push_back(name);
    }
  }
  if (indexes.size() == 1) return indexes.front();
  if (indexes.empty() && files.size() == 1) return files.front();
  constexpr std::string_view kExpected =
      "model.safetensors, model.safetensors.index.json, or one file of either kind";
  if (indexes.empty() && files.empty()) {
    if (!pickle.empty()) {
      refuse(folder, fmt::format("'{}' and no .safetensors file", pickle), kExpected, kConvert);
    }
    refuse(folder, "a folder without a .safetensors file", kExpected, "give another folder");
  }
  refuse(folder, fmt::format("{} indexes and {} .safetensors files", indexes.size(), files.size()),
         kExpected, "give the path of one of them");
}

// The tensors that an index says are in each file, by file.
using Shards = std::map<std::string, std::vector<std::string>>;

Shards read_index(const std::string& path) {
  InputFile file(path);
  if (file.size() > kMostHeader) {
    refuse(path, fmt::format("{} bytes", file.size()),
           fmt::format("{} at most in an index", kMostHeader), "give another file");
  }
  const std::string text = file.read(static_cast<std::size_t>(file.size()));
  const JsonDocument document = parse_json(text, path, ErrorKind::invalid_argument);
  Shards out;
  for (const auto& [tensor, shard] : JsonReader(document).child("weight_map").fields()) {
    out[shard.as_text()].push_back(tensor);
  }
  if (out.empty()) refuse(path, "an index without tensors", "a weight_map", kWriteAgain);
  for (const auto& [name, tensors] : out) {
    if (is_pickle_name(name)) {
      refuse(path, fmt::format("tensors in '{}'", name), ".safetensors files", kConvert);
    }
    const bool plain = name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain || !name.ends_with(".safetensors")) {
      refuse(path, fmt::format("tensor '{}' in '{}'", tensors.front(), name),
             "the name of a .safetensors file beside the index",
             "put the files beside the index and write their names alone");
    }
  }
  return out;
}

Checkpoint read_shards(const std::string& index) {
  Checkpoint out;
  std::unordered_map<std::string, std::string> shard_of;
  for (const auto& [name, tensors] : read_index(index)) {
    const std::string path = (fs::path(index).parent_path() / name).string();
    std::error_code failed;
    if (fs::status(path, failed).type() == fs::file_type::not_found) {
      refuse(index, fmt::format("'{}', which is not there", name), "all files beside the index",
             "copy or download the missing file", ErrorKind::io);
    }
    out.files.push_back(read_safetensors(path));
    for (const StoredTensor& tensor : out.files.back().tensors) {
      const auto [other, first] = shard_of.try_emplace(tensor.name, name);
      if (!first) {
        refuse(index,
               fmt::format("tensor '{}' in '{}' and in '{}'", tensor.name, other->second, name),
               "each tensor once", kWriteAgain);
      }
    }
    for (const std::string& tensor : tensors) {
      const auto found = shard_of.find(tensor);
      if (found == shard_of.end() || found->second != name) {
        refuse(index, fmt::format("no tensor '{}' in '{}'", tensor, name),
               "each tensor in the file that the index says",
               "copy or download index and files again, from one place");
      }
    }
  }
  return out;
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) {
  InputFile file(path);
  const std::string header = read_header(file, path);
  const JsonDocument document = parse_json(header, path, ErrorKind::invalid_argument);
  SafetensorsFile out;
  out.path = path;
  out.size = Bytes{static_cast<std::int64_t>(file.size())};
  const auto fields = JsonReader(document).fields();
  forbid_hidden_duplicates(path, document, fields.size());
  for (const auto& [name, value] : fields) {
    if (name != "__metadata__") {
      out.tensors.push_back(read_tensor(path, name, value));
      continue;
    }
    if (value.type() == JsonType::null) continue;
    for (const auto& [key, text] : value.fields()) out.metadata[key] = text.as_text();
  }
  lay_out(out, static_cast<std::int64_t>(kLengthBytes + header.size()));
  return out;
}

Checkpoint read_checkpoint(const std::string& path) {
  std::error_code failed;
  const std::string file =
      fs::is_directory(path, failed) ? (fs::path(path) / choose_file(path)).string() : path;
  if (file.ends_with(".json")) return read_shards(file);
  return {{read_safetensors(file)}};
}

}  // namespace kerf
