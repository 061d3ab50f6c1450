// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/mapped_file.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/strides.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/libtorch/stream/host_weight.h"
#include "kerf/libtorch/stream/pages.h"

namespace kerf {
namespace {

// Every mapping that is alive, by its first address.
struct Mappings {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<MappedFile>> by_address;
};
Mappings& mappings() {
  static auto* const all = new Mappings;  // files may be closed after the program's statics
  return *all;
}

[[noreturn]] void fail_at(const std::string& path, const std::string& found) {
  throw Error(ErrorKind::io, fmt::format("[libtorch.mapped_file] {}: {}; expected a file that can "
                                         "be read and stays as it is; check the path, or copy the "
                                         "checkpoint again",
                                         path, found));
}

[[noreturn]] void fail_to_write(const std::string& path, const std::string& found) {
  throw Error(ErrorKind::io,
              fmt::format("[libtorch.mapped_file] {}: {}; expected a folder that can be written, "
                          "with room for the weights that do not stay in memory; give another one",
                          path, found));
}

}  // namespace

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_at(path, std::strerror(errno));
  struct stat about {};
  const bool known = ::fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  const auto size = known ? static_cast<std::size_t>(about.st_size) : 0;
  void* memory = nullptr;
  if (size > 0) {
    // Without swap for pages that nobody will write.
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
  }
  if (memory == nullptr || memory == MAP_FAILED) {
    const std::string why = !known ? "not a file" : size == 0 ? "empty" : std::strerror(errno);
    ::close(file);
    fail_at(path, why);
  }
  const std::shared_ptr<MappedFile> mapped(
      new MappedFile(path, file, static_cast<std::byte*>(memory), size));
  const std::lock_guard lock(mappings().mutex);
  mappings().by_address[mapped->memory_] = mapped;
  return mapped;
}

MappedFile::MappedFile(std::string path, int file, std::byte* memory, std::size_t size)
    : path_(std::move(path)), file_(file), memory_(memory), size_(size) {}

MappedFile::~MappedFile() {
  {
    const std::lock_guard lock(mappings().mutex);
    mappings().by_address.erase(memory_);
  }
  ::munmap(memory_, size_);
  ::close(file_);
}

at::Tensor MappedFile::tensor(std::size_t offset, at::ScalarType type, at::IntArrayRef shape) {
  return tensor(offset, type, shape, c10::contiguous_strides(shape));
}

at::Tensor MappedFile::tensor(std::size_t offset, at::ScalarType type, at::IntArrayRef shape,
                              at::IntArrayRef strides) {
  const std::size_t bytes =
      static_cast<std::size_t>(c10::multiply_integers(shape)) * c10::elementSize(type);
  if (offset > size_ || bytes > size_ - offset) {
    fail(fmt::format("a tensor ends at byte {} of {}", offset + bytes, size_));
  }
  return at::from_blob(
      memory_ + offset, shape, strides, [held = shared_from_this()](void*) {}, at::dtype(type));
}

std::shared_ptr<MappedFile> MappedFile::at(const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mappings().mutex);
  auto after = mappings().by_address.upper_bound(byte);
  if (after == mappings().by_address.begin()) return nullptr;
  const std::shared_ptr<MappedFile> found = std::prev(after)->second.lock();
  return found && byte < found->memory_ + found->size_ ? found : nullptr;
}

std::size_t MappedFile::offset_of(const void* from) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(from) - memory_);
}

void MappedFile::fail(const std::string& found) const { fail_at(path_, found); }

void MappedFile::read(const void* from, std::size_t bytes, void* to) const {
  if (!read_all(file_, to, bytes, offset_of(from))) {
    fail(fmt::format("only a part of the {} bytes from {} on could be read", bytes,
                     offset_of(from)));
  }
  read_written(from, bytes, to);
}

bool MappedFile::read_written(const void* from, std::size_t bytes, void* to) const {
  const auto* const begin = static_cast<const std::byte*>(from);
  const std::vector<Pages> written = written_pages(from, bytes);
  for (const Pages& pages : written) {
    const auto* const low = std::max(begin, pages.begin);
    const auto* const high = std::min(begin + bytes, pages.end);
    std::memcpy(static_cast<std::byte*>(to) + (low - begin), low,
                static_cast<std::size_t>(high - low));
  }
  return !written.empty();
}

void MappedFile::check(const void* from, std::size_t bytes) const {
  struct stat about {};
  if (::fstat(file_, &about) != 0) fail(std::strerror(errno));
  const auto size = static_cast<std::size_t>(about.st_size);
  if (size < offset_of(from) + bytes) {
    fail(fmt::format("it has {} bytes now, and weights up to byte {}", size,
                     offset_of(from) + bytes));
  }
}

std::byte* MappedFile::map_again(const void* from, std::size_t bytes) const {
  void* const memory =
      ::mmap(nullptr, page_bytes(from, bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
             file_, static_cast<off_t>(offset_of(page_begin(from))));
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void read_host(const void* from, std::size_t bytes, void* to) {
  if (bytes == 0) return;
  if (const auto file = MappedFile::at(from)) {
    file->read(from, bytes, to);
  } else {
    std::memcpy(to, from, bytes);
  }
}

double MappedFile::speed(const void* from, std::size_t bytes) const {
  std::vector<std::byte> scratch(bytes);
  const auto start = std::chrono::steady_clock::now();
  read(from, bytes, scratch.data());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / std::max(took.count(), 1e-9);
}

namespace {

constexpr std::size_t kFileAlignment = 64;
constexpr std::size_t kWritten = std::size_t{1} << 17;  // elements at once

// A file of its own, whoever else writes to the folder. It loses its name in the end.
class NewFile {
 public:
  explicit NewFile(const std::string& folder) : path_(folder + "/kerf-weights-XXXXXX") {
    file_ = ::mkstemp(path_.data());
    if (file_ < 0) fail_to_write(path_, std::strerror(errno));
  }
  ~NewFile() {
    if (file_ >= 0) ::close(file_);
    ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* from, std::size_t bytes, std::size_t offset) {
    const auto* at = static_cast<const std::byte*>(from);
    while (bytes > 0) {
      const ssize_t count = ::pwrite(file_, at, bytes, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        fail_to_write(path_, count < 0 ? std::strerror(errno) : "nothing could be written");
      at += count;
      offset += static_cast<std::size_t>(count);
      bytes -= static_cast<std::size_t>(count);
    }
  }
  void close() {
    if (::close(std::exchange(file_, -1)) != 0) fail_to_write(path_, std::strerror(errno));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace

std::vector<at::Tensor> move_to_file(const std::string& folder,
                                     const std::vector<HostWeight>& weights) {
  NewFile file(folder);
  std::vector<std::byte> piece;
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>> places;  // offset, strides
  std::size_t offset = 0;
  for (const HostWeight& given : weights) {
    const HostWeight weight = given.in_order();
    places.emplace_back(offset, weight.strides().vec());
    const std::size_t size = c10::elementSize(weight.type());
    for (std::size_t done = 0; done < weight.size(); done += kWritten) {
      const std::size_t count = std::min(kWritten, weight.size() - done);
      piece.resize(count * size);
      weight.read(done, count, piece.data());
      file.write(piece.data(), piece.size(), offset + done * size);
    }
    offset = (offset + weight.nbytes() + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
  }
  const std::byte end{};
  file.write(&end, 1, offset);  // the last tensor may be empty, a file may not
  file.close();
  const auto mapped = MappedFile::open(file.path());
  std::vector<at::Tensor> out;
  for (std::size_t w = 0; w < weights.size(); ++w) {
    const auto& [begin, strides] = places[w];
    out.push_back(mapped->tensor(begin, weights[w].type(), weights[w].sizes(), strides));
  }
  return out;
}

}  // namespace kerf
