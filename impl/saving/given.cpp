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

// A table of parts as bytes: what rank 0 needs to describe them.
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
  for (const GivenTensor& part : given) {
    table.text(part.name);
    table.text(part.kind);
    table.text(part.dtype);
    table.number(part.shape.size());
    for (const uint64_t size : part.shape) table.number(size);
    table.number(part.begin);
    table.number(part.count);
  }
  return table.take();
}

Result<std::vector<GivenTensor>> parts_of(std::string_view bytes, size_t rank) {
  std::vector<GivenTensor> parts;
  TableReader table(bytes);
  while (!table.ended()) {
    GivenTensor part;
    part.name = table.text();
    part.kind = table.text();
    part.dtype = table.text();
    for (uint64_t dims = std::min<uint64_t>(table.number(), kMaxDims + 1); dims > 0; --dims) {
      part.shape.push_back(table.number());
    }
    part.begin = table.number();
    part.count = table.number();
    if (!table.good()) {
      return Error(MERON_E_MISMATCH,
                   fmt::format("rank {} sent a list of tensors that cannot be read", rank),
                   "run the same version of Meron on all ranks");
    }
    parts.push_back(std::move(part));
  }
  return parts;
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

std::string words_of(const GivenTensor& part) {
  return fmt::format("{} of {}", part.kind, in_quotes(part.name));
}

struct Part {
  size_t rank;
  const GivenTensor* part;
};

Error refused(const GivenTensor& part, std::string what, std::string advice) {
  return Error(MERON_E_ARGUMENT, fmt::format("{}: {}", words_of(part), what), std::move(advice))
      .on(part.name);
}

Status check_tensor(std::vector<Part>& parts) {
  const GivenTensor& first = *parts.front().part;
  const auto description = [](const Part& each) {
    return fmt::format("rank {} gives it as {} [{}]", each.rank, each.part->dtype,
                       fmt::join(each.part->shape, ","));
  };
  for (const Part& each : parts) {
    if (each.part->dtype == first.dtype && each.part->shape == first.shape) continue;
    return refused(first, description(parts.front()) + ", " + description(each),
                   "give dtype and shape of the whole tensor, the same on every rank");
  }
  const uint64_t elements = first.elements();
  const auto gap = [&](uint64_t begin, uint64_t end) {
    return refused(
        first, fmt::format("no rank gives elements {} to {} of its {}", begin, end - 1, elements),
        "give each element of a tensor on one rank");
  };
  std::erase_if(parts, [](const Part& each) { return each.part->count == 0; });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.part->begin < b.part->begin; });
  uint64_t covered = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const GivenTensor& part = *parts[i].part;
    const uint64_t end = part.begin + part.count;
    if (part.begin > covered) return gap(covered, part.begin);
    if (part.begin < covered) {
      const size_t before = parts[i - 1].rank, after = parts[i].rank;
      return refused(first,
                     fmt::format("elements {} to {} are given twice, by rank{}", part.begin,
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

Status check_part(const GivenTensor& part, int rank) {
  if (const Status name = check_name(part.name); !name.ok()) {
    return Error(MERON_E_ARGUMENT, "a tensor's name: " + name.error().info().what,
                 name.error().info().advice)
        .on("tensors");
  }
  const bool of_other =
      part.kind.starts_with("extra.") && part.kind != fmt::format("extra.{}", rank);
  if (!checkpoint::valid_kind(part.kind) || part.kind == "gradient" ||
      part.kind.starts_with("residual.") || of_other) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} has the kind {}, which a caller's tensor on rank {} cannot have",
                             in_quotes(part.name), in_quotes(part.kind), rank),
                 fmt::format("use values, master, exp_avg, exp_avg_sq, extra, extra.{} or "
                             "state.KEY, with a KEY of a to z, digits and _",
                             rank))
        .on(part.name);
  }
  if (checkpoint::element_bytes(part.dtype) == 0) {
    return refused(part, fmt::format("{} is not a dtype", in_quotes(part.dtype)),
                   "use a dtype of safetensors, such as F32 or BF16");
  }
  const auto elements = element_count(part.shape);
  if (!elements.ok()) {
    return refused(part, elements.error().info().what, elements.error().info().advice);
  }
  if (part.begin > *elements || part.count > *elements - part.begin) {
    return refused(part,
                   fmt::format("{} elements from element {} on are outside of its {}", part.count,
                               part.begin, *elements),
                   "give a range within the whole tensor's shape");
  }
  if (part.count > 0 && part.data == nullptr) {
    return refused(part, "data is NULL", "pass the memory of its elements, or a count of 0");
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
  for (const GivenTensor& part : given) MERON_TRY(check_part(part, rank));
  return Ok{};
}

Status check_parts(std::span<const std::vector<GivenTensor>> given) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Part>> tensors;
  size_t pieces = 0;
  for (size_t rank = 0; rank < given.size(); ++rank) {
    for (const GivenTensor& part : given[rank]) {
      tensors[{part.name, part.kind}].push_back({rank, &part});
    }
    pieces += given[rank].size();
  }
  if (tensors.size() > checkpoint::kMaxTensors || pieces > checkpoint::kMaxPieces) {
    return Error(
               MERON_E_ARGUMENT,
               fmt::format("{} tensors in {} parts, more than the limits of {} and {}",
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
    MERON_TRY(check_parts(given));
    return check(given);
  };
  MERON_TRY(share_verdict(exchange, rank == 0 ? judge() : Status(Ok{})));
  return given;
}

}  // namespace meron
