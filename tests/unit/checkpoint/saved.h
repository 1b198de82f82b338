// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose every byte follows from a seed, saved and read back as a rank would.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../io/disk.h"
#include "checkpoint/block_reader.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/commit.h"
#include "checkpoint/directory.h"

namespace meron::test {

using Content = std::vector<std::byte>;

inline Content content_of(uint64_t seed, uint64_t bytes) {
  std::mt19937_64 random(seed);
  Content content(bytes);
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t drawn = random();
    std::memcpy(content.data() + at, &drawn, std::min<uint64_t>(sizeof drawn, bytes - at));
  }
  return content;
}

inline std::shared_ptr<checkpoint::Staging> make_staging(uint64_t block = 16 << 10,
                                                         size_t blocks = 3,
                                                         const IoOptions& options = {}) {
  auto engine = IoEngine::create(options);
  EXPECT_TRUE(engine.ok());
  auto staging = checkpoint::Staging::create(*engine, block, blocks);
  EXPECT_TRUE(staging.ok());
  return *staging;
}

inline constexpr uint64_t kTestBlock = checkpoint::kMinBlock;

// Writes it in pieces of a length that fits neither blocks nor pages.
inline Result<std::vector<uint32_t>> write_content(
    const std::shared_ptr<checkpoint::Staging>& staging, const std::string& path,
    const Content& content, uint64_t block_bytes = kTestBlock, uint64_t piece = 100'003) {
  MERON_ASSIGN(auto writer,
               checkpoint::BlockWriter::create(
                   staging, path, {.total_bytes = content.size(), .block_bytes = block_bytes}));
  for (uint64_t at = 0; at < content.size();) {
    MERON_ASSIGN(const auto room, writer->space(piece));
    std::memcpy(room.data(), content.data() + at, room.size());
    MERON_TRY(writer->commit(room.size()));
    at += room.size();
  }
  return writer->finish();
}

// The range's bytes.
inline Result<Content> read_range(checkpoint::BlockReader& reader) {
  Content content;
  while (true) {
    MERON_ASSIGN(const auto piece, reader.next());
    if (piece.empty()) return content;
    content.insert(content.end(), piece.begin(), piece.end());
  }
}

inline std::vector<checkpoint::WantedRange> all_of(const std::vector<checkpoint::File>& files) {
  std::vector<checkpoint::WantedRange> ranges;
  for (uint32_t i = 0; i < files.size(); ++i) {
    ranges.push_back({.file = i, .offset = 0, .bytes = files[i].bytes});
  }
  return ranges;
}

inline const std::vector<uint64_t>& file_sizes() {
  static const std::vector<uint64_t> sizes = {kTestBlock + 4097, 12'345};
  return sizes;
}

inline checkpoint::Manifest make_manifest(const std::string& name, uint64_t step) {
  checkpoint::Manifest manifest;
  manifest.id = "0123456789abcdef0123456789abcdef";
  manifest.name = name;
  manifest.step = step;
  manifest.origin.created = fmt::format("2026-11-25T{:02}:{:02}:00Z", step / 60 % 24, step % 60);
  manifest.origin.writer = "meron test";
  manifest.origin.plan = "{}";
  manifest.extra = "{}";
  return manifest;
}

inline void add_file(checkpoint::Manifest& manifest, const std::string& name, uint64_t bytes,
                     std::vector<uint32_t> crc, uint32_t node = 0) {
  const auto file = static_cast<uint32_t>(manifest.files.size());
  manifest.files.push_back(
      {.name = name, .rank = file, .node = node, .bytes = bytes, .crc = std::move(crc)});
  manifest.origin.world = std::max(manifest.origin.world, file + 1);
  checkpoint::Tensor tensor;
  tensor.name = "tensor-" + name;
  tensor.kind = "values";
  tensor.dtype = "U8";
  // The first eight bytes stand for the header.
  const uint64_t head = std::min<uint64_t>(bytes, 8);
  tensor.shape = {bytes - head};
  if (bytes > head) {
    tensor.pieces = {{.file = file, .begin = 0, .count = bytes - head, .offset = head}};
  }
  manifest.tensors.push_back(tensor);
}

// Saves a checkpoint whose content follows from `step`.
inline Status save(const std::shared_ptr<checkpoint::Staging>& staging, const std::string& root,
                   const std::string& name, uint64_t step, bool overwrite = false,
                   std::vector<std::string>* warnings = nullptr) {
  MERON_ASSIGN(auto saving, checkpoint::Saving::begin(root, name, {.overwrite = overwrite}));
  checkpoint::Manifest manifest = make_manifest(name, step);
  for (size_t i = 0; i < file_sizes().size(); ++i) {
    const std::string file = fmt::format("rank-{}.safetensors", i);
    MERON_ASSIGN(auto crc, write_content(staging, saving->directory() + "/" + file,
                                         content_of(step * 10 + i, file_sizes()[i])));
    add_file(manifest, file, file_sizes()[i], std::move(crc));
  }
  MERON_TRY(saving->commit(checkpoint::to_json(manifest)));
  if (warnings != nullptr) *warnings = saving->warnings();
  return Ok{};
}

// Whether all bytes are those of its step.
inline Status check_whole(const std::shared_ptr<checkpoint::Staging>& staging,
                          const checkpoint::Checkpoint& saved) {
  const auto& files = saved.manifest.files;
  MERON_ASSIGN(auto reader, checkpoint::BlockReader::create(
                                staging, saved.path, files, all_of(files),
                                {.block_bytes = saved.manifest.block_bytes, .held = saved.held}));
  for (size_t i = 0; i < files.size(); ++i) {
    MERON_ASSIGN(const Content content, read_range(*reader));
    if (content != content_of(saved.manifest.step * 10 + i, file_sizes()[i])) {
      return Error(MERON_E_CORRUPT, "other bytes were read than saved").on(files[i].name);
    }
  }
  return Ok{};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline void flip_bit(const std::string& path, uint64_t offset, int bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  char byte = 0;
  file.get(byte);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ (1 << bit)));
}

}  // namespace meron::test
