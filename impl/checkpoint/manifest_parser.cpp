// SPDX-License-Identifier: Apache-2.0
// Parses text to a manifest whose values have their types and are within their limits.
// manifest_check.h checks that they agree with each other.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "checkpoint/manifest.h"
#include "checkpoint/manifest_check.h"
#include "checkpoint/piece_name.h"
#include "plan/predict.h"
#include "plan/text.h"

namespace meron::checkpoint {
namespace {

constexpr std::string_view kFormat = "meron-checkpoint";
constexpr size_t kIdDigits = 32;

// The error of a check of one value, with the value's place.
template <class T>
Error placed(JsonValue value, meron_status code, const Result<T>& result) {
  return value.error(code, result.error().info().what, result.error().info().advice);
}

Status read_count(JsonValue object, std::string_view key, uint64_t min, uint64_t max,
                  uint64_t& out) {
  MERON_ASSIGN(const JsonValue value, object.require(key));
  MERON_ASSIGN(out, value.count(min, max));
  return Ok{};
}

Status read_count(JsonValue object, std::string_view key, uint64_t min, uint64_t max,
                  uint32_t& out) {
  uint64_t wide = 0;
  MERON_TRY(read_count(object, key, min, max, wide));
  out = static_cast<uint32_t>(wide);  // max is below 2^32
  return Ok{};
}

// Text of 1 to kMaxNameBytes bytes.
Status read_text(JsonValue object, std::string_view key, std::string& out) {
  MERON_ASSIGN(const JsonValue value, object.require(key));
  MERON_ASSIGN(const std::string_view text, value.string());
  if (const Status valid = check_name(text); !valid) return placed(value, MERON_E_PARSE, valid);
  out = text;
  return Ok{};
}

Status read_file_name(JsonValue object, std::string_view key, std::string& out) {
  MERON_ASSIGN(const JsonValue value, object.require(key));
  MERON_ASSIGN(const std::string_view text, value.string());
  if (const Status valid = check_file_name(text); !valid) {
    return placed(value, MERON_E_CORRUPT, valid);
  }
  out = text;
  return Ok{};
}

Status read_id(JsonValue root, std::string& out) {
  MERON_ASSIGN(const JsonValue value, root.require("id"));
  MERON_ASSIGN(const std::string_view text, value.string());
  if (text.size() != kIdDigits || text.find_first_not_of("0123456789abcdef") != text.npos) {
    return value.error(
        MERON_E_PARSE,
        fmt::format("must be {} hexadecimal digits, not {}", kIdDigits, in_quotes(text)),
        "use digits and the letters a to f");
  }
  out = text;
  return Ok{};
}

// "2026-11-25T08:00:00Z"; the calendar is not checked, nothing depends on it.
Status read_time(JsonValue root, std::string& out) {
  MERON_ASSIGN(const JsonValue value, root.require("created"));
  MERON_ASSIGN(const std::string_view text, value.string());
  constexpr std::string_view kShape = "0000-00-00T00:00:00Z";
  const bool fits = std::equal(
      text.begin(), text.end(), kShape.begin(), kShape.end(),
      [](char c, char shape) { return shape == '0' ? c >= '0' && c <= '9' : c == shape; });
  if (!fits) {
    return value.error(MERON_E_PARSE, fmt::format("must be a time of UTC, not {}", in_quotes(text)),
                       "write it as 2026-11-25T08:00:00Z");
  }
  out = text;
  return Ok{};
}

// `digits`: 8 per block.
Status read_checksums(JsonValue file, std::vector<uint32_t>& out) {
  MERON_ASSIGN(const JsonValue value, file.require("crc"));
  MERON_ASSIGN(const std::string_view digits, value.string());
  constexpr size_t kDigits = 8;
  const auto refused = [&] {
    return value.error(MERON_E_PARSE, "must be 8 hexadecimal digits per block",
                       "use digits and the letters a to f");
  };
  if (digits.size() % kDigits != 0) return refused();
  out.reserve(digits.size() / kDigits);
  for (size_t at = 0; at < digits.size(); at += kDigits) {
    uint32_t crc = 0;
    for (const char c : digits.substr(at, kDigits)) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit && !(c >= 'a' && c <= 'f')) return refused();
      crc = crc << 4 | static_cast<uint32_t>(digit ? c - '0' : c - 'a' + 10);
    }
    out.push_back(crc);
  }
  return Ok{};
}

Result<File> read_file_line(JsonValue value, const Manifest& manifest) {
  MERON_TRY(value.object({"name", "rank", "node", "bytes", "crc"}));
  File file;
  MERON_TRY(read_file_name(value, "name", file.name));
  MERON_TRY(read_count(value, "rank", 0, manifest.origin.world - 1, file.rank));
  MERON_TRY(read_count(value, "node", 0, manifest.origin.nodes - 1, file.node));
  MERON_TRY(read_count(value, "bytes", 0, kMaxFileBytes, file.bytes));
  MERON_TRY(read_checksums(value, file.crc));
  return file;
}

Result<Piece> read_piece(JsonValue value) {
  MERON_TRY(value.array());
  std::array<uint64_t, 4> numbers{};
  auto number = value.first();
  bool enough = true;
  for (size_t i = 0; i < numbers.size() && (enough = number.has_value()); ++i) {
    MERON_ASSIGN(numbers[i], number->count(0, i == 0 ? UINT32_MAX : UINT64_MAX));
    number = number->next();
  }
  if (!enough || number) {
    return value.error(MERON_E_PARSE, "a piece has four numbers",
                       "write it as [file, begin, count, offset]");
  }
  return Piece{static_cast<uint32_t>(numbers[0]), numbers[1], numbers[2], numbers[3]};
}

Status read_dtype_and_shape(JsonValue value, Tensor& tensor) {
  MERON_ASSIGN(const JsonValue dtype, value.require("dtype"));
  MERON_ASSIGN(const std::string_view text, dtype.string());
  if (element_bytes(text) == 0) {
    return dtype.error(MERON_E_PARSE, fmt::format("{} is not a dtype", in_quotes(text)),
                       "use a dtype of safetensors, such as F32 or BF16");
  }
  tensor.dtype = text;
  MERON_ASSIGN(const JsonValue shape, value.require("shape"));
  MERON_TRY(shape.array());
  for (auto size = shape.first(); size; size = size->next()) {
    MERON_ASSIGN(const uint64_t count, size->count(0, kMaxElements));
    tensor.shape.push_back(count);
    if (const auto elements = element_count(tensor.shape); !elements) {
      return placed(shape, MERON_E_CORRUPT, elements);
    }
  }
  return Ok{};
}

Result<Tensor> read_tensor_line(JsonValue value) {
  MERON_TRY(value.object({"name", "kind", "dtype", "shape", "pieces"}));
  Tensor tensor;
  MERON_TRY(read_text(value, "name", tensor.name));
  MERON_TRY(read_text(value, "kind", tensor.kind));
  if (!valid_kind(tensor.kind)) {
    return value.find("kind")->error(
        MERON_E_PARSE, fmt::format("{} is not a kind of state", in_quotes(tensor.kind)),
        "use values, master, exp_avg, exp_avg_sq, state.KEY, residual.N, gradient, extra or "
        "extra.N");
  }
  MERON_TRY(read_dtype_and_shape(value, tensor));
  MERON_ASSIGN(const JsonValue pieces, value.require("pieces"));
  MERON_TRY(pieces.array());
  for (auto piece = pieces.first(); piece; piece = piece->next()) {
    MERON_ASSIGN(tensor.pieces.emplace_back(), read_piece(*piece));
  }
  return tensor;
}

Result<Group> read_group(JsonValue value) {
  MERON_TRY(
      value.object({"learning_rate", "beta1", "beta2", "epsilon", "weight_decay", "lr_decay"}));
  Group group;
  for (const auto& [key, out] : {std::pair{"learning_rate", &group.learning_rate},
                                 {"beta1", &group.beta1},
                                 {"beta2", &group.beta2},
                                 {"epsilon", &group.epsilon},
                                 {"weight_decay", &group.weight_decay}}) {
    MERON_ASSIGN(const JsonValue number, value.require(key));
    MERON_ASSIGN(*out, number.number());
  }
  if (const auto number = value.find("lr_decay")) {
    MERON_ASSIGN(group.lr_decay, number->number());
  }
  return group;
}

Result<Optimizer> read_optimizer(JsonValue value) {
  MERON_TRY(value.object({"rule", "steps", "groups", "param_steps"}));
  Optimizer optimizer;
  MERON_TRY(read_text(value, "rule", optimizer.rule));
  MERON_TRY(read_count(value, "steps", 0, UINT64_MAX, optimizer.steps));
  MERON_ASSIGN(const JsonValue groups, value.require("groups"));
  MERON_TRY(groups.array());
  for (auto group = groups.first(); group; group = group->next()) {
    MERON_ASSIGN(optimizer.groups.emplace_back(), read_group(*group));
  }
  if (const auto given = value.find("param_steps")) {
    MERON_TRY(given->object());
    for (auto param = given->first(); param; param = param->next()) {
      MERON_ASSIGN(const uint64_t steps, param->count(0, UINT64_MAX));
      optimizer.param_steps.emplace(param->key(), steps);
    }
  }
  return optimizer;
}

// Format and version alone: a newer version may have other keys.
Status read_version(JsonValue root, uint32_t& version) {
  MERON_ASSIGN(const JsonValue format, root.require("format"));
  MERON_ASSIGN(const std::string_view text, format.string());
  if (text != kFormat) {
    return format.error(MERON_E_PARSE,
                        fmt::format("must be \"{}\", not {}", kFormat, in_quotes(text)),
                        "give the meron.json of a checkpoint");
  }
  MERON_TRY(read_count(root, "version", 1, UINT32_MAX, version));
  if (version > kVersion) {
    return root.find("version")->error(
        MERON_E_VERSION,
        fmt::format("the checkpoint has format version {}, and this Meron reads up to {}", version,
                    kVersion),
        "read it with the Meron that wrote it, or a newer one");
  }
  return Ok{};
}

Status read_top(JsonValue root, Manifest& out) {
  MERON_TRY(read_id(root, out.id));
  MERON_TRY(read_file_name(root, "name", out.name));
  MERON_TRY(read_count(root, "step", 0, UINT64_MAX, out.step));
  MERON_TRY(read_time(root, out.origin.created));
  MERON_TRY(read_text(root, "writer", out.origin.writer));
  MERON_TRY(read_count(root, "world", 1, kMaxPlanRanks, out.origin.world));
  MERON_TRY(read_count(root, "nodes", 1, out.origin.world, out.origin.nodes));
  MERON_ASSIGN(const JsonValue complete, root.require("complete"));
  MERON_ASSIGN(out.complete, complete.boolean());
  MERON_ASSIGN(const JsonValue block, root.require("block_bytes"));
  MERON_ASSIGN(out.block_bytes, block.count(kMinBlock, kMaxBlock));
  if ((out.block_bytes & (out.block_bytes - 1)) != 0) {
    return block.error(MERON_E_PARSE, fmt::format("{} is no power of two", out.block_bytes),
                       "correct the value");
  }
  MERON_ASSIGN(const JsonValue plan, root.require("plan"));
  MERON_ASSIGN(out.origin.plan, plan.object_text());
  MERON_ASSIGN(const JsonValue extra, root.require("extra"));
  MERON_ASSIGN(out.extra, extra.object_text());
  return Ok{};
}

// Elements of the array `key` by `read`, at most `limit`, their places to `places`.
template <class T, class Read>
Status read_lines(JsonValue root, std::string_view key, size_t limit, Read read,
                  std::vector<T>& out, std::vector<JsonValue>* places) {
  MERON_ASSIGN(const JsonValue array, root.require(key));
  MERON_TRY(array.array());
  for (auto value = array.first(); value; value = value->next()) {
    if (out.size() == limit) {
      return array.error(MERON_E_PARSE, fmt::format("has more than {} elements", limit),
                         "no valid checkpoint has so many");
    }
    MERON_ASSIGN(out.emplace_back(), read(*value));
    if (places != nullptr) places->push_back(*value);
  }
  return Ok{};
}

}  // namespace

Result<std::vector<Optimizer>> parse_optimizers(std::string_view text) {
  // As a key of an object, which is what the manifest has.
  const std::string object = fmt::format("{{\"optimizers\":{}}}", text);
  MERON_ASSIGN(
      const JsonText json,
      JsonText::parse(object, "optimizers", {.bytes = kMaxManifest, .depth = kMaxManifestDepth}));
  const JsonValue root = json.root();
  MERON_TRY(root.object({"optimizers"}));
  std::vector<Optimizer> out;
  MERON_TRY(read_lines(root, "optimizers", kMaxPlanRanks, read_optimizer, out, nullptr));
  return out;
}

Result<Manifest> parse_manifest(std::string_view text, bool checksums) {
  MERON_ASSIGN(const JsonText json,
               JsonText::parse(text, std::string(kManifestFile),
                               {.bytes = kMaxManifest, .depth = kMaxManifestDepth}));
  const JsonValue root = json.root();
  Manifest out;
  MERON_TRY(read_version(root, out.version));
  MERON_TRY(root.object({"format", "version", "id", "name", "step", "created", "writer", "world",
                         "nodes", "complete", "block_bytes", "plan", "extra", "optimizers", "files",
                         "tensors", "crc"}));
  MERON_TRY(read_top(root, out));
  MERON_TRY(read_lines(root, "optimizers", kMaxPlanRanks, read_optimizer, out.optimizers, nullptr));
  std::vector<JsonValue> files, tensors;
  const auto read_file_of = [&](JsonValue value) { return read_file_line(value, out); };
  MERON_TRY(read_lines(root, "files", kMaxFiles, read_file_of, out.files, &files));
  MERON_TRY(read_lines(root, "tensors", kMaxTensors, read_tensor_line, out.tensors, &tensors));
  MERON_TRY(check_manifest_files(out, files, checksums));
  MERON_TRY(check_manifest_tensors(out, tensors, checksums));
  MERON_TRY(check_manifest_bytes(out, tensors));
  return out;
}

}  // namespace meron::checkpoint
