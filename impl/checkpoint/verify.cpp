// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "checkpoint/file_steps.h"
#include "checkpoint/open_files.h"
#include "kernels/cpu/crc32c.h"
#include "os/direct_file.h"
#include "os/directory.h"
#include "os/system_error.h"

namespace meron::checkpoint {
namespace {

constexpr uint64_t kVerifyPiece = 4 << 20;

std::string words_for(const Tensor& tensor) {
  return tensor.kind == "values" ? tensor.name : fmt::format("{} of {}", tensor.kind, tensor.name);
}

// Names of the tensors that have bytes in [begin, end) of a file.
std::vector<std::string> tensors_in(const Manifest& manifest, uint32_t file, uint64_t begin,
                                    uint64_t end) {
  std::vector<std::string> names;
  for (const Tensor& tensor : manifest.tensors) {
    const uint64_t width = element_bytes(tensor.dtype);
    const bool touched =
        std::any_of(tensor.pieces.begin(), tensor.pieces.end(), [&](const Piece& piece) {
          return piece.file == file && piece.count > 0 && piece.offset < end &&
                 piece.offset + piece.count * width > begin;
        });
    if (!touched) continue;
    names.push_back(words_for(tensor));
  }
  return names;
}

// "what", without the subject, which the damage has by itself.
std::string words_of(const Error& error) {
  return error.info().what;
}

class Verifier {
 public:
  Verifier(const Checkpoint& checkpoint, const std::function<void(uint64_t)>& progress)
      : checkpoint_(checkpoint),
        manifest_(checkpoint.manifest),
        progress_(progress),
        not_finite_(checkpoint.manifest) {}

  Result<Verified> run() {
    MERON_TRY(find_absent_nodes());
    if (!checkpoint_.foreign) MERON_TRY(manifest());
    for (uint32_t f = 0; f < manifest_.files.size(); ++f) {
      const auto& nodes = out_.absent_nodes;
      if (std::find(nodes.begin(), nodes.end(), manifest_.files[f].node) == nodes.end()) file(f);
    }
    for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
      const NotFinite& found = not_finite_.counts()[t];
      if (found.count() > 0) out_.not_finite.push_back({words_for(manifest_.tensors[t]), found});
    }
    return std::move(out_);
  }

 private:
  // If each node saved on its own disk, this directory may have the files of some nodes.
  Status find_absent_nodes() {
    if (manifest_.origin.nodes <= 1) return Ok{};
    MERON_ASSIGN(const std::vector<uint32_t> there, nodes_there(checkpoint_.path, manifest_));
    const std::vector<uint32_t> nodes = nodes_of(manifest_);
    // All of them are missing, unless this may be the directory of a node that has none.
    if (there.empty() && nodes.size() == manifest_.origin.nodes) return Ok{};
    for (const uint32_t node : nodes) {
      if (!std::binary_search(there.begin(), there.end(), node)) out_.absent_nodes.push_back(node);
    }
    return Ok{};
  }
  // parse_manifest() does not compare its checksum.
  Status manifest() {
    const std::string name(kManifestFile);
    MERON_ASSIGN(const std::string text,
                 checkpoint_.held ? checkpoint_.held->read(name, kMaxManifest)
                                  : read_beneath_step(checkpoint_.directory(), name, kMaxManifest));
    const Status intact = check_manifest_crc(text);
    if (intact.ok()) return intact;
    out_.damages.push_back({.file = name,
                            .offset = 0,
                            .bytes = text.size(),
                            .what = words_of(intact.error()),
                            .tensors = {}});
    return Ok{};
  }
  void file(uint32_t number) {
    const File& file = manifest_.files[number];
    auto opened = open_checked(files_at(checkpoint_), file);
    if (!opened.ok()) return damage(number, 0, file.bytes, words_of(opened.error()));
    for (uint64_t at = 0, block = 0; at < file.bytes; at += manifest_.block_bytes, ++block) {
      const uint64_t bytes = std::min(manifest_.block_bytes, file.bytes - at);
      const auto crc = checksum(*opened, number, at, bytes);
      if (!crc.ok()) return damage(number, at, file.bytes - at, words_of(crc.error()));
      out_.bytes += bytes;
      ++out_.blocks;
      if (checkpoint_.foreign || *crc == file.crc[block]) continue;
      damage(number, at, bytes,
             fmt::format("the checksum is {:08x}, and by the manifest it is {:08x}", *crc,
                         file.crc[block]));
    }
  }
  Result<uint32_t> checksum(const DirectFile& file, uint32_t number, uint64_t offset,
                            uint64_t bytes) {
    buffer_.resize(std::min(bytes, kVerifyPiece));
    uint32_t crc = 0;
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t now = std::min<uint64_t>(buffer_.size(), bytes - done);
      const int64_t got = read_at(file.buffered_fd(), buffer_.data(), now, offset + done);
      if (got == -EINTR) continue;
      if (got <= 0) {
        return system_error(fmt::format("cannot read at byte {}", offset + done),
                            got == 0 ? EIO : static_cast<int>(-got));
      }
      crc = kernels::crc32c(buffer_.data(), static_cast<size_t>(got), crc);
      not_finite_.take(number, offset + done, buffer_.data(), static_cast<uint64_t>(got));
      done += static_cast<uint64_t>(got);
      progress_(static_cast<uint64_t>(got));
    }
    return crc;
  }
  void damage(uint32_t file, uint64_t offset, uint64_t bytes, std::string what) {
    out_.damages.push_back({.file = manifest_.files[file].name,
                            .offset = offset,
                            .bytes = bytes,
                            .what = std::move(what),
                            .tensors = tensors_in(manifest_, file, offset, offset + bytes)});
  }

  const Checkpoint& checkpoint_;
  const Manifest& manifest_;
  const std::function<void(uint64_t)>& progress_;
  std::vector<std::byte> buffer_;
  NotFiniteByTensor not_finite_;
  Verified out_;
};

}  // namespace

Result<Manifest> read_manifest(const std::string& directory) {
  const std::string name(kManifestFile);
  MERON_ASSIGN(const std::string text, read_beneath_step(directory, name, kMaxManifest));
  auto manifest = parse_manifest(text);
  if (manifest.ok()) return manifest;
  return Error(manifest.error()).on(fmt::format("{}/{}", directory, name));
}

Result<Verified> verify(const Checkpoint& checkpoint,
                        const std::function<void(uint64_t)>& progress) {
  return Verifier(checkpoint, progress).run();
}

}  // namespace meron::checkpoint
