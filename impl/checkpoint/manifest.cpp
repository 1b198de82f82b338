// SPDX-License-Identifier: Apache-2.0
// A manifest as text. It is printed piece by piece: a tree of JSON values of a million tensors
// would have ten times the size of the text.
#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/cpu/crc32c.h"
#include "plan/json_text.h"
#include "plan/safetensors_header.h"

namespace meron::checkpoint {
namespace {

using TextOut = std::back_insert_iterator<std::string>;

void print_file(TextOut out, const File& file) {
  fmt::format_to(out, R"({{"name": {}, "rank": {}, "node": {}, "bytes": {}, "crc": ")",
                 json_string(file.name), file.rank, file.node, file.bytes);
  for (const uint32_t crc : file.crc) fmt::format_to(out, "{:08x}", crc);
  fmt::format_to(out, "\"}}");
}

void print_tensor(TextOut out, const Tensor& tensor) {
  fmt::format_to(out, R"({{"name": {}, "kind": {}, "dtype": {}, "shape": [{}], "pieces": [)",
                 json_string(tensor.name), json_string(tensor.kind), json_string(tensor.dtype),
                 fmt::join(tensor.shape, ", "));
  const char* comma = "";
  for (const Piece& piece : tensor.pieces) {
    fmt::format_to(out, "{}[{}, {}, {}, {}]", comma, piece.file, piece.begin, piece.count,
                   piece.offset);
    comma = ", ";
  }
  fmt::format_to(out, "]}}");
}

// The shortest text that is read as the same number. "-0" would be a whole number, which is 0.
std::string json_number(double value) {
  return value == 0 && std::signbit(value) ? "-0.0" : fmt::format("{}", value);
}

void print_optimizer(TextOut out, const Optimizer& optimizer) {
  fmt::format_to(out, R"({{"rule": {}, "steps": {}, "groups": [)", json_string(optimizer.rule),
                 optimizer.steps);
  const char* comma = "";
  for (const Group& group : optimizer.groups) {
    fmt::format_to(
        out,
        R"({}{{"learning_rate": {}, "beta1": {}, "beta2": {}, "epsilon": {}, )"
        R"("weight_decay": {}{}}})",
        comma, json_number(group.learning_rate), json_number(group.beta1), json_number(group.beta2),
        json_number(group.epsilon), json_number(group.weight_decay),
        group.lr_decay == 0 ? std::string() : R"(, "lr_decay": )" + json_number(group.lr_decay));
    comma = ", ";
  }
  fmt::format_to(out, "]");
  comma = "";
  for (const auto& [param, steps] : optimizer.param_steps) {
    fmt::format_to(out, "{}{}: {}", *comma == 0 ? R"(, "param_steps": {)" : comma,
                   json_string(param), steps);
    comma = ", ";
  }
  fmt::format_to(out, "{}}}", optimizer.param_steps.empty() ? "" : "}");
}

// "files": [ one line per element ]
template <class T>
void print_lines(TextOut out, const char* key, const std::vector<T>& values,
                 void (*print)(TextOut, const T&)) {
  fmt::format_to(out, "\"{}\": [", key);
  const char* separator = "\n  ";
  for (const T& value : values) {
    fmt::format_to(out, "{}", separator);
    print(out, value);
    separator = ",\n  ";
  }
  fmt::format_to(out, "{}]", values.empty() ? "" : "\n");
}

// The last lines, which have the checksum of all before them.
std::string crc_lines(std::string_view text) {
  return fmt::format("\"crc\": \"{:08x}\"\n}}\n", kernels::crc32c(text.data(), text.size()));
}

}  // namespace

uint32_t element_bytes(std::string_view dtype) {
  return safetensors_element_bytes(dtype);
}

std::string to_json(const Manifest& manifest) {
  std::string text;
  TextOut out(text);
  fmt::format_to(out, "{{\n\"format\": \"meron-checkpoint\",\n\"version\": {},\n\"id\": {},\n",
                 manifest.version, json_string(manifest.id));
  fmt::format_to(out, "\"name\": {},\n\"step\": {},\n\"created\": {},\n\"writer\": {},\n",
                 json_string(manifest.name), manifest.step, json_string(manifest.origin.created),
                 json_string(manifest.origin.writer));
  fmt::format_to(out, "\"world\": {},\n\"nodes\": {},\n\"complete\": {},\n\"block_bytes\": {},\n",
                 manifest.origin.world, manifest.origin.nodes, manifest.complete,
                 manifest.block_bytes);
  fmt::format_to(out, "\"plan\": {},\n\"extra\": {},\n", manifest.origin.plan, manifest.extra);
  print_lines(out, "optimizers", manifest.optimizers, print_optimizer);
  text += ",\n";
  print_lines(out, "files", manifest.files, print_file);
  text += ",\n";
  print_lines(out, "tensors", manifest.tensors, print_tensor);
  text += ",\n";
  text += crc_lines(text);
  return text;
}

Status check_manifest_crc(std::string_view text) {
  const size_t length = crc_lines("").size();
  const std::string_view before = text.substr(0, text.size() - std::min(length, text.size()));
  if (text.substr(before.size()) == crc_lines(before)) return Ok{};
  return Error(MERON_E_CORRUPT,
               "the manifest was changed after it was written, or is damaged: its checksum differs",
               "copy the checkpoint anew, or load another one")
      .on(std::string(kManifestFile));
}

Result<std::string> object_text(std::string_view text, std::string subject) {
  MERON_ASSIGN(const JsonText json,
               JsonText::parse(text, std::move(subject),
                               {.bytes = kMaxManifest, .depth = kMaxManifestDepth - 1}));
  return json.root().object_text();
}

}  // namespace meron::checkpoint
