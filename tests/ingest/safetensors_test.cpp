// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/ingest/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "kerf/base/error.h"
#include "kerf/base/json.h"
#include "kerf/base/rng.h"

namespace kerf {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

std::string length_bytes(std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i));
  return out;
}
// The bytes of a file, `data` bytes of data behind the header.
std::string file_bytes(const std::string& header, std::size_t data) {
  return length_bytes(header.size()) + header + std::string(data, '\x01');
}
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}
// One tensor of 16 bytes.
std::string one_tensor(const std::string& name) {
  return file_bytes("{" + entry(name, "F32", "[2,2]", "[0,16]") + "}", 16);
}

std::vector<std::string> names_of(const SafetensorsFile& file) {
  std::vector<std::string> out;
  for (const StoredTensor& tensor : file.tensors) out.push_back(tensor.name);
  return out;
}

// A folder for each test.
class ACheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "kerf_safetensors_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "") const { return (folder_ / name).string(); }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  static std::string refusal_of(const std::function<void()>& call, ErrorKind kind) {
    try {
      call();
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), kind) << message;
      EXPECT_GE(std::count(message.begin(), message.end(), ';'), 2) << message;
      return message;
    }
    return "it was taken";
  }
  std::string refusal(const std::string& where,
                      ErrorKind kind = ErrorKind::invalid_argument) const {
    return refusal_of([&] { read_checkpoint(where); }, kind);
  }
  // Of a file with these bytes.
  std::string refusal_of_bytes(std::string_view content) const {
    return refusal(write("bad.safetensors", content));
  }
  std::string refusal_of_header(const std::string& header, std::size_t data = 16) const {
    return refusal_of_bytes(file_bytes(header, data));
  }
  std::string refusal_of_index(const std::string& weight_map,
                               ErrorKind kind = ErrorKind::invalid_argument) const {
    return refusal(write("model.safetensors.index.json", R"({"weight_map":)" + weight_map + "}"),
                   kind);
  }

  fs::path folder_;
};

using ASafetensorsFile = ACheckpoint;

TEST_F(ASafetensorsFile, OfTheFormatsOwnLibraryIsRead) {
  // safetensors.torch.save of a scalar, an empty tensor and three bytes, safetensors 0.8.0.
  const std::string header = R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
                             R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("z":{"dtype":"I8","shape":[3],"data_offsets":[4,7]}})";
  const SafetensorsFile file = read_safetensors(write("a", file_bytes(header, 7)));
  const auto start = static_cast<std::int64_t>(8 + header.size());
  EXPECT_EQ(file.path, path("a"));
  EXPECT_EQ(file.size, Bytes{start + 7});
  EXPECT_THAT(file.metadata, IsEmpty());
  EXPECT_THAT(file.tensors, ElementsAre(StoredTensor{"e", DType::f32, {0, 3}, start, Bytes{0}},
                                        StoredTensor{"s", DType::f32, {}, start, Bytes{4}},
                                        StoredTensor{"z", DType::i8, {3}, start + 4, Bytes{3}}));
}

TEST_F(ASafetensorsFile, MayBeEmptyAndHaveSpacesBehindItsHeader) {
  EXPECT_THAT(read_safetensors(write("a", file_bytes("{}      ", 0))).tensors, IsEmpty());
}

TEST_F(ASafetensorsFile, HasMetadata) {
  const SafetensorsFile file = read_safetensors(
      write("a", file_bytes(R"({"__metadata__":{"format":"pt","by":"\u00e9"}})", 0)));
  EXPECT_THAT(file.metadata, ElementsAre(Pair("by", "\xc3\xa9"), Pair("format", "pt")));
  EXPECT_THAT(refusal_of_header(R"({"__metadata__":null})", 0), HasSubstr("taken"));
  EXPECT_THAT(refusal_of_header(R"({"__metadata__":{"layers":12}})", 0), HasSubstr("layers"));
  EXPECT_THAT(refusal_of_header(R"({"__metadata__":[]})", 0), HasSubstr("expected an object"));
}

TEST_F(ASafetensorsFile, IsReadWithoutItsData) {
  // A hole of 2^40 bytes, which no disk here holds.
  const std::string header = "{" + entry("w", "U8", "[1048576,1048576]", "[0,1099511627776]") + "}";
  write("a", file_bytes(header, 0));
  std::error_code failed;
  fs::resize_file(path("a"), 8 + header.size() + (std::uint64_t{1} << 40), failed);
  if (failed) GTEST_SKIP() << "no sparse files here: " << failed.message();
  EXPECT_EQ(read_safetensors(path("a")).tensors.at(0).bytes, Bytes{std::int64_t{1} << 40});
}

struct Spelling {
  const char* name;
  DType dtype;
};
constexpr Spelling kSpellings[] = {
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
};

TEST_F(ASafetensorsFile, OfRandomTensorsComesBack) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<StoredTensor> expected;
    std::vector<std::string> entries;
    std::string data;
    const std::uint64_t count = rng.below(12);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Spelling spelling = kSpellings[rng.below(std::size(kSpellings))];
      StoredTensor tensor{"layers." + std::to_string(i) + " \"\n", spelling.dtype, {}, 0, Bytes{0}};
      std::int64_t bytes = element_size(spelling.dtype);
      std::string shape;
      for (std::uint64_t rank = rng.below(5); rank > 0; --rank) {
        tensor.shape.push_back(static_cast<std::int64_t>(rng.below(5)));
        shape += (shape.empty() ? "" : ", ") + std::to_string(tensor.shape.back());
        bytes *= tensor.shape.back();
      }
      tensor.offset = static_cast<std::int64_t>(data.size());
      tensor.bytes = Bytes{bytes};
      for (std::int64_t b = 0; b < bytes; ++b) data += static_cast<char>(rng.next());
      std::string name;
      append_json(name, std::string_view(tensor.name));
      entries.insert(
          entries.begin() + static_cast<std::ptrdiff_t>(rng.below(i + 1)),
          entry(name.substr(1, name.size() - 2), spelling.name, "[" + shape + "]",
                "[" + std::to_string(tensor.offset) + ", " + std::to_string(data.size()) + "]"));
      expected.push_back(std::move(tensor));
    }
    std::string header = "{";
    for (const std::string& text : entries) header += (header.size() > 1 ? "," : "") + text;
    header += "}";
    const std::string content = file_bytes(header, 0) + data;
    const SafetensorsFile file = read_safetensors(write("a", content));
    for (StoredTensor& tensor : expected) {
      const std::string stored = data.substr(static_cast<std::size_t>(tensor.offset),
                                             static_cast<std::size_t>(tensor.bytes.count));
      tensor.offset += static_cast<std::int64_t>(8 + header.size());
      EXPECT_EQ(content.substr(static_cast<std::size_t>(tensor.offset), stored.size()), stored);
    }
    // Empty tensors share their offset with others, and come in an order of their own.
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::vector<StoredTensor> found = file.tensors;
    EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                               [](const auto& a, const auto& b) { return a.offset < b.offset; }));
    std::sort(found.begin(), found.end(), by_name);
    std::sort(expected.begin(), expected.end(), by_name);
    ASSERT_EQ(found, expected) << header;
  }
}

TEST_F(ASafetensorsFile, ThatIsDamagedIsRefusedOrWhole) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)" + entry("a.weight", "BF16", "[3, 2]", "[0, 12]") + "," +
      entry("b", "I64", "[]", "[12, 20]") + "," + entry("c", "F8_E4M3", "[0,7]", "[20,20]") + "}  ";
  const std::string whole = file_bytes(header, 20);
  int tried = 0;
  int taken = 0;
  const auto attempt = [&](const std::string& content) {
    ++tried;
    const std::string where = write("damaged", content);
    try {
      const SafetensorsFile file = read_safetensors(where);
      ++taken;
      std::int64_t end = static_cast<std::int64_t>(content.size());
      EXPECT_EQ(file.size.count, end);
      for (auto tensor = file.tensors.rbegin(); tensor != file.tensors.rend(); ++tensor) {
        EXPECT_EQ(tensor->offset + tensor->bytes.count, end);
        end = tensor->offset;
      }
      EXPECT_GE(end, 8 + 2);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    }
  };
  Rng rng(3);
  for (std::size_t at = 0; at < 8 + header.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string content = whole;
      content[at] = static_cast<char>(content[at] ^ (1 << bit));
      attempt(content);
    }
    for (const char replacement :
         {'\0', '\xff', '"', '}', '0', '-', static_cast<char>(rng.next())}) {
      std::string content = whole;
      content[at] = replacement;
      attempt(content);
      attempt(std::string(whole).insert(at, 1, replacement));
    }
    attempt(std::string(whole).erase(at, 1 + rng.below(9)));
  }
  EXPECT_GT(tried, 4000);
  EXPECT_GT(taken, 20) << "names and metadata may change";
  EXPECT_LT(taken, tried / 2);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    ASSERT_THAT(refusal_of_bytes(whole.substr(0, length)), StartsWith("[")) << length;
  }
  ASSERT_THAT(refusal_of_bytes(whole + "x"), HasSubstr("1 bytes behind the last tensor"));
}

TEST_F(ASafetensorsFile, ThatIsTooShortIsRefused) {
  EXPECT_THAT(refusal_of_bytes(""), HasSubstr("a file of 0 bytes"));
  EXPECT_THAT(refusal_of_bytes("1234567"), HasSubstr("a file of 7 bytes"));
  EXPECT_THAT(refusal_of_bytes(length_bytes(2)), HasSubstr("a header of 2 bytes in a file of 8"));
  EXPECT_THAT(refusal_of_bytes(length_bytes(0)), HasSubstr("a header of 0 bytes"));
  EXPECT_THAT(refusal_of_bytes(length_bytes(3) + "{}"), HasSubstr("download it again"));
}

TEST_F(ASafetensorsFile, WithAnAbsurdHeaderIsRefused) {
  EXPECT_THAT(refusal_of_bytes(length_bytes(100'000'001) + "{}"), HasSubstr("100000000 at most"));
  EXPECT_THAT(refusal_of_bytes(length_bytes(~std::uint64_t{0}) + "{}"),
              HasSubstr("a header of 18446744073709551615 bytes"));
}

TEST_F(ASafetensorsFile, WhoseHeaderIsNotJsonIsRefusedWithThePlace) {
  EXPECT_THAT(refusal_of_header("  {}"), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal_of_header("[1,2]"), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal_of_header(R"({"a":)"), HasSubstr("bad.safetensors"));
  EXPECT_THAT(refusal_of_header("{\"\xff\":1}"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_of_header("{" + std::string(100000, '[')), HasSubstr("expected a key"));
  EXPECT_THAT(refusal_of_header(R"({"a":)" + std::string(100000, '[')), HasSubstr("nested"));
}

TEST_F(ASafetensorsFile, WhoseHeaderIsOfAnotherShapeIsRefusedWithTheField) {
  EXPECT_THAT(refusal_of_header(R"({"w":3})"), HasSubstr("w: found a number"));
  EXPECT_THAT(refusal_of_header(R"({"w":{"shape":[],"data_offsets":[0,16]}})"),
              HasSubstr("no field 'dtype'"));
  EXPECT_THAT(refusal_of_header("{" + entry("w", "F32", "4", "[0,16]") + "}"),
              HasSubstr("w: shape: found a number; expected an array"));
  EXPECT_THAT(refusal_of_header("{" + entry("w", "F32", "[4.0]", "[0,16]") + "}"),
              HasSubstr("w: shape[0]"));
  EXPECT_THAT(refusal_of_header("{" + entry("w", "F32", "[4]", "[0,8,16]") + "}"),
              HasSubstr("found 3 numbers; expected two"));
}

TEST_F(ASafetensorsFile, WithADtypeThatKerfDoesNotHaveIsRefusedByName) {
  EXPECT_THAT(refusal_of_header("{" + entry("w", "F4", "[32]", "[0,16]") + "}"),
              AllOf(HasSubstr("tensor 'w' of dtype 'F4'"), HasSubstr("F8_E8M0, I64, I32")));
  EXPECT_THAT(refusal_of_header("{" + entry("w", "float32", "[4]", "[0,16]") + "}"),
              HasSubstr("dtype 'float32'"));
}

TEST_F(ASafetensorsFile, WithOffsetsThatAreNoneIsRefused) {
  const auto with_offsets = [&](const std::string& offsets) {
    return refusal_of_header("{" + entry("w", "F32", "[4]", offsets) + "}");
  };
  EXPECT_THAT(with_offsets("[-4,12]"), HasSubstr("found -4; expected 0 or more"));
  EXPECT_THAT(with_offsets("[16,0]"), HasSubstr("found 0; expected 16 or more"));
  EXPECT_THAT(with_offsets("[0,18446744073709551616]"), HasSubstr("past 2^63"));
  EXPECT_THAT(with_offsets("[9223372036854775807,-9223372036854775808]"), HasSubstr("0 or more"));
  EXPECT_THAT(with_offsets("[9223372036854775791,9223372036854775807]"), HasSubstr("no tensor in"));
  EXPECT_THAT(with_offsets("[1e0,17]"), HasSubstr("a whole number"));
}

TEST_F(ASafetensorsFile, WhoseBytesDoNotMatchShapeAndDtypeIsRefused) {
  EXPECT_THAT(refusal_of_header("{" + entry("w", "F32", "[2, 3]", "[0,16]") + "}"),
              HasSubstr("tensor 'w' of 16 bytes, F32[2, 3]; expected 24 bytes"));
  EXPECT_THAT(refusal_of_header("{" + entry("w", "F32", "[-2, -2]", "[0,16]") + "}"),
              HasSubstr("found -2"));
  // 2^64 elements, and 2^62 of four bytes: 0 bytes where products wrap.
  for (const char* const shape : {"[4294967296,4294967296]", "[4611686018427387904]"}) {
    EXPECT_THAT(refusal_of_header("{" + entry("w", "F32", shape, "[0,0]") + "}", 0),
                HasSubstr("expected fewer than 2^63"));
  }
}

TEST_F(ASafetensorsFile, WithOverlapsGapsOrMissingDataIsRefused) {
  const auto with_second = [&](const std::string& offsets, std::size_t data) {
    return refusal_of_header(
        "{" + entry("b", "U8", "[8]", offsets) + "," + entry("a", "U8", "[8]", "[0,8]") + "}",
        data);
  };
  EXPECT_THAT(with_second("[7,15]", 15), HasSubstr("tensor 'b' at byte 7 of the data"));
  EXPECT_THAT(with_second("[0,8]", 8), HasSubstr("where another one ends at 8"));
  EXPECT_THAT(with_second("[9,17]", 17), HasSubstr("no tensor in bytes 8 to 9"));
  EXPECT_THAT(with_second("[8,16]", 15), HasSubstr("15 bytes of data, and tensor 'b' at 8 to 16"));
  EXPECT_THAT(with_second("[8,16]", 18), HasSubstr("2 bytes behind the last tensor"));
  EXPECT_THAT(with_second("[8,16]", 16), HasSubstr("taken"));
}

TEST_F(ASafetensorsFile, WithANameTwiceIsRefused) {
  const std::string first = "{" + entry("ab", "U8", "[8]", "[0,8]") + ",";
  EXPECT_THAT(refusal_of_header(first + entry("ab", "U8", "[8]", "[8,16]") + "}"),
              HasSubstr("\"ab\" a second time"));
  EXPECT_THAT(refusal_of_header(first + entry("a\\u0062", "U8", "[8]", "[0,8]") + "}", 8),
              HasSubstr("a name twice, once with escapes"));
}

TEST_F(ASafetensorsFile, ThatIsAnotherFormatIsNamed) {
  const std::string rest(100, '\x07');
  EXPECT_THAT(refusal_of_bytes("PK\x03\x04" + rest),
              HasSubstr("convert it: safetensors.torch.save_file"));
  EXPECT_THAT(refusal_of_bytes("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19." + rest),
              HasSubstr("a pickle"));
  EXPECT_THAT(refusal_of_bytes("version https://git-lfs.github.com/spec/v1\noid"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal_of_bytes("GGUF\x03" + rest), HasSubstr("a GGUF file"));
  EXPECT_THAT(refusal_of_bytes("<!doctype html>"), HasSubstr("a header of"));
}

TEST_F(ASafetensorsFile, MayStartAsAPickleDoes) {
  std::string header = "{" + entry("w", "F32", "[4]", "[0,16]") + "}";
  header.resize(0x280, ' ');
  ASSERT_THAT(file_bytes(header, 16), StartsWith("\x80\x02"));
  EXPECT_THAT(names_of(read_safetensors(write("a", file_bytes(header, 16)))), ElementsAre("w"));
}

TEST_F(ASafetensorsFile, ThatTheSystemRefusesIsAnIoError) {
  EXPECT_THAT(refusal(path("absent"), ErrorKind::io), HasSubstr("No such file"));
  EXPECT_THAT(refusal_of([&] { read_safetensors(path()); }, ErrorKind::io), HasSubstr("a folder"));
  EXPECT_THAT(refusal("/dev/zero", ErrorKind::io), HasSubstr("a device or a pipe"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(path("pipe"), ErrorKind::io), HasSubstr("a device or a pipe"));
}

TEST_F(ASafetensorsFile, WithoutPermissionIsAnIoError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  fs::permissions(write("a", one_tensor("w")), fs::perms::none);
  EXPECT_THAT(refusal(path("a"), ErrorKind::io), HasSubstr("Permission denied"));
  fs::create_directory(path("closed"));
  fs::permissions(path("closed"), fs::perms::none);
  EXPECT_THAT(refusal(path("closed"), ErrorKind::io), HasSubstr("Permission denied"));
  fs::permissions(path("closed"), fs::perms::owner_all);
}

TEST_F(ACheckpoint, IsAFileAFolderOrAnIndex) {
  write("model.safetensors", one_tensor("w"));
  const auto only_file = [](const Checkpoint& checkpoint) { return checkpoint.files.at(0).path; };
  EXPECT_EQ(only_file(read_checkpoint(path("model.safetensors"))), path("model.safetensors"));
  EXPECT_EQ(only_file(read_checkpoint(path())), path("model.safetensors"));
  const std::string index = write("i.json", R"({"weight_map":{"w":"model.safetensors"}})");
  EXPECT_EQ(only_file(read_checkpoint(index)), path("model.safetensors"));
}

TEST_F(ACheckpoint, OfSeveralFilesIsReadByItsIndexInTheOrderOfFiles) {
  write("part-2.safetensors", one_tensor("a"));
  write("part-1.safetensors", one_tensor("b"));
  write("consolidated.safetensors", one_tensor("a"));
  write("model.safetensors.index.json",
        R"({"metadata":{"total_size":32},
            "weight_map":{"a":"part-2.safetensors","b":"part-1.safetensors"}})");
  const Checkpoint checkpoint = read_checkpoint(path());
  ASSERT_EQ(checkpoint.files.size(), 2u);
  EXPECT_EQ(checkpoint.files[0].path, path("part-1.safetensors"));
  EXPECT_THAT(names_of(checkpoint.files[0]), ElementsAre("b"));
  EXPECT_THAT(names_of(checkpoint.files[1]), ElementsAre("a"));
  // One file for all goes first.
  write("model.safetensors", one_tensor("w"));
  EXPECT_THAT(names_of(read_checkpoint(path()).files.at(0)), ElementsAre("w"));
}

TEST_F(ACheckpoint, InAFolderMayHaveAnyNameIfItIsTheOnlyOne) {
  write("adapter.safetensors", one_tensor("w"));
  write("config.json", "{}");
  write("pytorch_model.bin.index.json", "{}");
  EXPECT_EQ(read_checkpoint(path()).files.at(0).path, path("adapter.safetensors"));
  write("other.safetensors", one_tensor("w"));
  EXPECT_THAT(refusal(path()), HasSubstr("0 indexes and 2 .safetensors files"));
  write("my.safetensors.index.json", R"({"weight_map":{"w":"other.safetensors"}})");
  EXPECT_EQ(read_checkpoint(path()).files.at(0).path, path("other.safetensors"));
  write("your.safetensors.index.json", "{}");
  EXPECT_THAT(refusal(path()), HasSubstr("2 indexes and 2 .safetensors files"));
}

TEST_F(ACheckpoint, IsReadThroughLinks) {
  fs::create_directory(path("blobs"));
  fs::create_directory(path("snapshot"));
  write("blobs/0123", one_tensor("w"));
  fs::create_symlink("../blobs/0123", path("snapshot/model.safetensors"));
  EXPECT_THAT(names_of(read_checkpoint(path("snapshot")).files.at(0)), ElementsAre("w"));
  fs::remove(path("blobs/0123"));
  EXPECT_THAT(refusal(path("snapshot"), ErrorKind::io), HasSubstr("No such file"));
}

TEST_F(ACheckpoint, ThatAFolderDoesNotHoldIsRefused) {
  EXPECT_THAT(refusal(path()), HasSubstr("a folder without a .safetensors file"));
  write("pytorch_model.bin", "PK");
  EXPECT_THAT(refusal(path()), AllOf(HasSubstr("'pytorch_model.bin' and no .safetensors file"),
                                     HasSubstr("convert it")));
}

TEST_F(ACheckpoint, WithAnIndexOfAnotherShapeIsRefused) {
  EXPECT_THAT(refusal(write("i.json", "not JSON")), HasSubstr("i.json"));
  EXPECT_THAT(refusal(write("i.json", "[]")), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(write("i.json", "{}")), HasSubstr("no field 'weight_map'"));
  EXPECT_THAT(refusal(write("i.json", std::string(50, '\0'))), HasSubstr("i.json"));
  EXPECT_THAT(refusal_of_index("{}"), HasSubstr("an index without tensors"));
  EXPECT_THAT(refusal_of_index(R"({"w":3})"), HasSubstr("expected a string"));
  EXPECT_THAT(refusal_of_index(R"({"w":"pytorch_model-1.bin"})"), HasSubstr("convert it"));
}

TEST_F(ACheckpoint, WhoseIndexLeadsElsewhereIsRefused) {
  write("a.safetensors", one_tensor("w"));
  fs::create_directory(path("in"));
  write("in/a.safetensors", one_tensor("w"));
  for (const char* const name :
       {"../a.safetensors", "in/a.safetensors", "./a.safetensors", "/etc/a.safetensors",
        R"(..\\a.safetensors)", R"(a.safetensors\u0000.safetensors)", "..", "", "/etc/passwd"}) {
    EXPECT_THAT(refusal_of_index(R"({"w":")" + std::string(name) + "\"}"),
                HasSubstr("the name of a .safetensors file beside the index"));
  }
}

TEST_F(ACheckpoint, WhoseIndexAndFilesDisagreeIsRefused) {
  write("a.safetensors", one_tensor("w"));
  write("b.safetensors", one_tensor("v"));
  write("c.safetensors", one_tensor("w"));
  EXPECT_THAT(refusal_of_index(R"({"w":"a.safetensors","x":"b.safetensors"})"),
              HasSubstr("no tensor 'x' in 'b.safetensors'"));
  EXPECT_THAT(refusal_of_index(R"({"v":"a.safetensors","w":"b.safetensors"})"),
              HasSubstr("no tensor 'v' in 'a.safetensors'"));
  EXPECT_THAT(refusal_of_index(R"({"w":"a.safetensors","u":"c.safetensors"})"),
              HasSubstr("tensor 'w' in 'a.safetensors' and in 'c.safetensors'"));
  EXPECT_THAT(refusal_of_index(R"({"w":"a.safetensors","y":"lost.safetensors"})", ErrorKind::io),
              HasSubstr("'lost.safetensors', which is not there"));
}

TEST_F(ACheckpoint, HasTheTensorsThatItsIndexForgot) {
  write("a.safetensors", file_bytes("{" + entry("x", "U8", "[1]", "[0,1]") + "," +
                                        entry("w", "U8", "[1]", "[1,2]") + "}",
                                    2));
  const std::string index = write("i.json", R"({"weight_map":{"w":"a.safetensors"}})");
  EXPECT_THAT(names_of(read_checkpoint(index).files.at(0)), ElementsAre("x", "w"));
}

TEST_F(ACheckpoint, CannotWriteControlCharactersIntoMessages) {
  EXPECT_THAT(refusal_of_header("{" + entry("w\\u001b[2J\\u0000", "F4", "[]", "[0,1]") + "}"),
              HasSubstr("tensor 'w\\x1b[2J\\x00' of dtype 'F4'"));
}

}  // namespace
}  // namespace kerf
