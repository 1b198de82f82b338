// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <random>

#include "checkpoint/piece_name.h"
#include "plan/plan_json.h"
#include "some_manifest.h"
#include "tests/distributed/sanitized.h"

namespace meron::checkpoint {
namespace {

std::string error_text(const Result<Manifest>& result) {
  return result.ok() ? "" : result.error().info().what;
}

TEST(Manifest, RoundTrip) {
  const Manifest manifest = some_manifest();
  const std::string text = to_json(manifest);
  const Result<Manifest> read = parse_manifest(text);
  ASSERT_TRUE(read.ok()) << error_text(read);
  EXPECT_EQ(*read, manifest);
  EXPECT_EQ(to_json(*read), text);
}

TEST(Manifest, CountsOfParamsAndDecaysOfGroupsAreKept) {
  Manifest manifest = some_manifest();
  manifest.version = 2;
  manifest.optimizers[0].groups[0].lr_decay = 5e-324;
  manifest.optimizers[0].groups.push_back({0.5, 0.9, 0.999, 1e-8, 0.0});
  manifest.optimizers[0].param_steps = {{"h.0.w", 0}, {"h.\"0\\.b", UINT64_MAX}};
  manifest.optimizers.push_back({"lion", 3, {}, {}});
  const std::string text = to_json(manifest);
  EXPECT_NE(text.find(R"("weight_decay": 0.1, "lr_decay": 5e-324}, )"), text.npos) << text;
  EXPECT_NE(text.find(R"("weight_decay": 0}], "param_steps": {"h.\"0\\.b": )"
                      R"(18446744073709551615, "h.0.w": 0}})"),
            text.npos)
      << text;
  const Result<Manifest> read = parse_manifest(text);
  ASSERT_TRUE(read.ok()) << error_text(read);
  EXPECT_EQ(*read, manifest);
  EXPECT_EQ(to_json(*read), text);
}

TEST(Manifest, CountsAndDecaysThatAreNoNumbers) {
  Manifest manifest = some_manifest();
  manifest.version = 2;
  manifest.optimizers[0].groups[0].lr_decay = 0.25;
  manifest.optimizers[0].param_steps = {{"h.0.w", 4}};
  const std::string text = to_json(manifest);
  const auto refused = [&](const char* from, const char* to, const char* what) {
    SCOPED_TRACE(to);
    expect_refused(parse_manifest(replaced(text, from, to)), MERON_E_PARSE, what);
  };
  refused("\"lr_decay\": 0.25", "\"lr_decay\": null", "optimizers[0].groups[0].lr_decay");
  refused("\"lr_decay\": 0.25", "\"lr_decay\": 0.25, \"lr_decay\": 0.5", "already given");
  refused("{\"h.0.w\": 4}", "[4]", "optimizers[0].param_steps");
  refused("{\"h.0.w\": 4}", "{\"h.0.w\": -1}", "optimizers[0].param_steps.h.0.w");
  refused("{\"h.0.w\": 4}", "{\"h.0.w\": 0.5}", "optimizers[0].param_steps.h.0.w");
  refused("{\"h.0.w\": 4}", "{\"h.0.w\": 4, \"h.0.w\": 5}", "already given");
}

TEST(Manifest, FilesAndTensorsHaveALineEach) {
  const std::string text = to_json(some_manifest());
  EXPECT_NE(text.find(R"(
  {"name": "h.0.w", "kind": "values", "dtype": "BF16", "shape": [4, 5], "pieces": [[0, 0, 12, 4096], [1, 12, 8, 4096]]},
)"),
            text.npos);
  EXPECT_NE(text.find(R"(
  {"name": "values-00000-of-00002.safetensors", "rank": 0, "node": 0, "bytes": 4128, "crc": "deadbeef"},
)"),
            text.npos);
}

TEST(Manifest, EmptyOne) {
  Manifest manifest = some_manifest();
  manifest.files.clear();
  manifest.tensors.clear();
  manifest.optimizers.clear();
  manifest.origin.plan = manifest.extra = "{}";
  const Result<Manifest> read = parse_manifest(to_json(manifest));
  ASSERT_TRUE(read.ok()) << error_text(read);
  EXPECT_EQ(*read, manifest);
}

TEST(Manifest, NumbersKeepTheirBits) {
  Manifest manifest = some_manifest();
  manifest.step = UINT64_MAX;
  manifest.optimizers[0].steps = UINT64_MAX;
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.1, 1.0, 1e-300, 5e-324, 0.30000000000000004, Limits::max(),
                             Limits::min(), -1.5, -0.0, 1e22, 123456789012345678.0}) {
    manifest.optimizers[0].groups.push_back({value, value, value, value, value});
    if (value != 0) manifest.optimizers[0].groups.back().lr_decay = value;
  }
  const Result<Manifest> read = parse_manifest(to_json(manifest));
  ASSERT_TRUE(read.ok()) << error_text(read);
  EXPECT_EQ(*read, manifest);
  EXPECT_EQ(to_json(*read), to_json(manifest)) << "-0 equals 0, and has another text";
}

TEST(Manifest, ObjectsOfTheCallerKeepTheirSpelling) {
  const std::string given =
      " {\n\"a\" : [ 1.50 , -0, 18446744073709551616, \" \\\" } \\\\\" ],\t\"b\\u0041\": { } }\n";
  const Result<std::string> kept = object_text(given, "extra");
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(*kept, R"({"a":[1.50,-0,18446744073709551616," \" } \\"],"b\u0041":{}})");
  Manifest manifest = some_manifest();
  manifest.extra = given;
  const Result<Manifest> read = parse_manifest(to_json(manifest));
  ASSERT_TRUE(read.ok()) << error_text(read);
  EXPECT_EQ(read->extra, *kept);
  expect_refused(object_text("[1]", "extra"), MERON_E_PARSE, "must be an object");
  expect_refused(object_text("{", "extra"), MERON_E_PARSE, "malformed JSON");
  const auto nested = [](size_t arrays) {
    return "{\"a\": " + std::string(arrays, '[') + std::string(arrays, ']') + "}";
  };
  EXPECT_TRUE(object_text(nested(6), "extra").ok());
  expect_refused(object_text(nested(7), "extra"), MERON_E_PARSE, "nested more than 7 deep");
  manifest.extra = nested(6);
  EXPECT_TRUE(parse_manifest(to_json(manifest)).ok());
}

TEST(Manifest, APlanWithTheFormerKeyOfTheSecondaryPartitionIsReadable) {
  Manifest manifest = some_manifest();
  manifest.origin.plan = R"({"preset":"zero3","mesh":{"shard":2},)"
                         R"("param":{"sharding":"replica x shard","second_copy":"shard"},)"
                         R"("gradient":{"sharding":"replica x shard"},)"
                         R"("optimizer":{"sharding":"replica x shard"}})";
  const Result<Manifest> read = parse_manifest(to_json(manifest));
  ASSERT_TRUE(read.ok()) << error_text(read);
  const Result<Plan> plan = parse_plan(read->origin.plan);
  ASSERT_TRUE(plan.ok()) << plan.error().info().what;
  EXPECT_EQ(*plan, *preset("hpz(2)"));
}

// A value of the manifest's text, another in its place, and the error of that.
struct Lie {
  const char* from;
  const char* to;
  meron_status code;
  const char* what;
};

void expect_refused_lies(std::initializer_list<Lie> lies) {
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.to);
    const Result<Manifest> read =
        parse_manifest(replaced(to_json(some_manifest()), lie.from, lie.to));
    expect_refused(read, lie.code, lie.what);
    if (!read) {
      EXPECT_EQ(read.error().info().subject, "meron.json");
      EXPECT_THAT(read.error().info().what, testing::StartsWith("line "));
    }
  }
}

TEST(Manifest, VersionIsReadBeforeAnythingElse) {
  std::string text = replaced(to_json(some_manifest()), "\"version\": 1", "\"version\": 3");
  text = replaced(text, "\"step\"", "\"steps_of_the_future\"");
  expect_refused(parse_manifest(text), MERON_E_VERSION,
                 "line 3, key \"version\": the checkpoint has format version 3, and this Meron "
                 "reads up to 2");
}

TEST(Manifest, TextThatIsNoManifest) {
  expect_refused(parse_manifest(""), MERON_E_PARSE, "malformed JSON");
  expect_refused(parse_manifest("[]"), MERON_E_PARSE, "");
  expect_refused(parse_manifest("{}"), MERON_E_PARSE, "\"format\" is missing");
  expect_refused(parse_manifest(std::string(kMaxManifest + 1, ' ')), MERON_E_PARSE, "limit");
  expect_refused(parse_manifest("{\"a\":" + std::string(1'000'000, '[')), MERON_E_PARSE,
                 "nested more than 8 deep");
  expect_refused_lies({
      {"meron-checkpoint", "other", MERON_E_PARSE, "line 2, key \"format\": must be"},
      {"\"version\": 1", "\"version\": 0", MERON_E_PARSE, "from 1"},
      {"\"version\": 1", "\"version\": \"1\"", MERON_E_PARSE, "must be a whole number"},
      {"\"step\": 12", "\"step\": -1", MERON_E_PARSE, "key \"step\""},
      {"\"step\": 12", "\"step\": 18446744073709551616", MERON_E_PARSE, "key \"step\""},
      {"\"step\": 12", "\"step\": 12, \"step\": 12", MERON_E_PARSE, "already given in line 6"},
      {"\"step\": 12", "\"step\": 12, \"more\": 1", MERON_E_PARSE, "key \"more\": unknown key"},
      {"\"step\": 12,", "", MERON_E_PARSE, "\"step\" is missing"},
      {"0123456789abcdef\"", "0123456789ABCDEF\"", MERON_E_PARSE, "32 hexadecimal digits"},
      {"0123456789abcdef\"", "\"", MERON_E_PARSE, "32 hexadecimal digits"},
      {"2026-11-25T", "2026-11-25 ", MERON_E_PARSE, "must be a time of UTC"},
      {"00:00Z", "00:00", MERON_E_PARSE, "must be a time of UTC"},
      {"meron 0.1.0", "", MERON_E_PARSE, "the name is empty"},
      {"\"world\": 2", "\"world\": 0", MERON_E_PARSE, "from 1 to 65536"},
      {"\"nodes\": 2", "\"nodes\": 3", MERON_E_PARSE, "from 1 to 2"},
      {"\"complete\": true", "\"complete\": 1", MERON_E_PARSE, "must be true or false"},
      {"131072", "131073", MERON_E_PARSE, "no power of two"},
      {"131072", "65536", MERON_E_PARSE, "from 131072"},
      {"131072", "2147483648", MERON_E_PARSE, "from 131072"},
      {"{\"name\":\"zero2\"}", "\"zero2\"", MERON_E_PARSE, "key \"plan\": must be an object"},
      {"{\"epoch\":", "[{\"epoch\":", MERON_E_PARSE, "malformed"},
      {"\"rule\": \"adamw\", ", "", MERON_E_PARSE, "\"rule\" is missing"},
      {"\"beta1\": 0.9", "\"beta1\": \"0.9\"", MERON_E_PARSE, "optimizers[0].groups[0].beta1"},
      {"\"beta1\": 0.9", "\"beta3\": 0.9", MERON_E_PARSE, "unknown key"},
      {"deadbeef", "deadbee", MERON_E_PARSE, "8 hexadecimal digits per block"},
      {"deadbeef", "DEADBEEF", MERON_E_PARSE, "8 hexadecimal digits per block"},
      {"\"rank\": 1", "\"rank\": 2", MERON_E_PARSE, "files[1].rank"},
      {"\"node\": 1", "\"node\": 2", MERON_E_PARSE, "files[1].node"},
      {"\"bytes\": 4128", "\"bytes\": 1152921504606846977", MERON_E_PARSE, "files[0].bytes"},
      {"\"bytes\": 4128", "\"bytes\": 1e300", MERON_E_PARSE, "files[0].bytes"},
      {"BF16", "bf16", MERON_E_PARSE, "line 23, key \"tensors[0].dtype\": \"bf16\" is not a dtype"},
      {"\"exp_avg\"", "\"exp_avg_3\"", MERON_E_PARSE, "not a kind of state"},
      {"\"exp_avg\"", "\"extra.01\"", MERON_E_PARSE, "not a kind of state"},
      {"\"exp_avg\"", "\"state.A\"", MERON_E_PARSE, "not a kind of state"},
      {"[0, 0, 12, 4096]", "[0, 0, 12]", MERON_E_PARSE, "four numbers"},
      {"[0, 0, 12, 4096]", "[0, 0, 12, 4096, 1]", MERON_E_PARSE, "four numbers"},
      {"[0, 0, 12, 4096]", "[0, 0, 12, 4096, 1, 2, 3]", MERON_E_PARSE, "four numbers"},
      {"[0, 0, 12, 4096]", "[]", MERON_E_PARSE, "four numbers"},
      {"[0, 0, 12, 4096]", "12", MERON_E_PARSE, "tensors[0].pieces[0]\": must be an array"},
      {"[0, 0, 12, 4096]", "[4294967296, 0, 12, 4096]", MERON_E_PARSE, "whole number from 0"},
      {"[4, 5]", "[4, -5]", MERON_E_PARSE, "tensors[0].shape[1]"},
      {"h.0.w", "h\\u0000w", MERON_E_PARSE, "the name has a control character"},
      {"h.0.w", "", MERON_E_PARSE, "the name is empty"},
      {"h.0.w", "h\xff", MERON_E_PARSE, "malformed JSON"},
  });
}

TEST(Manifest, NamesAndShapesAreLimited) {
  Manifest manifest = some_manifest();
  manifest.tensors[0].name = std::string(512, 'n');
  EXPECT_TRUE(parse_manifest(to_json(manifest)).ok());
  manifest.tensors[0].name += 'n';
  expect_refused(parse_manifest(to_json(manifest)), MERON_E_PARSE, "more than the limit of 512");
  manifest = some_manifest();
  manifest.tensors[0].shape = {4, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_TRUE(parse_manifest(to_json(manifest)).ok());
  manifest.tensors[0].shape.push_back(1);
  expect_refused(parse_manifest(to_json(manifest)), MERON_E_CORRUPT, "17 dimensions");
  manifest.tensors[0].shape = {1u << 31, 1u << 31};
  expect_refused(parse_manifest(to_json(manifest)), MERON_E_CORRUPT, "has more than");
  manifest.tensors[0].shape = {0, uint64_t{1} << 48, uint64_t{1} << 48};
  expect_refused(parse_manifest(to_json(manifest)), MERON_E_CORRUPT, "has more than");
}

TEST(Manifest, NamesThatLeaveTheDirectory) {
  for (const char* name : {"../x", "a/b", "/etc/passwd", "..", ".", ".x", "a\\\\b", ""}) {
    SCOPED_TRACE(name);
    expect_refused_lies(
        {{"values-00000-of-00002.safetensors", name, MERON_E_CORRUPT, "key \"files[0].name\""},
         {"step-000012", name, MERON_E_CORRUPT, "key \"name\": the file name"}});
  }
  expect_refused_lies({{"values-00000-of-00002.safetensors", "meron.json", MERON_E_CORRUPT,
                        "the manifest itself"}});
}

TEST(Manifest, FilesThatContradict) {
  expect_refused_lies({
      {"values-00001", "values-00000", MERON_E_CORRUPT, "files[1]\": file \"values-00000"},
      {"deadbeef", "", MERON_E_CORRUPT, "4128 bytes, which are 1 blocks, and 0 checksums"},
      {"deadbeef", "deadbeefdeadbeef", MERON_E_CORRUPT, "and 2 checksums"},
      {"\"bytes\": 4128", "\"bytes\": 1152921504606846976", MERON_E_CORRUPT,
       "8796093022208 blocks"},
      {"\"rank\": 1", "\"rank\": 0", MERON_E_CORRUPT, "rank 0 is on node 1 here and on node 0"},
  });
  // A block more than one, and an empty file.
  Manifest manifest = some_manifest();
  manifest.files.push_back({"more", 0, 0, 2 * kMinBlock + 1, {1, 2, 3}});
  manifest.files.push_back({"none", 0, 0, 0, {}});
  EXPECT_TRUE(parse_manifest(to_json(manifest)).ok());
  manifest.files[2].crc.pop_back();
  expect_refused(parse_manifest(to_json(manifest)), MERON_E_CORRUPT, "3 blocks, and 2 checksums");
}

TEST(Manifest, FilesHaveALimitedNumberOfBlocks) {
  Manifest manifest = some_manifest();
  const std::vector<uint32_t> crc(kMaxBlocks / 2);
  manifest.files = {{"a", 0, 0, kMaxBlocks / 2 * kMinBlock, crc},
                    {"b", 1, 1, kMaxBlocks / 2 * kMinBlock, crc}};
  manifest.tensors.clear();
  EXPECT_TRUE(parse_manifest(to_json(manifest)).ok());
  manifest.files.push_back({"c", 1, 1, 1, {7}});
  expect_refused(parse_manifest(to_json(manifest)), MERON_E_CORRUPT, "more than the limit of");
}

TEST(Manifest, PiecesThatContradict) {
  expect_refused_lies({
      {"[1, 12, 8, 4096]", "[1, 11, 8, 4096]", MERON_E_CORRUPT,
       "line 23, key \"tensors[0]\": tensor \"h.0.w\" of kind values has a piece from element 11, "
       "where 12 was expected: pieces overlap"},
      {"[1, 12, 8, 4096]", "[1, 13, 7, 4096]", MERON_E_CORRUPT, "there is a gap"},
      {"[0, 0, 12, 4096]", "[0, 1, 11, 4096]", MERON_E_CORRUPT, "there is a gap"},
      {", [1, 12, 8, 4096]", "", MERON_E_CORRUPT, "has 20 elements, and pieces with 12"},
      {"[1, 12, 8, 4096]", "[1, 12, 9, 4096]", MERON_E_CORRUPT,
       "20 elements, and pieces with more"},
      {"[1, 12, 8, 4096]", "[1, 12, 18446744073709551615, 4096]", MERON_E_CORRUPT, "with more"},
      {"[1, 12, 8, 4096]", "[1, 12, 0, 4096], [1, 12, 8, 4096]", MERON_E_CORRUPT,
       "a piece without elements"},
      {"[1, 12, 8, 4096]", "[2, 12, 8, 4096]", MERON_E_CORRUPT, "in file 2, and there are 2 files"},
      {"[1, 12, 8, 4096]", "[1, 12, 8, 4097]", MERON_E_CORRUPT, "no multiple of the 2 bytes"},
      {"[1, 12, 8, 4096]", "[1, 12, 8, 4106]", MERON_E_CORRUPT, "which has only 4120 bytes"},
      {"[1, 12, 8, 4096]", "[1, 12, 8, 18446744073709551614]", MERON_E_CORRUPT, "has only"},
      {"h.0.b\", \"kind\": \"exp_avg\"", "nothing\", \"kind\": \"values\"", MERON_E_CORRUPT,
       "line 26, key \"tensors[3]\": tensor \"nothing\" of kind values is given twice"},
      {"extra.1", "extra.2", MERON_E_CORRUPT, "of rank 2, and the world has 2"},
      {"extra.1", "residual.4294967295", MERON_E_CORRUPT, "of rank 4294967295"},
      // Bytes of files.
      {"[0, 0, 2, 4120]", "[0, 0, 2, 4116]", MERON_E_CORRUPT, "they overlap tensor \"h.0.w\""},
      {"[1, 0, 1, 4112]", "[1, 0, 1, 4104]", MERON_E_CORRUPT, "they overlap"},
      {"[0, 0, 12, 4096]", "[0, 0, 12, 4094]", MERON_E_CORRUPT, "there is a hole behind"},
      {"\"bytes\": 4128", "\"bytes\": 4136", MERON_E_CORRUPT,
       "nothing follows them, and the file has 4136 bytes"},
      {"[0, 3], \"pieces\": []", "[0, 3], \"pieces\": [[0, 0, 0, 4100]]", MERON_E_CORRUPT,
       "they overlap"},
      {"[0, 3], \"pieces\": []", "[0, 3], \"pieces\": [[0, 0, 0, 4096], [0, 0, 0, 4096]]",
       MERON_E_CORRUPT, "a piece without elements"},
      {"[0, 3], \"pieces\": []", "[0, 3], \"pieces\": [[0, 0, 1, 4096]]", MERON_E_CORRUPT,
       "0 elements, and pieces with more"},
  });
  // A tensor without elements may have a piece between others, and at the end.
  for (const uint64_t offset : {4096, 4120, 4128}) {
    Manifest manifest = some_manifest();
    manifest.tensors[3].pieces = {{0, 0, 0, offset}};
    const Result<Manifest> read = parse_manifest(to_json(manifest));
    EXPECT_TRUE(read.ok()) << error_text(read);
  }
}

// Pieces of random tensors at random places of random files; every manifest is right.
Manifest random_manifest(std::mt19937_64& random) {
  const auto below = [&](uint64_t limit) { return random() % limit; };
  const char* const dtypes[] = {"F64", "F32", "BF16", "U8", "F8_E4M3", "BOOL", "I16"};
  const char* const kinds[] = {"values",     "master",   "exp_avg",
                               "exp_avg_sq", "gradient", "state.9"};  // 9: no rank
  Manifest m = some_manifest();
  m.origin.world = static_cast<uint32_t>(1 + below(5));
  m.origin.nodes = static_cast<uint32_t>(1 + below(m.origin.world));
  m.step = random();
  m.block_bytes = kMinBlock << below(3);
  m.complete = below(2) == 0;
  m.files.clear();
  m.tensors.clear();
  for (uint32_t rank = 0; rank < m.origin.world; ++rank) {
    m.files.push_back({"values-" + std::to_string(rank), rank, rank % m.origin.nodes, 4096, {}});
  }
  for (uint64_t i = below(30); i > 0; --i) {
    Tensor tensor{"t" + std::to_string(i) + (below(2) == 0 ? "\xc3\xa9\"\\" : ""),
                  kinds[below(6)],
                  dtypes[below(7)],
                  {},
                  {}};
    uint64_t elements = 1;
    for (uint64_t d = below(4); d > 0; --d) {
      tensor.shape.push_back(below(60));
      elements *= tensor.shape.back();
    }
    for (uint64_t begin = 0; begin < elements;) {
      const uint64_t count = below(2) == 0 ? elements - begin : 1 + below(elements - begin);
      tensor.pieces.push_back({static_cast<uint32_t>(below(m.origin.world)), begin, count, 0});
      begin += count;
    }
    m.tensors.push_back(std::move(tensor));
  }
  // Wide elements first, so that all are aligned.
  for (const uint32_t size : {8u, 4u, 2u, 1u}) {
    for (Tensor& tensor : m.tensors) {
      if (element_bytes(tensor.dtype) != size) continue;
      for (Piece& piece : tensor.pieces) {
        piece.offset = m.files[piece.file].bytes;
        m.files[piece.file].bytes += piece.count * size;
      }
    }
  }
  for (File& file : m.files) {
    file.crc.resize(blocks_of(file.bytes, m.block_bytes));
    for (uint32_t& crc : file.crc) crc = static_cast<uint32_t>(random());
  }
  return m;
}

TEST(Manifest, RandomOnesSurviveTheRoundTrip) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    const Manifest manifest = random_manifest(random);
    const std::string text = to_json(manifest);
    const Result<Manifest> read = parse_manifest(text);
    ASSERT_TRUE(read.ok()) << error_text(read) << '\n' << text;
    ASSERT_EQ(*read, manifest) << text;
  }
}

// Whatever number of a piece changes, the manifest contradicts itself.
TEST(Manifest, EveryWrongNumberOfAPieceIsSeen) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    Manifest manifest = random_manifest(random);
    std::vector<Piece*> pieces;
    for (Tensor& tensor : manifest.tensors) {
      for (Piece& piece : tensor.pieces) pieces.push_back(&piece);
    }
    if (pieces.empty()) continue;
    Piece& piece = *pieces[random() % pieces.size()];
    uint64_t* const numbers[] = {&piece.begin, &piece.count, &piece.offset};
    uint64_t& number = *numbers[random() % 3];
    const uint64_t wrong = random() % 2 == 0 ? number + 1 + random() % 100 : random();
    if (wrong == number) continue;
    number = wrong;
    const Result<Manifest> read = parse_manifest(to_json(manifest));
    ASSERT_FALSE(read.ok()) << to_json(manifest);
    ASSERT_EQ(read.error().code(), MERON_E_CORRUPT) << error_text(read);
  }
}

TEST(Manifest, HundredThousandTensorsInSeconds) {
  constexpr size_t kTensors = test::kSanitized ? 5'000 : 100'000;
  Manifest manifest = some_manifest();
  manifest.tensors.clear();
  uint64_t at = 4096;
  for (size_t i = 0; i < kTensors; ++i) {
    manifest.tensors.push_back({"model.layers." + std::to_string(i) + ".mlp.down_proj.weight",
                                "exp_avg",
                                "F32",
                                {2, 3},
                                {{0, 0, 2, at}, {0, 2, 4, at + 8}}});
    at += 24;
  }
  manifest.files = {{"values", 0, 0, at, std::vector<uint32_t>(blocks_of(at, kMinBlock), 7)}};
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = to_json(manifest);
  const Result<Manifest> read = parse_manifest(text);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(read.ok()) << error_text(read);
  EXPECT_EQ(*read, manifest);
  EXPECT_LT(seconds.count(), 10.0);
  RecordProperty("milliseconds", static_cast<int>(seconds.count() * 1000));
}

TEST(Manifest, NoObjectWhereATensorIsExpected) {
  std::string text = to_json(some_manifest());
  std::string ones;
  for (size_t i = 0; i <= kMaxTensors; ++i) ones += "1,";
  ones.back() = ']';
  text = text.substr(0, text.find("\"tensors\": [") + 12) + ones + "}";
  expect_refused(parse_manifest(text), MERON_E_PARSE, "tensors[0]\": must be an object");
}

}  // namespace
}  // namespace meron::checkpoint
