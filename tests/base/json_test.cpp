// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <limits>
#include <type_traits>

#include "kerf/base/file.h"

namespace kerf {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
    return error.what();
  }
  return "accepted";
}

JsonDocument parse(std::string_view text) {
  return parse_json(text, "plan.json", ErrorKind::invalid_plan);
}
Json json_of(std::string_view text) {
  const JsonDocument document = parse(text);
  return JsonReader(document).to_json();
}
std::string parse_refusal(std::string_view text) {
  return refusal([&] { parse(text); });
}

TEST(Json, KeepsTheOrderOfItsKeys) {
  EXPECT_EQ(json_of(R"({"z":1,"a":[true,null,"x"]})").dump(), R"({"z":1,"a":[true,null,"x"]})");
}

TEST(Json, SaysWhereItIsWrong) {
  EXPECT_THAT(parse_refusal("{\n  \"a\": 1,\n  \"b\": oops\n}"), HasSubstr("plan.json:3:8:"));
  EXPECT_THAT(parse_refusal("[1, 2"), HasSubstr("plan.json:1:6:"));
  EXPECT_THAT(parse_refusal(""), HasSubstr("plan.json:1:1:"));
  EXPECT_THAT(parse_refusal("\n\n"), HasSubstr("plan.json:3:1:"));
  EXPECT_THAT(parse_refusal("{} x"), HasSubstr("plan.json:1:4:"));
  EXPECT_THAT(parse_refusal("[\"\xff\"]"), HasSubstr("plan.json:1:3:"));
}

TEST(Json, RefusesNumbersThatAreNone) {
  for (const char* text : {"NaN", "[Infinity]", "[-inf]", "01", "[1.]", "0x10"}) {
    EXPECT_THAT(parse_refusal(text), HasSubstr("[base.json] plan.json:1:")) << text;
  }
}

TEST(Json, RefusesANumberTooLargeForADouble) {
  EXPECT_THAT(parse_refusal("{\"a\":\n 1e999}"), HasSubstr("[base.json] plan.json:2:"));
  EXPECT_THAT(parse_refusal("-1e999"), HasSubstr("[base.json] plan.json:1:"));
}

TEST(Json, IsRefusedWhereverItIsCutShort) {
  const std::string text =
      R"({"format": "kerf-plan", "n": [1, -2.5e3, {"x": "a\n\u00e9"}], "t": true})";
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_NE(parse_refusal(text.substr(0, i)), "accepted") << text.substr(0, i);
  }
}

TEST(Json, RefusesToNestDeeperThanAStackBears) {
  const std::string open(100000, '[');
  EXPECT_THAT(parse_refusal(open), HasSubstr("plan.json:1:201: nested deeper than 200 levels"));
  EXPECT_THAT(parse_refusal(open + std::string(100000, ']')), HasSubstr("nested deeper"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(parse_refusal(objects), HasSubstr("nested deeper"));
  EXPECT_EQ(parse_refusal(std::string(200, '[') + std::string(200, ']')), "accepted");
  EXPECT_EQ(parse_refusal("[\"" + open + "\\\"" + open + "\"]"), "accepted")
      << "text is not nesting";
}

// ---- the header of a file -----------------------------------------------------------------------

std::string header_refusal(const std::string& version, const std::string& format = "kerf-plan") {
  const std::string text = Json{{"format", format}, {"version", version}}.dump();
  const JsonDocument document = parse(text);
  return refusal([&] { check_format_header(document, "kerf-plan", {2, 3}); });
}

TEST(AFormatHeader, IsWrittenFirst) {
  EXPECT_EQ(format_header("kerf-plan", {1, 0}).dump(), R"({"format":"kerf-plan","version":"1.0"})");
}

TEST(AFormatHeader, OfThisOrAnOlderMinorVersionLoads) {
  EXPECT_EQ(header_refusal("2.3"), "accepted");
  EXPECT_EQ(header_refusal("2.2"), "accepted");
  EXPECT_EQ(header_refusal("2.0"), "accepted");
}

TEST(AFormatHeader, OfANewerVersionIsRefusedByName) {
  for (const char* version : {"2.4", "2.10", "3.0"}) {
    const std::string message = header_refusal(version);
    EXPECT_THAT(message, HasSubstr(std::string("kerf-plan version ") + version));
    EXPECT_THAT(message, HasSubstr("this Kerf reads 2.0 to 2.3"));
    EXPECT_THAT(message, HasSubstr("install a newer Kerf"));
  }
}

TEST(AFormatHeader, OfAnOlderMajorVersionAsksToWriteTheFileAgain) {
  EXPECT_THAT(header_refusal("1.9"), HasSubstr("write the file again with this Kerf"));
}

TEST(AFormatHeader, WithoutAProperVersionIsRefused) {
  for (const char* version : {"", "2", "2.", ".3", "2.x", "2x.0", "2.1x", "2.1.7", "2.-1", " 2.1",
                              "-2.0", "99999999999.0", "2.99999999999"}) {
    EXPECT_THAT(header_refusal(version), HasSubstr("[base.json] plan.json has kerf-plan version"))
        << version;
  }
  EXPECT_THAT(header_refusal("2.1x"), HasSubstr("write the file again"));
}

TEST(AFormatHeader, OfAnotherFormatIsRefusedByName) {
  EXPECT_THAT(header_refusal("2.3", "kerf-profile"),
              HasSubstr("holds a 'kerf-profile'; expected a 'kerf-plan'"));
  for (const char* text :
       {"[]", "3", "null", "{}", "{\"format\": 3}", "{\"format\": \"kerf-plan\"}",
        "{\"format\": \"kerf-plan\", \"version\": 2.3}"}) {
    const JsonDocument document = parse(text);
    EXPECT_NE(refusal([&] { check_format_header(document, "kerf-plan", {2, 3}); }), "accepted")
        << text;
  }
}

// ---- fields
// ---------------------------------------------------------------------------------------

class AReader : public testing::Test {
 protected:
  JsonDocument json_ = parse(R"({"cluster": {"devices": [{"name": "cpu:0", "n": 3}, {"name": 7}]},
                         "x": 2.5, "big": 18446744073709551615, "low": -9223372036854775808,
                         "t": true, "whole": 5.0})");
  JsonReader reader_{json_};
};

TEST_F(AReader, GivesTypedFields) {
  EXPECT_EQ(reader_.number("x"), 2.5);
  EXPECT_EQ(reader_.number("low"), -9223372036854775808.0);
  EXPECT_EQ(reader_.integer("low"), std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(reader_.boolean("t"));
  EXPECT_TRUE(reader_.has("x"));
  EXPECT_FALSE(reader_.has("y"));
  const auto devices = reader_.child("cluster").children("devices");
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].text("name"), "cpu:0");
  EXPECT_EQ(devices[0].integer("n", 0, 3), 3);
}

TEST(AKey, ThatStandsTwiceInAnObjectIsRefusedWithItsPlace) {
  EXPECT_THAT(parse_refusal("{\"a\": 1,\n \"b\": {\"a\": 2, \"c\": [], \"a\": 3}}"),
              HasSubstr("plan.json:2:25: the key \"a\" a second time"));
  std::string many = "{";
  for (int i = 0; i < 40; ++i) many += fmt::format("\"k{}\": {{}}, ", i);
  EXPECT_THAT(parse_refusal(many + "\"k7\": 1}"), HasSubstr("the key \"k7\" a second time"));
  EXPECT_EQ(parse_refusal(many + "\"k\": 1}"), "accepted");
}

TEST_F(AReader, SaysWhereItStands) {
  const auto devices = reader_.child("cluster").children("devices");
  EXPECT_THAT(refusal([&] { devices[1].text("name"); }),
              HasSubstr("plan.json: cluster: devices[1]: name: found a number; expected a string"));
  EXPECT_THAT(refusal([&] { devices[1].text("kind"); }),
              HasSubstr("devices[1]: found no field 'kind'"));
  EXPECT_THAT(refusal([&] { devices[0].integer("n", 0, 2); }),
              HasSubstr("found 3; expected a number from 0 to 2"));
  EXPECT_THAT(refusal([&] { reader_.children("x"); }), HasSubstr("expected an array"));
  EXPECT_THAT(refusal([&] { reader_.child("x").child("y"); }), HasSubstr("expected an object"));
}

TEST_F(AReader, RefusesWhatIsNoWholeNumber) {
  EXPECT_THAT(refusal([&] { reader_.integer("big"); }), HasSubstr("past 2^63"));
  EXPECT_THAT(refusal([&] { reader_.integer("x"); }), HasSubstr("a whole number"));
  EXPECT_THAT(refusal([&] { reader_.integer("whole"); }), HasSubstr("a whole number"));
  EXPECT_THAT(refusal([&] { reader_.integer("t"); }), HasSubstr("a whole number"));
  EXPECT_THAT(refusal([&] { reader_.number("t"); }), HasSubstr("a number"));
  EXPECT_THAT(refusal([&] { reader_.boolean("x"); }), HasSubstr("true or false"));
}

TEST_F(AReader, GivesTheFieldsOfAnObject) {
  const auto fields = reader_.fields();
  ASSERT_EQ(fields.size(), 6U);
  EXPECT_EQ(fields[1].first, "x");
  EXPECT_EQ(fields[1].second.as_number(), 2.5);
  EXPECT_THAT(refusal([&] { reader_.child("x").fields(); }), HasSubstr("expected an object"));
}

TEST_F(AReader, GivesUnsignedNumbers) {
  EXPECT_EQ(reader_.child("big").as_unsigned(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_THAT(refusal([&] { reader_.child("low").as_unsigned(); }),
              HasSubstr("plan.json: low: found -9223372036854775808; expected a whole number"));
  EXPECT_THAT(refusal([&] { reader_.child("x").as_unsigned(); }), HasSubstr("a whole number"));
}

TEST(AFieldWrittenTwice, CountsAsItWasWrittenLast) {
  const JsonDocument document = parse(R"({"a": 1, "b": [2], "\u0061": 3})");
  const JsonReader reader(document);
  EXPECT_EQ(reader.integer("a"), 3);
  const auto fields = reader.fields();
  ASSERT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[0].first, "a");
  EXPECT_EQ(fields[0].second.as_integer(), 3);
}

TEST(AKey, IsFoundWhateverItIsWrittenLike) {
  const JsonDocument document = parse(R"({"a\\b": 1, "q\"": 2, "ab": 3, "\u00e9": 4, "": 5})");
  const JsonReader reader(document);
  EXPECT_EQ(reader.integer("a\\b"), 1);
  EXPECT_EQ(reader.integer("q\""), 2);
  EXPECT_EQ(reader.integer("ab"), 3);
  EXPECT_EQ(reader.integer("\xc3\xa9"), 4);
  EXPECT_EQ(reader.integer(""), 5);
  for (const char* absent : {"a", "b", "abc", "a\\", "a\\\\b", "q", "q\\\"", "\\u00e9"}) {
    EXPECT_FALSE(reader.has(absent)) << absent;
  }
}

TEST(ANumberTooSmallForADouble, IsZero) {
  for (const char* text :
       {"1e-999", "-1e-400", "0e999", "0.000e99999999999999999999", "1e-99999999999999999999"}) {
    const JsonDocument document = parse(text);
    EXPECT_EQ(JsonReader(document).as_number(), 0) << text;
  }
  for (const char* text : {"1e99999999999999999999", "193.5e306"}) {
    EXPECT_THAT(parse_refusal(text), HasSubstr("too large")) << text;
  }
  const std::string large(400, '1');
  EXPECT_THAT(parse_refusal(large), HasSubstr("too large"));
  EXPECT_THAT(parse_refusal(large + "e-10"), HasSubstr("too large"));
  const std::string small = "0." + std::string(400, '0') + "1";
  const JsonDocument document = parse(small);
  EXPECT_EQ(JsonReader(document).as_number(), 0);
}

TEST(ADocument, KeepsTheTextItLoads) {
  const std::string path = testing::TempDir() + "/json_document_test.json";
  write_file(path, R"({"a": "b"})");
  const JsonDocument loaded = load_json(path, ErrorKind::invalid_plan);
  const JsonDocument moved = load_json(path, ErrorKind::invalid_plan);
  EXPECT_EQ(JsonReader(loaded).text("a"), "b");
  EXPECT_EQ(JsonReader(moved).child("a").path(), path + ": a");
}

// They refer to what they read: one that dies at the semicolon must not compile.
static_assert(!std::is_constructible_v<JsonReader, JsonDocument>);
static_assert(std::is_constructible_v<JsonReader, const JsonDocument&>);
template <class Text>
concept Parses =
    requires(Text&& text) { parse_json(std::forward<Text>(text), "a", ErrorKind::io); };
static_assert(!Parses<std::string>);
static_assert(Parses<const std::string&> && Parses<const char*> && Parses<std::string_view>);

}  // namespace
}  // namespace kerf
