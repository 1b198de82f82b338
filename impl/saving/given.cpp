// SPDX-License-Identifier: Apache-2.0
#include "saving/given.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_name.h"
#include "plan/text.h"
#include "plan/unit_layout.h"

namespace meron {
namespace {

constexpr size_t kMaxGivenDims = 16;

uint64_t elements_of(const GivenTensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t size : tensor.shape) count *= size;
  return count;
}

std::string words_of(const GivenTensor& tensor) {
  return tensor.kind == "values" ? tensor.name : fmt::format("{} of {}", tensor.kind, tensor.name);
}

Error refused(const GivenTensor& tensor, std::string what, std::string advice) {
  return Error(MERON_E_ARGUMENT, std::move(what), std::move(advice)).on(words_of(tensor));
}

Status check_kind(const GivenTensor& tensor, int rank) {
  const std::string& kind = tensor.kind;
  const bool known = checkpoint::valid_kind(kind) && !kind.starts_with("residual.");
  if (!known) {
    return refused(tensor,
                   fmt::format("{} is no kind of tensor that can be saved", in_quotes(kind)),
                   "give values, master, exp_avg, exp_avg_sq, gradient, state.KEY or extra");
  }
  if (kind.starts_with("extra.") && kind != fmt::format("extra.{}", rank)) {
    return refused(tensor, fmt::format("the kind {} is not of this rank", in_quotes(kind)),
                   fmt::format("give extra.{}, or extra for a tensor of all ranks", rank));
  }
  return Ok{};
}

// ---- As bytes between ranks ----

class Writer {
 public:
  void number(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void text(const std::string& value) {
    number(value.size());
    bytes_ += value;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool number(uint64_t* out) {
    if (bytes_.size() < 8) return false;
    *out = 0;
    for (int i = 0; i < 8; ++i) {
      *out |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[static_cast<size_t>(i)]))
              << (8 * i);
    }
    bytes_.remove_prefix(8);
    return true;
  }
  bool text(std::string* out) {
    uint64_t size = 0;
    if (!number(&size) || size > bytes_.size()) return false;
    *out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

std::string encode(std::span<const GivenTensor> given) {
  Writer out;
  for (const GivenTensor& tensor : given) {
    out.text(tensor.name);
    out.text(tensor.kind);
    out.text(tensor.dtype);
    out.number(tensor.shape.size());
    for (const uint64_t size : tensor.shape) out.number(size);
    out.number(tensor.begin);
    out.number(tensor.count);
  }
  return out.take();
}

bool decode(Reader& in, GivenTensor* tensor) {
  uint64_t dims = 0;
  if (!in.text(&tensor->name) || !in.text(&tensor->kind) || !in.text(&tensor->dtype) ||
      !in.number(&dims) || dims > kMaxGivenDims) {
    return false;
  }
  tensor->shape.resize(dims);
  for (uint64_t& size : tensor->shape) {
    if (!in.number(&size)) return false;
  }
  return in.number(&tensor->begin) && in.number(&tensor->count);
}

Result<std::vector<GivenTensor>> decode(std::string_view bytes, int rank) {
  std::vector<GivenTensor> out;
  for (Reader in(bytes); !in.at_end();) {
    GivenTensor tensor;
    if (!decode(in, &tensor)) {
      return Error(MERON_E_MISMATCH,
                   fmt::format("rank {} sent a list of tensors that cannot be read", rank),
                   "run the same version of Meron on all ranks");
    }
    out.push_back(std::move(tensor));
  }
  // Sizes of a peer are not trusted before they are multiplied.
  MERON_TRY(check_given(out, rank));
  return out;
}

// ---- Whether the parts fit ----

struct Part {
  const GivenTensor* tensor;
  size_t rank;
};

std::string where(const Part& part) {
  return fmt::format("elements {} to {} of rank {}", part.tensor->begin,
                     part.tensor->begin + part.tensor->count, part.rank);
}

Status check_parts(std::vector<Part> parts) {
  const Part& first = parts.front();
  for (const Part& part : parts) {
    if (part.tensor->dtype == first.tensor->dtype && part.tensor->shape == first.tensor->shape) {
      continue;
    }
    return refused(*first.tensor,
                   fmt::format("rank {} gives {} [{}], rank {} gives {} [{}]", first.rank,
                               first.tensor->dtype, fmt::join(first.tensor->shape, ","), part.rank,
                               part.tensor->dtype, fmt::join(part.tensor->shape, ",")),
                   "give the same dtype and the shape of the whole tensor on all ranks");
  }
  std::erase_if(parts, [](const Part& part) { return part.tensor->count == 0; });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.tensor->begin < b.tensor->begin; });
  const uint64_t all = elements_of(*first.tensor);
  uint64_t covered = 0;
  const Part* before = nullptr;
  for (const Part& part : parts) {
    if (part.tensor->begin < covered) {
      return refused(*first.tensor, fmt::format("{} and {} overlap", where(*before), where(part)),
                     "let each element be given by one rank: a replicated tensor by the first");
    }
    if (part.tensor->begin > covered) break;
    covered += part.tensor->count;
    before = &part;
  }
  if (covered == all) return Ok{};
  return refused(*first.tensor,
                 fmt::format("no rank gives the elements from {} on, of {}", covered, all),
                 "let the ranks together give all of the tensor");
}

}  // namespace

bool GivenTensor::whole() const {
  return begin == 0 && count == elements_of(*this);
}

uint64_t GivenTensor::bytes() const {
  return count * checkpoint::element_bytes(dtype);
}

bool is_kept_by_values_only(const GivenTensor& tensor) {
  return tensor.kind == "values" || tensor.kind == "extra" || tensor.kind.starts_with("extra.");
}

Status check_given(std::span<const GivenTensor> given, int rank) {
  for (const GivenTensor& tensor : given) {
    if (const Status named = check_name(tensor.name); !named.ok()) return named;
    MERON_TRY(check_kind(tensor, rank));
    if (checkpoint::element_bytes(tensor.dtype) == 0) {
      return refused(tensor, fmt::format("{} is no dtype of safetensors", in_quotes(tensor.dtype)),
                     "give F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, "
                     "F8_E4M3 or F8_E5M2");
    }
    if (tensor.shape.size() > kMaxGivenDims) {
      return refused(tensor, fmt::format("it has {} dimensions", tensor.shape.size()),
                     fmt::format("give at most {}", kMaxGivenDims));
    }
    uint64_t all = 1;
    for (const uint64_t size : tensor.shape) {
      if (size != 0 && all > kMaxElements / size) {
        return refused(
            tensor,
            fmt::format("its shape [{}] has too many elements", fmt::join(tensor.shape, ",")),
            "give the sizes of the tensor");
      }
      all *= size;
    }
    if (tensor.begin > all || tensor.count > all - tensor.begin) {
      return refused(tensor,
                     fmt::format("{} elements from {} on are outside of its {}", tensor.count,
                                 tensor.begin, all),
                     "give a part of the whole tensor, row-major");
    }
  }
  return Ok{};
}

Result<std::vector<std::vector<GivenTensor>>> share_given(Exchange& exchange,
                                                          std::span<const UnitState> units,
                                                          const SavedNames& names,
                                                          std::vector<GivenTensor> own) {
  const auto ranks = static_cast<size_t>(exchange.size());
  const std::string mine = encode(own);
  const uint64_t size = mine.size();
  std::vector<uint64_t> sizes(ranks);
  MERON_TRY(exchange.gather(reinterpret_cast<const std::byte*>(&size), sizeof(size),
                            reinterpret_cast<std::byte*>(sizes.data())));
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::vector<GivenTensor>> all(ranks);
  if (most == 0) return all;
  std::string row = mine, rows(most * ranks, '\0');
  row.resize(most);
  MERON_TRY(exchange.gather(reinterpret_cast<const std::byte*>(row.data()), most,
                            reinterpret_cast<std::byte*>(rows.data())));
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Part>> parts;
  for (size_t r = 0; r < ranks; ++r) {
    if (static_cast<int>(r) == exchange.rank()) {
      all[r] = std::move(own);
    } else {
      MERON_ASSIGN(all[r],
                   decode(std::string_view(rows).substr(r * most, sizes[r]), static_cast<int>(r)));
    }
    for (const GivenTensor& tensor : all[r]) {
      parts[{tensor.kind, tensor.name}].push_back({&tensor, r});
    }
  }
  for (const UnitState& unit : units) {
    for (const State& state : unit.states()) {
      for (const auto& param : unit.unit().params()) {
        if (param->place.flat != state.flat) continue;
        if (names.left_out(*param)) continue;
        const auto taken = parts.find({name_of(state.kind), names.of(*param)});
        if (taken == parts.end()) continue;
        const Part& part = taken->second.front();
        return refused(*part.tensor,
                       fmt::format("rank {} gives it, and the engine saves it too", part.rank),
                       "leave out what units and their optimizers hold");
      }
    }
  }
  for (const auto& [key, of_tensor] : parts) MERON_TRY(check_parts(of_tensor));
  return all;
}

}  // namespace meron
