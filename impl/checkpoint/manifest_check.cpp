// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>
#include <utility>

#include "plan/model_desc.h"
#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron::checkpoint {
namespace {

Error contradiction(JsonValue place, std::string_view what) {
  return place.error(MERON_E_CORRUPT, what,
                     "the manifest is damaged: load another checkpoint, or fetch this one anew");
}

std::string shown(const Tensor& tensor) {
  return fmt::format("{} of kind {}", in_quotes(tensor.name), tensor.kind);
}

// The indices 0 to size - 1 in the order of `less`. Sorting, and not hashing: no choice of names
// makes it slow.
template <class Less>
std::vector<uint32_t> sorted_indices(size_t size, Less less) {
  std::vector<uint32_t> indices(size);
  std::iota(indices.begin(), indices.end(), 0u);
  std::stable_sort(indices.begin(), indices.end(), less);
  return indices;
}

Status check_nodes(const Manifest& manifest, const std::vector<JsonValue>& places) {
  constexpr uint32_t kUnknown = UINT32_MAX;
  std::vector<uint32_t> node_of(manifest.origin.world, kUnknown);
  for (size_t i = 0; i < places.size(); ++i) {
    const File& file = manifest.files[i];
    uint32_t& node = node_of[file.rank];
    if (node != kUnknown && node != file.node) {
      return contradiction(
          places[i], fmt::format("rank {} is on node {} here and on node {} before", file.rank,
                                 file.node, node));
    }
    node = file.node;
  }
  return Ok{};
}

// "residual.3" and "extra.3" are of rank 3.
Status check_rank_of_kind(const Tensor& tensor, uint32_t world, JsonValue place) {
  const size_t dot = tensor.kind.find('.');
  if (dot == std::string::npos || tensor.kind.starts_with("state.")) return Ok{};
  uint32_t rank = 0;  // valid_kind() has seen a number that fits
  std::from_chars(tensor.kind.data() + dot + 1, tensor.kind.data() + tensor.kind.size(), rank);
  if (rank < world) return Ok{};
  return contradiction(place, fmt::format("tensor {} is of rank {}, and the world has {} ranks",
                                          shown(tensor), rank, world));
}

Status check_piece(const Manifest& manifest, const Tensor& tensor, const Piece& piece, bool aligned,
                   JsonValue place) {
  if (piece.file >= manifest.files.size()) {
    return contradiction(place,
                         fmt::format("tensor {} has a piece in file {}, and there are {} files",
                                     shown(tensor), piece.file, manifest.files.size()));
  }
  const File& file = manifest.files[piece.file];
  const uint32_t size = element_bytes(tensor.dtype);
  if (aligned && piece.offset % size != 0) {
    return contradiction(place,
                         fmt::format("tensor {} begins at byte {} of file {}, which is no "
                                     "multiple of the {} bytes of an element",
                                     shown(tensor), piece.offset, in_quotes(file.name), size));
  }
  // The count is at most kMaxElements.
  if (piece.offset > file.bytes || piece.count * size > file.bytes - piece.offset) {
    return contradiction(
        place,
        fmt::format("tensor {} has {} elements at byte {} of file {}, which has "
                    "only {} bytes",
                    shown(tensor), piece.count, piece.offset, in_quotes(file.name), file.bytes));
  }
  return Ok{};
}

Status check_pieces(const Manifest& manifest, const Tensor& tensor, bool aligned, JsonValue place) {
  MERON_ASSIGN(const uint64_t elements, element_count(tensor.shape));
  uint64_t covered = 0;
  for (const Piece& piece : tensor.pieces) {
    if (piece.begin != covered) {
      return contradiction(
          place, fmt::format("tensor {} has a piece from element {}, where {} was expected: {}",
                             shown(tensor), piece.begin, covered,
                             piece.begin < covered ? "pieces overlap" : "there is a gap"));
    }
    if (piece.count > elements - covered) {
      return contradiction(place, fmt::format("tensor {} has {} elements, and pieces with more",
                                              shown(tensor), elements));
    }
    if (piece.count == 0 && (elements > 0 || tensor.pieces.size() > 1)) {
      return contradiction(place,
                           fmt::format("tensor {} has a piece without elements", shown(tensor)));
    }
    MERON_TRY(check_piece(manifest, tensor, piece, aligned, place));
    covered += piece.count;
  }
  if (covered == elements) return Ok{};
  return contradiction(place, fmt::format("tensor {} has {} elements, and pieces with {}",
                                          shown(tensor), elements, covered));
}

// Length field and header of a file, padded to a page.
constexpr uint64_t kLongestHead =
    kSafetensorsLengthBytes + kMaxSafetensorsHeader + (uint64_t{1} << 16);

// Bytes [begin, end) of a file that a piece of a tensor has.
struct PieceBytes {
  uint32_t file, tensor;
  uint64_t begin, end;
};

std::vector<PieceBytes> bytes_of_pieces(const Manifest& manifest) {
  std::vector<PieceBytes> out;
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) {
    const Tensor& tensor = manifest.tensors[i];
    for (const Piece& piece : tensor.pieces) {
      const uint64_t bytes = piece.count * element_bytes(tensor.dtype);
      out.push_back({piece.file, i, piece.offset, piece.offset + bytes});
    }
  }
  std::sort(out.begin(), out.end(), [](const PieceBytes& a, const PieceBytes& b) {
    return std::tie(a.file, a.begin, a.end) < std::tie(b.file, b.begin, b.end);
  });
  return out;
}

}  // namespace

Status check_manifest_files(const Manifest& manifest, const std::vector<JsonValue>& places,
                            bool checksums) {
  uint64_t blocks = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const File& file = manifest.files[i];
    const uint64_t needed = checksums ? blocks_of(file.bytes, manifest.block_bytes) : 0;
    if (file.crc.size() != needed) {
      return contradiction(places[i],
                           fmt::format("file {} has {} bytes, which are {} blocks, and {} "
                                       "checksums",
                                       in_quotes(file.name), file.bytes, needed, file.crc.size()));
    }
    blocks += needed;
    if (file.name == kManifestFile) {
      return contradiction(places[i], fmt::format("{} is the manifest itself", kManifestFile));
    }
  }
  if (blocks > kMaxBlocks) {
    return contradiction(places.back(), fmt::format("all files have {} blocks, more than the limit "
                                                    "of {}",
                                                    blocks, kMaxBlocks));
  }
  const auto name = [&](uint32_t i) -> std::string_view { return manifest.files[i].name; };
  const auto order =
      sorted_indices(places.size(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (name(order[i - 1]) != name(order[i])) continue;
    return contradiction(places[order[i]],
                         fmt::format("file {} is given twice", in_quotes(name(order[i]))));
  }
  return check_nodes(manifest, places);
}

Status check_manifest_tensors(const Manifest& manifest, const std::vector<JsonValue>& places,
                              bool aligned) {
  size_t pieces = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const Tensor& tensor = manifest.tensors[i];
    pieces += tensor.pieces.size();
    if (pieces > kMaxPieces) {
      return contradiction(places[i],
                           fmt::format("all tensors have more than {} pieces", kMaxPieces));
    }
    MERON_TRY(check_rank_of_kind(tensor, manifest.origin.world, places[i]));
    MERON_TRY(check_pieces(manifest, tensor, aligned, places[i]));
  }
  const auto key = [&](uint32_t i) {
    return std::tie(manifest.tensors[i].name, manifest.tensors[i].kind);
  };
  const auto order =
      sorted_indices(places.size(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (key(order[i - 1]) != key(order[i])) continue;
    return contradiction(places[order[i]], fmt::format("tensor {} is given twice",
                                                       shown(manifest.tensors[order[i]])));
  }
  return Ok{};
}

Status check_manifest_bytes(const Manifest& manifest, const std::vector<JsonValue>& places) {
  const std::vector<PieceBytes> pieces = bytes_of_pieces(manifest);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PieceBytes& piece = pieces[i];
    const File& file = manifest.files[piece.file];
    const auto refused = [&](std::string_view why) {
      return contradiction(places[piece.tensor],
                           fmt::format("tensor {} has bytes {} to {} of file {}: {}",
                                       shown(manifest.tensors[piece.tensor]), piece.begin,
                                       piece.end, in_quotes(file.name), why));
    };
    if (i > 0 && pieces[i - 1].file == piece.file && pieces[i - 1].end != piece.begin) {
      const PieceBytes& before = pieces[i - 1];
      const std::string other = shown(manifest.tensors[before.tensor]);
      return refused(fmt::format(
          "{} tensor {}, which ends at byte {}",
          piece.begin < before.end ? "they overlap" : "there is a hole behind", other, before.end));
    }
    const bool first = i == 0 || pieces[i - 1].file != piece.file;
    if (first && (piece.begin < kSafetensorsLengthBytes || piece.begin > kLongestHead)) {
      return refused("that is not where the header of a safetensors file ends");
    }
    const bool last = i + 1 == pieces.size() || pieces[i + 1].file != piece.file;
    if (last && piece.end != file.bytes) {
      return refused(fmt::format("nothing follows them, and the file has {} bytes", file.bytes));
    }
  }
  return Ok{};
}

}  // namespace meron::checkpoint
