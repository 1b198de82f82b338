// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "checkpoint/manifest.h"
#include "plan_fuzz.h"

namespace {

using namespace meron::checkpoint;

// The parser's promises for a manifest that it accepts, computed in another way: every byte of the
// pieces is inside its file, and no two pieces share one.
void require_disjoint(const Manifest& manifest) {
  struct Bytes {
    uint32_t file;
    uint64_t begin, end;
  };
  std::vector<Bytes> all;
  for (const Tensor& tensor : manifest.tensors) {
    for (const Piece& piece : tensor.pieces) {
      const uint64_t bytes = piece.count * element_bytes(tensor.dtype);
      meron::require(piece.file < manifest.files.size(), "a piece has a file");
      meron::require(piece.offset + bytes >= bytes, "a piece's end is a number");
      meron::require(piece.offset + bytes <= manifest.files[piece.file].bytes, "a piece fits");
      if (bytes > 0) all.push_back({piece.file, piece.offset, piece.offset + bytes});
    }
  }
  if (all.size() > 1000) return;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool apart =
          all[i].file != all[j].file || all[i].end <= all[j].begin || all[j].end <= all[i].begin;
      meron::require(apart, "no two pieces share a byte");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)checkpoint::check_manifest_crc(input).ok();
  const Result<checkpoint::Manifest> manifest = checkpoint::parse_manifest(input);
  if (!manifest) {
    const meron_status code = manifest.error().code();
    require(code == MERON_E_PARSE || code == MERON_E_CORRUPT || code == MERON_E_VERSION,
            "the code is one of the header's");
    require_good_message(manifest);
    return 0;
  }
  require_disjoint(*manifest);
  const std::string text = to_json(*manifest);
  const Result<checkpoint::Manifest> again = checkpoint::parse_manifest(text);
  require(again.ok() && *again == *manifest, "a manifest survives the way to JSON and back");
  require(checkpoint::check_manifest_crc(text).ok(), "its text has its checksum");
  require(to_json(*again) == text, "an equal manifest has an equal text");
  return 0;
}
