// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "kerf/base/error.h"

namespace kerf {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail(std::string_view verb, const std::string& path, std::string_view hint) {
  throw Error(ErrorKind::io, fmt::format("[base.file] cannot {} '{}': {}; {}", verb, path,
                                         std::strerror(errno), hint));
}

// Unique among the threads of this process and among processes.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}.tmp.{}.{}", path, ::getpid(), counter.fetch_add(1));
}

}  // namespace

std::string read_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    errno = EISDIR;
    fail("read", path, "give the path of a file");
  }
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail("read", path, "check the path and its permissions");
  std::string content;
  char buffer[1 << 16];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    content.append(buffer, got);
  }
  if (std::ferror(file.get()) != 0) fail("read", path, "the device reported an error");
  return content;
}

void write_file(const std::string& path, std::string_view content) {
  const std::string temporary = temporary_name(path);
  {
    File file(std::fopen(temporary.c_str(), "wb"), &std::fclose);
    if (!file) fail("write", path, "check that the folder exists and can be written");
    const bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
    if (!written || std::fflush(file.get()) != 0) {
      const int reason = errno;
      file.reset();
      std::remove(temporary.c_str());
      errno = reason;
      fail("write", path, "check the free space");
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    fail("write", path, "check that the path is a file that may be replaced");
  }
}

}  // namespace kerf
