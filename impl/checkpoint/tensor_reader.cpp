// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/open_files.h"
#include "kernels/cpu/crc32c.h"
#include "os/system_error.h"
#include "plan/text.h"

namespace meron::checkpoint {
namespace {

constexpr size_t kOpenFiles = 32;
constexpr size_t kKeptBlocks = 4;

uint64_t elements_of(const Tensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t size : tensor.shape) count *= size;
  return count;
}

}  // namespace

TensorReader::TensorReader(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {
  for (const Tensor& tensor : manifest().tensors) {
    tensors_.emplace(std::pair<std::string_view, std::string_view>(tensor.kind, tensor.name),
                     &tensor);
  }
}

Status TensorReader::hold() {
  if (!checkpoint_.held) return Ok{};
  for (const File& file : manifest().files) {
    MERON_ASSIGN(const auto there, checkpoint_.held->look_at(file.name));
    // If each node has a directory, the files of other nodes are elsewhere.
    if (!there && manifest().origin.nodes > 1 && checkpoint_.held->in_place()) continue;
    MERON_TRY(checkpoint_.held->hold(file.name));
  }
  return Ok{};
}

const Tensor* TensorReader::find(std::string_view kind, std::string_view name) const {
  const auto at = tensors_.find({kind, name});
  return at == tensors_.end() ? nullptr : at->second;
}

Result<const DirectFile*> TensorReader::open(uint32_t file) {
  for (auto it = opened_.begin(); it != opened_.end(); ++it) {
    if (it->file != file) continue;
    opened_.splice(opened_.begin(), opened_, it);
    return &it->io;
  }
  MERON_ASSIGN(DirectFile io, open_checked(files_at(checkpoint_), manifest().files[file]));
  if (opened_.size() == kOpenFiles) opened_.pop_back();
  opened_.push_front({file, std::move(io)});
  return &opened_.front().io;
}

Status TensorReader::read_bytes(uint32_t file, uint64_t offset, uint64_t bytes, std::byte* out) {
  MERON_ASSIGN(const DirectFile* const io, open(file));
  for (uint64_t done = 0; done < bytes;) {
    const int64_t got = read_at(io->buffered_fd(), out + done, bytes - done, offset + done);
    if (got == -EINTR) continue;
    if (got < 0) {
      return system_error(fmt::format("cannot read at byte {}", offset + done),
                          static_cast<int>(-got))
          .on(io->path());
    }
    if (got == 0) {
      return Error(MERON_E_CORRUPT, fmt::format("the file ends at byte {}", offset + done),
                   "it was cut: copy it anew, or load another checkpoint")
          .on(io->path());
    }
    done += static_cast<uint64_t>(got);
  }
  read_.fetch_add(bytes, std::memory_order_relaxed);
  return Ok{};
}

Result<const TensorReader::Block*> TensorReader::block(uint32_t file, uint64_t number) {
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    if (it->file != file || it->number != number) continue;
    blocks_.splice(blocks_.begin(), blocks_, it);
    return &blocks_.front();
  }
  const File& of = manifest().files[file];
  const uint64_t size = manifest().block_bytes, begin = number * size;
  Block made;
  if (blocks_.size() == kKeptBlocks) {
    made = std::move(blocks_.back());
    blocks_.pop_back();
  }
  made.file = file;
  made.number = number;
  made.data.resize(std::min(size, of.bytes - begin));
  MERON_TRY(read_bytes(file, begin, made.data.size(), made.data.data()));
  const uint32_t found = kernels::crc32c(made.data.data(), made.data.size());
  if (found != of.crc[number]) {
    return Error(MERON_E_CORRUPT,
                 fmt::format("the block at byte {} has checksum {:08x}, and by the manifest {:08x}",
                             begin, found, of.crc[number]),
                 "load another checkpoint")
        .on(fmt::format("{}/{}", checkpoint_.directory(), of.name));
  }
  blocks_.push_front(std::move(made));
  return &blocks_.front();
}

Status TensorReader::read_piece(uint32_t file, uint64_t offset, uint64_t bytes, std::byte* out) {
  if (checkpoint_.foreign) return read_bytes(file, offset, bytes, out);
  for (const uint64_t size = manifest().block_bytes; bytes > 0;) {
    MERON_ASSIGN(const Block* const from, block(file, offset / size));
    const uint64_t at = offset % size;
    const uint64_t count = std::min(bytes, from->data.size() - at);
    std::memcpy(out, from->data.data() + at, count);
    out += count;
    offset += count;
    bytes -= count;
  }
  return Ok{};
}

Status TensorReader::read(std::string_view kind, std::string_view name, uint64_t begin,
                          uint64_t count, std::byte* out, uint64_t bytes) {
  const Tensor* const tensor = find(kind, name);
  if (tensor == nullptr) {
    return Error(MERON_E_NOT_FOUND, fmt::format("it has no {} of {}", kind, in_quotes(name)),
                 "look at its manifest for those that it has")
        .on(checkpoint_.path);
  }
  const uint64_t size = element_bytes(tensor->dtype), all = elements_of(*tensor);
  const auto refused = [&](std::string what, std::string advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), std::move(advice)).on(tensor->name);
  };
  if (begin > all || count > all - begin) {
    return refused(fmt::format("{} elements from {} on are outside of its {}", count, begin, all),
                   "request a slice of the tensor, row-major");
  }
  if (bytes != count * size) {
    return refused(fmt::format("{} elements of {} have {} bytes, room is given for {}", count,
                               tensor->dtype, count * size, bytes),
                   "give room for as many elements as are read");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto piece =
      std::upper_bound(tensor->pieces.begin(), tensor->pieces.end(), begin,
                       [](uint64_t first, const Piece& each) { return first < each.begin; });
  if (piece != tensor->pieces.begin()) --piece;
  for (; piece != tensor->pieces.end() && piece->begin < begin + count; ++piece) {
    const uint64_t low = std::max(begin, piece->begin);
    const uint64_t high = std::min(begin + count, piece->begin + piece->count);
    if (low >= high) continue;
    Status done = read_piece(piece->file, piece->offset + (low - piece->begin) * size,
                             (high - low) * size, out + (low - begin) * size);
    if (done.ok()) continue;
    Error error = std::move(done).error();
    error.info().what = fmt::format("{} of {}: {}", kind, in_quotes(name), error.info().what);
    return error;
  }
  return Ok{};
}

}  // namespace meron::checkpoint
