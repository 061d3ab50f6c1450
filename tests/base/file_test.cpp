// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "kerf/base/error.h"

namespace kerf {
namespace {

namespace fs = std::filesystem;

class AFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "kerf_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io);
      return error.what();
    }
    return "accepted";
  }

  fs::path folder_;
};

TEST_F(AFile, ComesBackByteForByte) {
  std::string content;
  for (int i = 0; i < 300000; ++i) content += static_cast<char>(1 + i * 7 % 255);
  write_file(path("a"), content);
  EXPECT_EQ(read_file(path("a")), content);
  write_file(path("a"), "");
  EXPECT_EQ(read_file(path("a")), "");
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(AFile, ThatIsMissingIsNamed) {
  const std::string message = refusal([&] { read_file(path("absent")); });
  EXPECT_THAT(message, testing::HasSubstr(path("absent")));
  EXPECT_THAT(message, testing::HasSubstr("No such file"));
}

TEST_F(AFile, IsNotAFolder) {
  EXPECT_THAT(refusal([&] { read_file(folder_.string()); }), testing::HasSubstr("directory"));
  fs::create_directory(path("sub"));
  EXPECT_THAT(refusal([&] { write_file(path("sub"), "x"); }), testing::HasSubstr("directory"));
  EXPECT_THAT(names(), testing::ElementsAre("sub")) << "no temporary file is left behind";
}

TEST_F(AFile, IsLeftAloneWhenWritingFails) {
  EXPECT_THAT(refusal([&] { write_file(path("none/a"), "x"); }),
              testing::HasSubstr("check that the folder exists"));
  EXPECT_THAT(refusal([&] { write_file("", "x"); }), testing::HasSubstr("cannot write ''"));
  EXPECT_THAT(names(), testing::IsEmpty());
}

TEST_F(AFile, SaysBeforeTheWorkThatItCannotBeWritten) {
  EXPECT_THAT(refusal([&] { check_writable(path("none/a"), true); }),
              testing::HasSubstr("check that the folder exists"));
  EXPECT_THAT(refusal([&] { check_writable("", true); }), testing::HasSubstr("cannot write ''"));
  fs::create_directory(path("sub"));
  EXPECT_THAT(refusal([&] { check_writable(path("sub"), true); }), testing::HasSubstr("directory"));
  write_file(path("a"), "old");
  EXPECT_THAT(refusal([&] { check_writable(path("a"), false); }), testing::HasSubstr("is there"));
  check_writable(path("a"), true);
  check_writable(path("new"), false);
  check_writable("/dev/null", false);
  EXPECT_THAT(names(), testing::UnorderedElementsAre("sub", "a"));
}

TEST_F(AFile, IsLeftAloneWhenTheDeviceIsFull) {
  // A limit on the size of files stands in for a full device: the write fails half-way.
  write_file(path("a"), "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file(path("a"), std::string(100000, 'x'));
    } catch (const Error&) {
      ::_exit(7);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7) << "the failure is reported";
  EXPECT_EQ(read_file(path("a")), "old");
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(AFile, MayHaveTheLongestNameTheSystemAllows) {
  const std::string name(255, 'n');
  write_file(path(name), "x");
  EXPECT_EQ(read_file(path(name)), "x");
}

TEST_F(AFile, BehindALinkIsReplacedAndTheLinkStays) {
  write_file(path("target"), "old");
  fs::create_symlink("target", path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("target")), "new");
}

TEST_F(AFile, ThatIsADeviceIsWrittenToAndNotReplaced) {
  // `kerf plan -o /dev/stdout`, or /dev/null as root: a rename would destroy the device.
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read_file(path("pipe")); });
  write_file(path("pipe"), "through");
  if (!fs::is_fifo(path("pipe"))) {  // or the reader waits for ever
    std::ofstream(path("pipe")) << "";
    ADD_FAILURE() << "the pipe was replaced by a file";
    reader.detach();
    return;
  }
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_THAT(names(), testing::ElementsAre("pipe"));
}

TEST_F(AFile, IsNeverSeenHalfWritten) {
  const std::string a(200000, 'a');
  const std::string b(200000, 'b');
  write_file(path("f"), a);
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (const std::string* content : {&a, &b}) {
    writers.emplace_back([&, content] {
      while (!stop) write_file(path("f"), *content);
    });
  }
  for (int i = 0; i < 200; ++i) {
    const std::string got = read_file(path("f"));
    EXPECT_TRUE(got == a || got == b);
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(names(), testing::ElementsAre("f"));
}

}  // namespace
}  // namespace kerf
