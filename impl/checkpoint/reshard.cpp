// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "checkpoint/block_writer.h"
#include "checkpoint/commit.h"
#include "checkpoint/piece_name.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/staging.h"
#include "os/random.h"
#include "plan/predict.h"

namespace meron::checkpoint {
namespace {

struct NewPiece {
  size_t tensor = 0;
  uint64_t begin = 0, count = 0;
};

struct NewFile {
  File file;
  std::string head;
  std::vector<NewPiece> pieces;
};

uint64_t elements_in(const Tensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t size : tensor.shape) count *= size;
  return count;
}

// Wide elements first, as every file needs them.
std::vector<size_t> ordered(const Manifest& manifest, bool values) {
  std::vector<size_t> order;
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    if ((manifest.tensors[t].kind == "values") == values) order.push_back(t);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return element_bytes(manifest.tensors[a].dtype) > element_bytes(manifest.tensors[b].dtype);
  });
  return order;
}

// Cuts the tensors, one after the other, into `ranks` shares of equal bytes.
std::vector<std::vector<NewPiece>> shares(const Manifest& manifest, bool values, uint32_t ranks) {
  const std::vector<size_t> order = ordered(manifest, values);
  uint64_t total = 0;
  for (const size_t t : order) {
    total += elements_in(manifest.tensors[t]) * element_bytes(manifest.tensors[t].dtype);
  }
  std::vector<std::vector<NewPiece>> out(ranks);
  uint64_t at = 0;  // bytes before the tensor
  uint32_t rank = 0;
  const auto end_of = [&](uint32_t r) {
    return total / ranks * (r + 1) + total % ranks * (r + 1) / ranks;
  };
  for (const size_t t : order) {
    const Tensor& tensor = manifest.tensors[t];
    const uint64_t width = element_bytes(tensor.dtype), all = elements_in(tensor);
    if (all == 0) out[0].push_back({.tensor = t});
    for (uint64_t begin = 0; begin < all;) {
      const uint64_t here = at + begin * width;
      while (rank + 1 < ranks && end_of(rank) < here + width) ++rank;
      const uint64_t room = rank + 1 == ranks ? all : (end_of(rank) - here) / width;
      const uint64_t count = std::min(all - begin, room);
      out[rank].push_back({.tensor = t, .begin = begin, .count = count});
      begin += count;
    }
    at += all * width;
  }
  // Tensors without elements are in no order of widths.
  std::stable_sort(out[0].begin(), out[0].end(), [&](const NewPiece& a, const NewPiece& b) {
    return element_bytes(manifest.tensors[a.tensor].dtype) >
           element_bytes(manifest.tensors[b.tensor].dtype);
  });
  return out;
}

// The new manifest's tensors get the file's pieces.
Result<NewFile> compose_file(const Manifest& from, std::vector<NewPiece> pieces, Manifest* to) {
  NewFile out;
  out.pieces = std::move(pieces);
  std::vector<SafetensorsEntry> entries;
  uint64_t at = 0;
  for (const NewPiece& piece : out.pieces) {
    const Tensor& tensor = from.tensors[piece.tensor];
    const bool complete = piece.count == elements_in(tensor);
    const uint64_t bytes = piece.count * element_bytes(tensor.dtype);
    entries.push_back({.name = piece_name(tensor.kind, tensor.name, piece.begin,
                                          piece.begin + piece.count, complete),
                       .dtype = tensor.dtype,
                       .shape = complete ? tensor.shape : std::vector<uint64_t>{piece.count},
                       .begin = at,
                       .end = at + bytes});
    at += bytes;
  }
  MERON_ASSIGN(out.head, compose_safetensors(entries, file_metadata(to->id)));
  const auto number = static_cast<uint32_t>(to->files.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const NewPiece& piece = out.pieces[i];
    if (piece.count == 0) continue;
    to->tensors[piece.tensor].pieces.push_back({.file = number,
                                                .begin = piece.begin,
                                                .count = piece.count,
                                                .offset = out.head.size() + entries[i].begin});
  }
  out.file.bytes = out.head.size() + at;
  return out;
}

Result<std::string> fresh_id() {
  std::array<std::byte, 16> bytes{};
  MERON_TRY(random_bytes(bytes));
  std::string id;
  for (const std::byte byte : bytes) id += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return id;
}

// The states of a rank or replica keep its number, so the world is at least as large.
uint32_t world_of(const Manifest& manifest, uint32_t ranks) {
  uint32_t world = ranks;
  for (const Tensor& tensor : manifest.tensors) {
    for (const std::string_view prefix : {"residual.", "extra."}) {
      if (!tensor.kind.starts_with(prefix)) continue;
      uint32_t rank = 0;
      std::from_chars(tensor.kind.data() + prefix.size(), tensor.kind.data() + tensor.kind.size(),
                      rank);
      world = std::max(world, rank + 1);
    }
  }
  return world;
}

class Resharding {
 public:
  Resharding(TensorReader& from, const std::function<void(uint64_t)>& progress)
      : from_(from), progress_(progress) {}

  // The manifest but for its checksums, and the files.
  Status lay_out(const ReshardOptions& options) {
    to_ = from_.manifest();
    MERON_ASSIGN(to_.id, fresh_id());
    to_.name = options.name;
    to_.origin.nodes = 1;
    to_.files.clear();
    for (Tensor& tensor : to_.tensors) tensor.pieces.clear();
    to_.origin.world = world_of(to_, options.ranks);
    auto values = shares(to_, true, options.ranks), states = shares(to_, false, options.ranks);
    uint64_t all = 0;
    for (uint32_t rank = 0; rank < options.ranks; ++rank) {
      for (const bool of_values : {true, false}) {
        auto& pieces = (of_values ? values : states)[rank];
        if (pieces.empty()) continue;
        MERON_ASSIGN(NewFile file, compose_file(from_.manifest(), std::move(pieces), &to_));
        file.file.name = fmt::format("{}-{:05}-of-{:05}.safetensors",
                                     of_values ? "values" : "state", rank, options.ranks);
        file.file.rank = rank;
        to_.files.push_back(file.file);
        all += file.file.bytes;
        files_.push_back(std::move(file));
      }
    }
    to_.block_bytes = kMinBlock;
    while (all / to_.block_bytes > kMaxBlocks / 2) to_.block_bytes *= 2;
    return Ok{};
  }

  Status write(const std::string& directory) {
    MERON_ASSIGN(auto engine, IoEngine::create());
    MERON_ASSIGN(const auto staging, Staging::create(std::move(engine)));
    for (size_t f = 0; f < files_.size(); ++f) {
      const NewFile& file = files_[f];
      const WriterOptions writing = {.total_bytes = file.file.bytes,
                                     .block_bytes = to_.block_bytes};
      MERON_ASSIGN(const auto writer,
                   BlockWriter::create(staging, directory + "/" + file.file.name, writing));
      MERON_TRY(write_head(*writer, file.head));
      for (const NewPiece& piece : file.pieces) MERON_TRY(write_piece(*writer, piece));
      MERON_ASSIGN(to_.files[f].crc, writer->finish());
    }
    return Ok{};
  }
  const Manifest& manifest() const { return to_; }

 private:
  static Status write_head(BlockWriter& writer, std::string_view head) {
    while (!head.empty()) {
      MERON_ASSIGN(const std::span<std::byte> room, writer.space(head.size()));
      std::copy_n(reinterpret_cast<const std::byte*>(head.data()), room.size(), room.data());
      MERON_TRY(writer.commit(room.size()));
      head.remove_prefix(room.size());
    }
    return Ok{};
  }
  Status write_piece(BlockWriter& writer, const NewPiece& piece) {
    const Tensor& tensor = from_.manifest().tensors[piece.tensor];
    const uint64_t width = element_bytes(tensor.dtype);
    for (uint64_t at = 0; at < piece.count;) {
      // Offsets are multiples of the width, so room is too.
      MERON_ASSIGN(const std::span<std::byte> room, writer.space((piece.count - at) * width));
      const uint64_t count = room.size() / width;
      MERON_TRY(from_.read(tensor.kind, tensor.name, piece.begin + at, count, room.data(),
                           count * width));
      MERON_TRY(writer.commit(count * width));
      progress_(count * width);
      at += count;
    }
    return Ok{};
  }

  TensorReader& from_;
  const std::function<void(uint64_t)>& progress_;
  Manifest to_;
  std::vector<NewFile> files_;
};

}  // namespace

Status reshard(TensorReader& from, const ReshardOptions& options,
               const std::function<void(uint64_t)>& progress) {
  if (options.ranks == 0 || options.ranks > kMaxPlanRanks) {
    return Error(MERON_E_ARGUMENT, fmt::format("{} ranks are not possible", options.ranks),
                 fmt::format("choose 1 to {}", kMaxPlanRanks));
  }
  Resharding work(from, progress);
  MERON_TRY(work.lay_out(options));
  MERON_ASSIGN(const auto saving,
               Saving::begin(options.root, options.name, {.overwrite = options.overwrite}));
  MERON_TRY(work.write(saving->directory()));
  return saving->commit(to_json(work.manifest()));
}

}  // namespace meron::checkpoint
