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

// Files are read whole. A device or a pipe may have no end.
constexpr std::size_t kMostOfFile = (std::size_t{1} << 31) - 1;
constexpr std::size_t kMostOfStream = std::size_t{1} << 28;

[[noreturn]] void refuse_content(const std::string& path, std::string_view found) {
  throw Error(ErrorKind::io,
              fmt::format("[base.file] '{}' holds {}; expected a text file that Kerf or another "
                          "tool wrote; give another file",
                          path, found));
}

// Unique among the threads of this process and among processes, in the same folder. Not made from
// the file's name, which may be as long as names can be.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  return fmt::format("{}.kerf.tmp.{}.{}", folder, ::getpid(), counter.fetch_add(1));
}

// The file a path leads to, links followed. Renaming over a link would leave its target as it was.
std::string resolve(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_symlink(path, failed)) return path;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, failed);
  return failed ? path : target.string();
}

bool is_device_or_pipe(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::is_other(status);
}

void write_content(const std::string& path, std::string_view content, const std::string& shown) {
  File file(std::fopen(path.c_str(), "wb"), &std::fclose);
  if (!file) fail("write", shown, "check that the folder exists and can be written");
  const bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  if (!written || std::fflush(file.get()) != 0) fail("write", shown, "check the free space");
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
  const std::size_t most = is_device_or_pipe(path) ? kMostOfStream : kMostOfFile;
  std::string content;
  char buffer[1 << 16];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    if (std::memchr(buffer, 0, got) != nullptr) {
      refuse_content(path, "a zero byte, which no text has");
    }
    if (content.size() + got > most) {
      refuse_content(path, fmt::format("more than {} MiB", most >> 20));
    }
    content.append(buffer, got);
  }
  if (std::ferror(file.get()) != 0) fail("read", path, "the device reported an error");
  return content;
}

void write_file(const std::string& path, std::string_view content) {
  // A rename over /dev/null or a pipe would put a file in its place.
  if (is_device_or_pipe(path)) return write_content(path, content, path);
  const std::string target = resolve(path);
  const std::string temporary = temporary_name(target);
  try {
    write_content(temporary, content, path);
    if (std::rename(temporary.c_str(), target.c_str()) != 0) {
      fail("write", path, "check that the path is a file that may be replaced");
    }
  } catch (const Error&) {
    std::remove(temporary.c_str());
    throw;
  }
}

void check_writable(const std::string& path, bool overwrite) {
  if (is_device_or_pipe(path)) return;
  std::error_code ignored;
  if (!overwrite && std::filesystem::exists(path, ignored)) {
    throw Error(ErrorKind::io,
                fmt::format("[base.file] '{}' is there already; expected a new file; give another "
                            "name, or say that it may be overwritten",
                            path));
  }
  const std::string target = resolve(path);
  const std::size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  if (target.empty() || ::access(folder.c_str(), W_OK | X_OK) != 0) {
    errno = target.empty() ? ENOENT : errno;
    fail("write", path, "check that the folder exists and can be written");
  }
  if (std::filesystem::is_directory(target, ignored)) {
    errno = EISDIR;
    fail("write", path, "check that the path is a file that may be replaced");
  }
}

}  // namespace kerf
