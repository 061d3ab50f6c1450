// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Damaged JSON: refused with an Error of the kind asked for, with a place, or read. A reader that
// walks the result throws nothing else either.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kerf/base/json.h"
#include "kerf/base/rng.h"
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

const std::vector<std::string>& json_words() {
  static const std::vector<std::string> kWords{
      "{",       "}",       "[",           "]",     ":",     ",",  "\"",  "\\", "\\u00",
      "\\ud800", "null",    "true",        "false", "1e999", "-",  ".",   "e",  "\"version\":",
      "\"1.1\"", "\"2.0\"", "\"format\":", "NaN",   "//",    "\n", "\xff"};
  return kWords;
}

// Reads what a loader would read.
void walk(const JsonDocument& document) {
  check_format_header(document, "kerf-plan", {1, 0});
  const JsonReader reader(document);
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
    if (note.type() == JsonType::boolean) continue;
    (void)note.as_text();
  }
}

TEST(DamagedJson, IsRefusedWithAKerfErrorOrRead) {
  std::uint64_t parsed = 0;
  const std::uint64_t tried = run([&](std::uint64_t seed) {
    const std::string text = Mutator(seed, json_words()).mutate(kText);
    try {
      const JsonDocument document = parse_json(text, "fuzz", ErrorKind::invalid_plan);
      ++parsed;
      walk(document);
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

// Another reader of JSON, whose word we take. It reads a zero byte as the end of the text. Of a key
// that comes twice it takes the last; Kerf refuses such a text, so we do as well.
std::optional<Json> read_by_another(const std::string& text) {
  std::vector<std::set<std::string>> keys_of_open_objects;
  bool repeats_a_key = false;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_of_open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_of_open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      repeats_a_key |= !keys_of_open_objects.back().insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  try {
    Json read = Json::parse(text, watch);
    if (repeats_a_key) return std::nullopt;
    return read;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::optional<Json> read_by_kerf(const std::string& text) {
  try {
    const JsonDocument document = parse_json(text, "fuzz", ErrorKind::invalid_plan);
    return JsonReader(document).to_json();
  } catch (const Error&) {
    return std::nullopt;
  }
}

void expect_same_reading(const std::string& text, std::uint64_t seed) {
  if (text.find('\0') != std::string::npos) return;
  const std::optional<Json> expected = read_by_another(text);
  const std::optional<Json> found = read_by_kerf(text);
  ASSERT_EQ(found.has_value(), expected.has_value()) << "seed " << seed << ": " << text;
  if (expected) {
    EXPECT_EQ(*found, *expected) << "seed " << seed << ": " << text;
  }
}

// The 93354th damage of the text was the first to repeat a key.
TEST(DamagedJson, IsRefusedWhereAKeyComesTwice) {
  expect_same_reading(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}]})", 0);
  const std::string twice = R"({"a": 1, "b": {"a": 2}, "a": 3})";
  EXPECT_FALSE(read_by_kerf(twice));
  expect_same_reading(twice, 0);
  expect_same_reading(Mutator(93354, json_words()).mutate(kText), 93354);
}

TEST(DamagedJson, IsTakenAndRefusedAsByAnotherReader) {
  run([&](std::uint64_t seed) {
    expect_same_reading(Mutator(seed, json_words()).mutate(kText), seed);
    expect_same_reading(
        Mutator(seed, json_words()).mutate(R"(["\ud83d\ude00 \u0000", -0.5e-3, 1E+2])"), seed);
    return !testing::Test::HasFailure();
  });
}

std::string random_string(Rng& rng) {
  static const std::vector<std::string> kPieces{
      "a",  "zz", " ",    "\"",       "\\",           "/",
      "\n", "\t", "\x01", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  std::string out;
  for (auto left = rng.below(6); left > 0; --left) out += kPieces[rng.below(kPieces.size())];
  return out;
}

Json random_json(Rng& rng, int depth) {
  switch (rng.below(depth > 0 ? 9 : 7)) {
    case 0: return nullptr;
    case 1: return rng.below(2) == 0;
    case 2: return rng.below(1000);
    case 3: return -static_cast<std::int64_t>(rng.below(std::uint64_t{1} << 62));
    case 4: return static_cast<double>(rng.below(1000000)) / 977.0;
    case 5: return 1e-300 * static_cast<double>(rng.below(1000000));
    case 6: return random_string(rng);
    case 7: {
      Json out = Json::array();
      for (auto left = rng.below(5); left > 0; --left) out.push_back(random_json(rng, depth - 1));
      return out;
    }
    default: {
      Json out = Json::object();
      for (auto left = rng.below(5); left > 0; --left) {
        out[random_string(rng)] = random_json(rng, depth - 1);
      }
      return out;
    }
  }
}

TEST(RandomJson, IsReadAsItWasWritten) {
  run([&](std::uint64_t seed) {
    Rng rng(seed);
    const Json json = random_json(rng, 5);
    for (const std::string& text : {json.dump(), json.dump(2), json.dump(-1, ' ', true)}) {
      EXPECT_EQ(read_by_kerf(text), json) << "seed " << seed << ": " << text;
    }
    return !testing::Test::HasFailure();
  });
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
