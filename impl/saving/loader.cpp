// SPDX-License-Identifier: Apache-2.0
#include "saving/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

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

// In place: elements of F64 become f32, as torch rounds them.
void narrow(std::byte* data, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    double wide = 0;
    std::memcpy(&wide, data + i * sizeof(double), sizeof(double));
    const auto value = static_cast<float>(wide);
    std::memcpy(data + i * sizeof(float), &value, sizeof(float));
  }
}

// `call(piece, low, high)` for each piece of the tensor that has elements low to high of the span's
// param.
template <class Call>
void for_each_part(const SourceTensor& source, const ParamSpan& span, Call call) {
  const auto& pieces = source.tensor->pieces;
  const uint64_t last = span.first + span.count;
  for (auto from = std::partition_point(pieces.begin(), pieces.end(),
                                        [&](const checkpoint::Piece& each) {
                                          return source.first + each.begin + each.count <=
                                                 span.first;
                                        });
       from != pieces.end() && source.first + from->begin < last; ++from) {
    const uint64_t begin = source.first + from->begin;  // element of the param
    const uint64_t low = std::max(span.first, begin);
    const uint64_t high = std::min(last, begin + from->count);
    if (low < high) call(*from, low, high);
  }
}

// Each replica has a residual of its own; of other states replicas have the same.
bool read_by_local_peers(const UnitState& unit, const State& state) {
  if (state.kind == StateKind::residual) return false;
  const Channel& channel = unit.unit().channel();
  for (int member = 0; member < channel.size(); ++member) {
    if (member == channel.index() || !channel.is_local(member)) continue;
    if (overlap(unit.loaded(state), unit.loaded(state, member)).size() > 0) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Loader>> Loader::create(Exchange& exchange,
                                               const checkpoint::Checkpoint& checkpoint,
                                               std::span<const UnitState> units,
                                               const Matching& matching,
                                               const std::shared_ptr<checkpoint::Staging>& staging,
                                               Options options) {
  std::unique_ptr<Loader> loader(new Loader(exchange, units, matching));
  loader->readers_ = std::move(options.readers);
  loader->plan();
  if (loader->wanted_.empty()) return loader;
  checkpoint::ReaderOptions reading = checkpoint::reading_of(checkpoint, options.timeout_ns);
  if (!loader->scatters()) reading.shared = loader->edges_of_peers(reading.block_bytes);
  MERON_ASSIGN(loader->reader_, checkpoint::BlockReader::create(
                                    staging, checkpoint.directory(), checkpoint.manifest.files,
                                    std::move(loader->wanted_), reading));
  return loader;
}

std::vector<checkpoint::BlockPlace> Loader::edges_of_peers(uint64_t block_bytes) const {
  std::vector<checkpoint::BlockPlace> edges;
  const auto note = [&](const State& state, const ParamSpan& span) {
    for (const SourceTensor& source : matching_.source(*span.param, state.kind)) {
      for_each_part(source, span, [&](const checkpoint::Piece& from, uint64_t low, uint64_t high) {
        const uint64_t size = checkpoint::element_bytes(source.tensor->dtype);
        const uint64_t offset = from.offset + (low - source.first - from.begin) * size;
        const uint64_t last = offset + (high - low) * size - 1;
        for (const uint64_t edge : {offset, last}) {
          const checkpoint::BlockPlace place{from.file, edge / block_bytes};
          // Small params follow one another: many are in one block.
          if (edges.empty() || edges.back() != place) edges.push_back(place);
        }
      });
    }
  };
  for (const UnitState& unit : units_) {
    const Channel& channel = unit.unit().channel();
    for (const State& state : unit.states()) {
      if (state.kind == StateKind::residual) continue;
      for (int member = 0; member < channel.size(); ++member) {
        if (member == channel.index() || !channel.is_local(member)) continue;
        for (const ParamSpan& span : unit.spans(state, unit.loaded(state, member))) {
          note(state, span);
        }
      }
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

void Loader::add_sources(const SourceTensor& source, const ParamSpan& span, Piece* piece) {
  const checkpoint::Tensor& tensor = *source.tensor;
  const uint64_t size = checkpoint::element_bytes(tensor.dtype);
  for_each_part(source, span, [&](const checkpoint::Piece& from, uint64_t low, uint64_t high) {
    const int reader = scatters() ? readers_[from.file] : exchange_.rank();
    if (reader == exchange_.rank()) {
      wanted_.push_back({.file = from.file,
                         .offset = from.offset + (low - source.first - from.begin) * size,
                         .bytes = (high - low) * size,
                         .shared = piece->shared});
    }
    piece->sources.push_back(
        {&tensor, span.offset + (low - span.first), high - low, (high - low) * size, reader});
  });
}

std::vector<Range> Loader::ranges_by_rank(const UnitState& unit, const State& state,
                                          uint64_t replica) {
  std::vector<Range> out;
  const uint64_t shards = unit.unit().axes().mesh.shards;
  for (int rank = 0; rank < exchange_.size(); ++rank) {
    const bool other =
        state.kind == StateKind::residual && static_cast<uint64_t>(rank) / shards != replica;
    out.push_back(other ? Range{} : unit.loaded(state, rank));
  }
  return out;
}

void Loader::plan_range(size_t number, const State& state, const Range& all, uint64_t replica,
                        bool shared) {
  const UnitState& unit = units_[number];
  const uint64_t replicas = unit.unit().axes().mesh.replicas;
  for (uint64_t begin = all.begin; begin < all.end;) {
    // Pieces end at blocks of the flat, so that 8-bit states are encoded once.
    const uint64_t end = std::min(all.end, begin / kBlock * kBlock + kPieceElements);
    Piece piece{.state = state,
                .range = {begin, end},
                .sources = {},
                .complete = true,
                .shared = shared,
                .by_rank = {},
                .readers = {}};
    for (const ParamSpan& span : unit.spans(state, piece.range)) {
      if (state.kind == StateKind::residual) {
        for (const SourceTensor& source : matching_.residuals(*span.param, replica, replicas)) {
          add_sources(source, span, &piece);
        }
        continue;
      }
      const auto sources = matching_.source(*span.param, state.kind);
      for (const SourceTensor& source : sources) add_sources(source, span, &piece);
      piece.complete = piece.complete && !sources.empty();
    }
    if (!piece.sources.empty()) pieces_[number].push_back(std::move(piece));
    begin = end;
  }
}

void Loader::plan() {
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitState& unit = units_[u];
    const Axes& axes = unit.unit().axes();
    for (const State& state : unit.states()) {
      if (!scatters()) {
        plan_range(u, state, unit.loaded(state), static_cast<uint64_t>(axes.own_replica()),
                   read_by_local_peers(unit, state));
        continue;
      }
      // The same on all ranks. Of a residual each replica has another one.
      const Range all = {0, unit.unit().flats()[state.flat].desc.elements};
      const uint64_t replicas = state.kind == StateKind::residual ? axes.mesh.replicas : 1;
      for (uint64_t replica = 0; replica < replicas; ++replica) {
        const size_t first = pieces_[u].size();
        plan_range(u, state, all, replica, false);
        const std::vector<Range> by_rank = ranges_by_rank(unit, state, replica);
        for (size_t p = first; p < pieces_[u].size(); ++p) {
          Piece& piece = pieces_[u][p];
          for (const Range& range : by_rank) piece.by_rank.push_back(overlap(range, piece.range));
          std::set<int> readers;
          for (const Source& source : piece.sources) readers.insert(source.reader);
          piece.readers.assign(readers.begin(), readers.end());
        }
      }
    }
  }
}

Status Loader::read_source(const Source& source, std::byte* into) {
  for (uint64_t got = 0; got < source.bytes;) {
    const auto bytes = reader_->next();
    if (!bytes.ok()) return Error(bytes.error()).on(source.tensor->name);
    std::memcpy(into + got, bytes->data(), bytes->size());
    got += bytes->size();
  }
  MERON_ASSIGN(const auto end, reader_->next());
  if (end.empty()) return Ok{};
  return Error(MERON_E_INTERNAL, "a range of a checkpoint is longer than requested",
               "please report this defect");
}

Status Loader::read(const Piece& piece) {
  const uint64_t size = size_of(piece.state.dtype);
  const bool sums = piece.state.kind == StateKind::residual;
  uint64_t given = 0;
  for (const Source& source : piece.sources) {
    if (source.reader == exchange_.rank()) given += source.count;
  }
  // Padding is zero, because it shares blocks of 8-bit states with tensors.
  if (sums || given < piece.range.size()) values_.clear();
  values_.resize(piece.range.size() * size);
  for (const Source& source : piece.sources) {
    if (source.reader != exchange_.rank()) continue;
    const bool f64 = source.tensor->dtype == "F64";
    const DType dtype = dtype_of(source.tensor->dtype);
    const bool same = dtype == piece.state.dtype && !sums && !f64;
    std::byte* const to = values_.data() + source.at * size;
    if (!same) raw_.resize(source.bytes);
    MERON_TRY(read_source(source, same ? to : raw_.data()));
    if (f64) narrow(raw_.data(), source.count);
    if (sums) {
      kernels::accumulate(to, kernels::Type::f32, raw_.data(), kernels::Type::f32, source.count);
    } else if (!same) {
      kernels::convert(to, kernel_type(piece.state.dtype), raw_.data(), kernel_type(dtype),
                       source.count);
    }
  }
  return Ok{};
}

Status Loader::write(const UnitState& unit, const Piece& piece, const Range& range,
                     const std::byte* values) {
  if (range.size() == 0) return Ok{};
  if (piece.complete) return exchange_.write(unit, piece.state, range, values);
  // Elements without a source keep their values.
  for (const Source& source : piece.sources) {
    const uint64_t first = piece.range.begin + source.at;
    const Range slice = overlap({first, first + source.count}, range);
    if (slice.size() == 0) continue;
    MERON_TRY(exchange_.write(unit, piece.state, slice,
                              values + (slice.begin - range.begin) * size_of(piece.state.dtype)));
  }
  return Ok{};
}

Status Loader::scatter_from(int reader, const Piece& piece, std::vector<std::byte>* received) {
  const uint64_t size = size_of(piece.state.dtype);
  const bool sums = piece.state.kind == StateKind::residual;
  Range all = {piece.range.end, piece.range.begin};  // elements from the first to the last it has
  for (const Source& source : piece.sources) {
    if (source.reader != reader) continue;
    all.begin = std::min(all.begin, piece.range.begin + source.at);
    all.end = std::max(all.end, piece.range.begin + source.at + source.count);
  }
  std::vector<Range> bytes;
  for (const Range& range : piece.by_rank) {
    const Range slice = overlap(range, all);
    bytes.push_back({(slice.begin - all.begin) * size, (slice.end - all.begin) * size});
  }
  const Range own = piece.by_rank[static_cast<size_t>(exchange_.rank())];
  const Range slice = overlap(own, all);
  std::vector<std::byte> values(slice.size() * size);
  const std::byte* const from = reader == exchange_.rank()
                                    ? values_.data() + (all.begin - piece.range.begin) * size
                                    : nullptr;
  MERON_TRY(exchange_.scatter(from, all.size() * size, bytes, values.data(), reader));
  for (const Source& source : piece.sources) {
    if (source.reader != reader) continue;
    const uint64_t first = piece.range.begin + source.at;
    const Range taken = overlap({first, first + source.count}, slice);
    if (taken.size() == 0) continue;
    std::byte* const to = received->data() + (taken.begin - own.begin) * size;
    std::byte* const got = values.data() + (taken.begin - slice.begin) * size;
    if (!sums) {
      std::memcpy(to, got, taken.size() * size);
      continue;
    }
    kernels::accumulate(to, kernels::Type::f32, got, kernels::Type::f32, taken.size());
    // Another source may have the same elements: what was added must not be added again.
    std::memset(got, 0, taken.size() * size);
  }
  return Ok{};
}

Status Loader::scatter(const UnitState& unit, const Piece& piece) {
  const Range& own = piece.by_rank[static_cast<size_t>(exchange_.rank())];
  std::vector<std::byte> received(own.size() * size_of(piece.state.dtype));
  for (const int reader : piece.readers) MERON_TRY(scatter_from(reader, piece, &received));
  return write(unit, piece, own, received.data());
}

Status Loader::load_next() {
  const UnitState& unit = units_[next_];
  for (const Piece& piece : pieces_[next_]) {
    if (reader_) MERON_TRY(read(piece));
    MERON_TRY(piece.by_rank.empty() ? write(unit, piece, piece.range, values_.data())
                                    : scatter(unit, piece));
  }
  ++next_;
  return Ok{};
}

}  // namespace meron
