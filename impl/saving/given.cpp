// SPDX-License-Identifier: Apache-2.0
#include "saving/given.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/manifest.h"
#include "checkpoint/piece_name.h"
#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron {
namespace {

// A table of slices as bytes: what rank 0 needs to describe them.
class TableWriter {
 public:
  void number(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  void text(const std::string& value) {
    number(value.size());
    bytes_ += value;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class TableReader {
 public:
  explicit TableReader(std::string_view bytes) : rest_(bytes) {}
  bool ended() const { return rest_.empty(); }
  bool good() const { return good_; }
  uint64_t number() {
    const std::string_view bytes = take(8);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return value;
  }
  std::string text() { return std::string(take(number())); }

 private:
  std::string_view take(uint64_t count) {
    good_ = good_ && count <= rest_.size();
    if (!good_) return rest_ = {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view rest_;
  bool good_ = true;
};

std::string table_of(std::span<const GivenTensor> given) {
  TableWriter table;
  for (const GivenTensor& slice : given) {
    table.text(slice.name);
    table.text(slice.kind);
    table.text(slice.dtype);
    table.number(slice.shape.size());
    for (const uint64_t size : slice.shape) table.number(size);
    table.number(slice.begin);
    table.number(slice.count);
  }
  return table.take();
}

Result<std::vector<GivenTensor>> parts_of(std::string_view bytes, size_t rank) {
  std::vector<GivenTensor> slices;
  TableReader table(bytes);
  while (!table.ended()) {
    GivenTensor slice;
    slice.name = table.text();
    slice.kind = table.text();
    slice.dtype = table.text();
    for (uint64_t dims = std::min<uint64_t>(table.number(), kMaxDims + 1); dims > 0; --dims) {
      slice.shape.push_back(table.number());
    }
    slice.begin = table.number();
    slice.count = table.number();
    if (!table.good()) {
      return Error(MERON_E_MISMATCH,
                   fmt::format("rank {} sent a list of tensors that cannot be read", rank),
                   "run the same version of Meron on all ranks");
    }
    slices.push_back(std::move(slice));
  }
  return slices;
}

// A verdict of rank 0, which is not rank 0's own failure.
Status share_verdict(Exchange& exchange, const Status& verdict) {
  TableWriter words;
  if (!verdict.ok()) {
    const ErrorInfo& info = verdict.error().info();
    words.number(static_cast<uint64_t>(info.code));
    for (const std::string& text : {info.what, info.advice, info.subject}) words.text(text);
  }
  MERON_ASSIGN(const std::string shared, share(exchange, words.take()));
  if (shared.empty()) return Ok{};
  TableReader read(shared);
  const auto code = static_cast<meron_status>(read.number());
  const std::string what = read.text(), advice = read.text();
  return Error(code, what, advice).on(read.text());
}

std::string words_of(const GivenTensor& slice) {
  return fmt::format("{} of {}", slice.kind, in_quotes(slice.name));
}

struct Slice {
  size_t rank;
  const GivenTensor* slice;
};

Error refused(const GivenTensor& slice, std::string what, std::string advice) {
  return Error(MERON_E_ARGUMENT, fmt::format("{}: {}", words_of(slice), what), std::move(advice))
      .on(slice.name);
}

Status check_tensor(std::vector<Slice>& slices) {
  const GivenTensor& first = *slices.front().slice;
  const auto description = [](const Slice& each) {
    return fmt::format("rank {} gives it as {} [{}]", each.rank, each.slice->dtype,
                       fmt::join(each.slice->shape, ","));
  };
  for (const Slice& each : slices) {
    if (each.slice->dtype == first.dtype && each.slice->shape == first.shape) continue;
    return refused(first, description(slices.front()) + ", " + description(each),
                   "give dtype and shape of the full tensor, the same on every rank");
  }
  const uint64_t elements = first.elements();
  const auto gap = [&](uint64_t begin, uint64_t end) {
    return refused(
        first, fmt::format("no rank gives elements {} to {} of its {}", begin, end - 1, elements),
        "give each element of a tensor on one rank");
  };
  std::erase_if(slices, [](const Slice& each) { return each.slice->count == 0; });
  std::stable_sort(slices.begin(), slices.end(),
                   [](const Slice& a, const Slice& b) { return a.slice->begin < b.slice->begin; });
  uint64_t covered = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const GivenTensor& slice = *slices[i].slice;
    const uint64_t end = slice.begin + slice.count;
    if (slice.begin > covered) return gap(covered, slice.begin);
    if (slice.begin < covered) {
      const size_t before = slices[i - 1].rank, after = slices[i].rank;
      return refused(first,
                     fmt::format("elements {} to {} are given twice, by rank{}", slice.begin,
                                 std::min(covered, end) - 1,
                                 before == after ? fmt::format(" {}", before)
                                                 : fmt::format("s {} and {}", before, after)),
                     "give each element of a tensor once, on one rank");
    }
    covered = end;
  }
  if (covered < elements) return gap(covered, elements);
  return Ok{};
}

Status check_slice(const GivenTensor& slice, int rank) {
  if (const Status name = check_name(slice.name); !name.ok()) {
    return Error(MERON_E_ARGUMENT, "a tensor's name: " + name.error().info().what,
                 name.error().info().advice)
        .on("tensors");
  }
  const bool of_other =
      slice.kind.starts_with("extra.") && slice.kind != fmt::format("extra.{}", rank);
  if (!checkpoint::valid_kind(slice.kind) || slice.kind == "gradient" ||
      slice.kind.starts_with("residual.") || of_other) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} has the kind {}, which a caller's tensor on rank {} cannot have",
                             in_quotes(slice.name), in_quotes(slice.kind), rank),
                 fmt::format("use values, master, exp_avg, exp_avg_sq, extra, extra.{} or "
                             "state.KEY, with a KEY of a to z, digits and _",
                             rank))
        .on(slice.name);
  }
  if (checkpoint::element_bytes(slice.dtype) == 0) {
    return refused(slice, fmt::format("{} is not a dtype", in_quotes(slice.dtype)),
                   "use a dtype of safetensors, such as F32 or BF16");
  }
  const auto elements = element_count(slice.shape);
  if (!elements.ok()) {
    return refused(slice, elements.error().info().what, elements.error().info().advice);
  }
  if (slice.begin > *elements || slice.count > *elements - slice.begin) {
    return refused(slice,
                   fmt::format("{} elements from element {} on are outside of its {}", slice.count,
                               slice.begin, *elements),
                   "give a range within the full tensor's shape");
  }
  if (slice.count > 0 && slice.data == nullptr) {
    return refused(slice, "data is NULL", "pass the memory of its elements, or a count of 0");
  }
  return Ok{};
}

}  // namespace

uint64_t GivenTensor::elements() const {
  uint64_t product = 1;
  for (const uint64_t size : shape) product *= size;
  return product;
}

uint64_t GivenTensor::bytes() const {
  return count * checkpoint::element_bytes(dtype);
}

bool is_kept_by_values_only(const GivenTensor& tensor) {
  return tensor.kind == "values" || tensor.kind == "extra" || tensor.kind.starts_with("extra.");
}

Status check_given(std::span<const GivenTensor> given, int rank) {
  for (const GivenTensor& slice : given) MERON_TRY(check_slice(slice, rank));
  return Ok{};
}

Status check_slices(std::span<const std::vector<GivenTensor>> given) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Slice>> tensors;
  size_t pieces = 0;
  for (size_t rank = 0; rank < given.size(); ++rank) {
    for (const GivenTensor& slice : given[rank]) {
      tensors[{slice.name, slice.kind}].push_back({rank, &slice});
    }
    pieces += given[rank].size();
  }
  if (tensors.size() > checkpoint::kMaxTensors || pieces > checkpoint::kMaxPieces) {
    return Error(
               MERON_E_ARGUMENT,
               fmt::format("{} tensors in {} slices, more than the limits of {} and {}",
                           tensors.size(), pieces, checkpoint::kMaxTensors, checkpoint::kMaxPieces),
               "give fewer and larger tensors")
        .on("tensors");
  }
  for (auto& [name, of_ranks] : tensors) MERON_TRY(check_tensor(of_ranks));
  return Ok{};
}

Result<std::vector<std::vector<GivenTensor>>> share_given(
    Exchange& exchange, Result<std::vector<GivenTensor>> own,
    const std::function<Status(std::span<const std::vector<GivenTensor>>)>& check) {
  const auto rank = static_cast<size_t>(exchange.rank());
  MERON_TRY(agree(exchange, own.ok() ? check_given(*own, exchange.rank()) : own.error()));
  MERON_ASSIGN(const auto tables, gather_texts(exchange, table_of(*own), false));
  std::vector<std::vector<GivenTensor>> given(tables.size());
  given[rank] = *std::move(own);
  const auto judge = [&]() -> Status {
    for (size_t r = 1; r < tables.size(); ++r) {
      MERON_ASSIGN(given[r], parts_of(tables[r], r));
    }
    MERON_TRY(check_slices(given));
    return check(given);
  };
  MERON_TRY(share_verdict(exchange, rank == 0 ? judge() : Status(Ok{})));
  return given;
}

}  // namespace meron
