// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint: which tensors it has, in which files their pieces are, and the
// checksums of the files. Pure: text in, text out. docs/checkpoint-format.md is the specification.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meron::checkpoint {

inline constexpr uint32_t kVersion = 2;
inline constexpr size_t kMaxManifest = size_t{64} << 20;  // bytes
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxPieces = 4'000'000;
inline constexpr uint32_t kMaxManifestDepth = 8;  // of brackets; counts those of `extra`
inline constexpr uint64_t kMinBlock = 128 << 10;  // bytes; a block is a power of two
inline constexpr uint64_t kMaxBlock = 1 << 30;
inline constexpr uint64_t kMaxBlocks = 1 << 20;  // of all files
inline constexpr std::string_view kManifestFile = "meron.json";

// Dtypes that files may hold, as safetensors names them: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32
// U16 U8 BOOL F8_E4M3 F8_E5M2. The size of an element in bytes; 0: unknown.
uint32_t element_bytes(std::string_view dtype);

// Number of checksums of a file of this size.
constexpr uint64_t blocks_of(uint64_t bytes, uint64_t block_bytes) {
  return bytes / block_bytes + (bytes % block_bytes == 0 ? 0 : 1);
}

// Elements [begin, begin + count) of a tensor, row-major, at byte `offset` of a file. Only a tensor
// without elements may have a piece without elements.
struct Piece {
  uint32_t file = 0;  // index in Manifest::files
  uint64_t begin = 0, count = 0;
  uint64_t offset = 0;

  bool operator==(const Piece&) const = default;
};

// `kind` is one of "values", "master", "exp_avg", "exp_avg_sq", "residual.<replica>",
// "gradient", "state.<key>" (another state of an optimizer), or, of the caller, "extra" (one for
// all ranks) and "extra.<rank>".
struct Tensor {
  std::string name;
  std::string kind;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<Piece> pieces;  // ascending, without gaps and overlaps, from 0 to all elements

  bool operator==(const Tensor&) const = default;
};

struct File {
  std::string name;   // one component, no '/', not hidden
  uint32_t rank = 0;  // that wrote it
  uint32_t node = 0;  // where that rank was
  uint64_t bytes = 0;
  std::vector<uint32_t>
      crc;  // CRC-32C of each block of Manifest::block_bytes; the last may be short

  bool operator==(const File&) const = default;
};

struct Group {
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double lr_decay = 0;  // format version 2 if it is not 0
  bool operator==(const Group&) const = default;
};

struct Optimizer {
  std::string rule;  // "adamw", "adam", "adagrad", "lion", "sgd"
  uint64_t steps = 0;
  std::vector<Group> groups;
  // By name: counts of steps that differ from `steps`. Format version 2.
  std::map<std::string, uint64_t, std::less<>> param_steps = {};

  bool operator==(const Optimizer&) const = default;
};

// Who saved it.
struct Origin {
  std::string created;  // "2026-11-25T08:00:00Z"
  std::string writer;   // "meron 0.2.0"
  uint32_t world = 1;
  uint32_t nodes = 1;  // > 1: each node's directory holds the files of its ranks only
  std::string plan;    // JSON text of the plan

  bool operator==(const Origin&) const = default;
};

struct Manifest {
  uint32_t version = 1;  // the oldest that has all keys that are used
  std::string id;        // 32 hexadecimal digits, random, also in the header of every file
  std::string name;      // of the checkpoint
  uint64_t step = 0;     // the caller's count
  Origin origin;
  uint64_t block_bytes = kMinBlock;
  bool complete = true;  // false: values only ("weights_only"), or frozen params left out
  std::vector<File> files;
  std::vector<Tensor> tensors;
  std::vector<Optimizer> optimizers;
  std::string extra;  // the caller's JSON text, an object; "{}" where none was given

  bool operator==(const Manifest&) const = default;
};

// Text that parse_manifest() reads back to an equal value. One line per file and tensor. `plan` and
// `extra` must be JSON objects as object_text() gives them; what the manifest says is not checked
// here, so a writer that took it from elsewhere parses its own text.
std::string to_json(const Manifest& manifest);

// Checks that the text is as to_json() made it, byte by byte: its last lines have the checksum of
// those before them. MERON_E_CORRUPT.
Status check_manifest_crc(std::string_view text);

// The JSON object in `text` as Manifest keeps it: compact, and shallow enough for a manifest.
// Errors are about `subject`.
Result<std::string> object_text(std::string_view text, std::string subject);

// The list "optimizers" of a manifest, by itself: the text of a JSON array. Errors as those of
// parse_manifest().
Result<std::vector<Optimizer>> parse_optimizers(std::string_view text);

// Strict, but for `crc`, which is not compared. MERON_E_VERSION: a version above kVersion.
// MERON_E_PARSE: text that has not the form of a manifest: unknown, missing or duplicate keys,
// values of another type or out of their limits. MERON_E_CORRUPT: a manifest that contradicts
// itself: pieces that overlap, leave gaps or are outside of their file, bytes of a file behind its
// first piece that belong to no piece or to two, tensors or files given twice, names that leave the
// directory, another number of checksums than of blocks. Errors name line and key. Every piece's
// offset is a multiple of its element's size. Time is linear but for sorting, and nothing is
// allocated by a number in the text.
//
// `checksums`: false for the description of files that have none, as hf_source.h gives it.
Result<Manifest> parse_manifest(std::string_view text, bool checksums = true);

}  // namespace meron::checkpoint
