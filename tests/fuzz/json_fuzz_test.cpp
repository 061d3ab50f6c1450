// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Damaged JSON: refused with an Error of the kind asked for, with a place, or read. A reader that
// walks the result throws nothing else either.
#include <gtest/gtest.h>

#include <cstdio>

#include "kerf/base/json.h"
#include "kerf/base/units.h"
#include "tests/fuzz/mutate.h"

namespace kerf::fuzz {
namespace {

constexpr const char* kText = R"({
  "format": "kerf-plan",
  "version": "1.0",
  "graph": "0123456789abcdef",
  "cluster": {"devices": [{"name": "cpu:0", "memory": 17179869184, "speed": 1.0}, {"name": "cuda:1"}]},
  "stages": [{"nodes": [0, 1, 2], "time_ns": 1.5e6}, {"nodes": [3], "device": -1}],
  "notes": ["a \"note\" \u00e9\n", null, true, false, []]
}
)";

const std::vector<std::string>& words() {
  static const std::vector<std::string> kWords{
      "{",       "}",       "[",           "]",     ":",     ",",  "\"",  "\\", "\\u00",
      "\\ud800", "null",    "true",        "false", "1e999", "-",  ".",   "e",  "\"version\":",
      "\"1.1\"", "\"2.0\"", "\"format\":", "NaN",   "//",    "\n", "\xff"};
  return kWords;
}

// Reads what a loader would read.
void walk(const Json& json) {
  check_format_header(json, "kerf-plan", {1, 0}, "fuzz", ErrorKind::invalid_plan);
  const JsonReader reader(json, "fuzz", ErrorKind::invalid_plan);
  (void)reader.text("graph");
  for (const JsonReader& device : reader.child("cluster").children("devices")) {
    (void)device.text("name");
    if (device.has("memory")) (void)device.integer("memory", 0, std::int64_t{1} << 60);
    if (device.has("speed")) (void)device.number("speed");
  }
  for (const JsonReader& stage : reader.children("stages")) {
    for (const JsonReader& node : stage.children("nodes")) (void)node.as_integer();
    if (stage.has("time_ns")) (void)stage.number("time_ns");
  }
  for (const JsonReader& note : reader.children("notes")) {
    if (note.json().is_boolean()) continue;
    (void)note.as_text();
  }
}

TEST(DamagedJson, IsRefusedWithAKerfErrorOrRead) {
  std::uint64_t parsed = 0;
  const std::uint64_t tried = run([&](std::uint64_t seed) {
    const std::string text = Mutator(seed, words()).mutate(kText);
    try {
      const Json json = parse_json(text, "fuzz", ErrorKind::invalid_plan);
      ++parsed;
      EXPECT_EQ(parse_json(json.dump(), "again", ErrorKind::invalid_plan), json) << seed;
      walk(json);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_plan) << "seed " << seed << ": " << error.what();
      EXPECT_TRUE(std::string_view(error.what()).starts_with("[base.json] fuzz")) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << text;
    }
    return !testing::Test::HasFailure();
  });
  std::printf("  %llu texts, %llu of them JSON\n", static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(parsed));
  EXPECT_GT(parsed, tried / 100);
}

TEST(ADamagedSize, IsRefusedWithAKerfErrorOrRead) {
  run([&](std::uint64_t seed) {
    const std::string text =
        Mutator(seed, {"GiB", "k", "e", "-", ".", " ", "inf", "nan", "9"}).mutate("1.5 GiB");
    try {
      const Bytes bytes = parse_bytes(text);
      EXPECT_GE(bytes.count, 0) << text;
      EXPECT_LE(bytes.count, std::int64_t{1} << 60) << text;
      (void)to_string(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << text;
    }
    return !testing::Test::HasFailure();
  });
}

}  // namespace
}  // namespace kerf::fuzz
