// SPDX-License-Identifier: Apache-2.0
#include "saving/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/source.h"
#include "kernels/cpu/accumulate.h"

namespace meron {
namespace {

// Elements of a state in memory at a time: a multiple of kBlock.
constexpr uint64_t kPieceElements = 4096 * kBlock;

DType dtype_of(std::string_view text) {
  if (text == "BF16") return DType::bf16;
  return text == "F16" ? DType::f16 : DType::f32;
}

}  // namespace

Result<std::unique_ptr<Loader>> Loader::create(const checkpoint::Checkpoint& checkpoint,
                                               std::span<const UnitState> units,
                                               const Matching& matching,
                                               const std::shared_ptr<checkpoint::Staging>& staging,
                                               int64_t timeout_ns) {
  std::unique_ptr<Loader> loader(new Loader(units));
  std::vector<checkpoint::WantedRange> wanted;
  loader->plan(matching, &wanted);
  if (wanted.empty()) return loader;
  MERON_ASSIGN(loader->reader_,
               checkpoint::BlockReader::create(staging, checkpoint.directory(),
                                               checkpoint.manifest.files, std::move(wanted),
                                               checkpoint::reading_of(checkpoint, timeout_ns)));
  return loader;
}

void Loader::add_sources(const checkpoint::Tensor& tensor, const ParamSpan& span, Piece* piece,
                         std::vector<checkpoint::WantedRange>* wanted) {
  const uint64_t size = checkpoint::element_bytes(tensor.dtype);
  const uint64_t last = span.first + span.count;
  auto from = std::upper_bound(
      tensor.pieces.begin(), tensor.pieces.end(), span.first,
      [](uint64_t first, const checkpoint::Piece& each) { return first < each.begin; });
  for (from = from == tensor.pieces.begin() ? from : from - 1;
       from != tensor.pieces.end() && from->begin < last; ++from) {
    const uint64_t low = std::max(span.first, from->begin);
    const uint64_t high = std::min(last, from->begin + from->count);
    if (low >= high) continue;
    wanted->push_back({.file = from->file,
                       .offset = from->offset + (low - from->begin) * size,
                       .bytes = (high - low) * size});
    piece->sources.push_back(
        {&tensor, span.offset + (low - span.first), high - low, (high - low) * size});
  }
}

void Loader::plan(const Matching& matching, std::vector<checkpoint::WantedRange>* wanted) {
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitState& unit = units_[u];
    for (const State& state : unit.states()) {
      const Range all = unit.loaded(state);
      for (uint64_t begin = all.begin; begin < all.end;) {
        // Pieces end at blocks of the flat, so that 8-bit states are encoded once.
        const uint64_t end = std::min(all.end, begin / kBlock * kBlock + kPieceElements);
        Piece piece{.state = state, .range = {begin, end}, .sources = {}, .whole = true};
        for (const ParamSpan& span : unit.spans(state, piece.range)) {
          if (state.kind == StateKind::residual) {
            const Axes& axes = unit.unit().axes();
            for (const auto* const tensor : matching.residuals(
                     *span.param, static_cast<uint64_t>(axes.own_replica()), axes.mesh.replicas)) {
              add_sources(*tensor, span, &piece, wanted);
            }
            continue;
          }
          const checkpoint::Tensor* const tensor = matching.source(*span.param, state.kind);
          if (tensor != nullptr) {
            add_sources(*tensor, span, &piece, wanted);
          } else {
            piece.whole = false;
          }
        }
        if (!piece.sources.empty()) pieces_[u].push_back(std::move(piece));
        begin = end;
      }
    }
  }
}

Status Loader::load_next(Exchange& exchange) {
  const UnitState& unit = units_[next_];
  std::vector<std::byte> values, read;
  for (const Piece& piece : pieces_[next_]) {
    const uint64_t size = size_of(piece.state.dtype);
    values.assign(piece.range.size() * size, std::byte{0});
    for (const Source& source : piece.sources) {
      const DType dtype = dtype_of(source.tensor->dtype);
      const bool adds = piece.state.kind == StateKind::residual;
      const bool same = dtype == piece.state.dtype && !adds;
      std::byte* const to = values.data() + source.at * size;
      if (!same) read.resize(source.bytes);
      std::byte* into = same ? to : read.data();
      for (uint64_t got = 0; got < source.bytes;) {
        const auto bytes = reader_->next();
        if (!bytes.ok()) {
          return Error(bytes.error()).on(source.tensor->name);
        }
        std::memcpy(into + got, bytes->data(), bytes->size());
        got += bytes->size();
      }
      MERON_ASSIGN(const auto end, reader_->next());
      if (!end.empty()) {
        return Error(MERON_E_INTERNAL, "a range of a checkpoint is longer than was asked for",
                     "please report this defect");
      }
      if (adds) {
        kernels::accumulate(to, kernels::Type::f32, read.data(), kernels::Type::f32, source.count);
      } else if (!same) {
        kernels::convert(to, kernel_type(piece.state.dtype), read.data(), kernel_type(dtype),
                         source.count);
      }
    }
    if (piece.whole) {
      MERON_TRY(exchange.write(unit, piece.state, piece.range, values.data()));
      continue;
    }
    // What has no source stays as it is.
    for (const Source& source : piece.sources) {
      const uint64_t first = piece.range.begin + source.at;
      MERON_TRY(exchange.write(unit, piece.state, {first, first + source.count},
                               values.data() + source.at * size));
    }
  }
  ++next_;
  return Ok{};
}

}  // namespace meron
