// SPDX-License-Identifier: Apache-2.0
#include "saving/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace meron {
namespace {

constexpr uint64_t kGathered = 4 << 20;  // bytes of all ranks in one step

// An error of fixed size, with truncated texts, for transfers between ranks.
struct ErrorRecord {
  int32_t code = MERON_OK;
  std::array<char, 900> what{};
  std::array<char, 500> advice{};
  std::array<char, 640> subject{};
};

template <size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  const size_t count = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), count);
  to[count] = '\0';
}

template <size_t N>
std::string text_of(const std::array<char, N>& from) {
  return {from.data(), strnlen(from.data(), N)};
}

ErrorRecord record_of(const Status& status) {
  ErrorRecord out;
  if (status.ok()) return out;
  const ErrorInfo& info = status.error().info();
  out.code = info.code;
  put(out.what, info.what);
  put(out.advice, info.advice);
  put(out.subject, info.subject);
  return out;
}

Error error_of(const ErrorRecord& record, int rank, int own, const std::string& others) {
  const std::string where = rank == own ? std::string() : fmt::format("rank {}: ", rank);
  Error error(static_cast<meron_status>(record.code), where + text_of(record.what) + others,
              text_of(record.advice));
  const std::string subject = text_of(record.subject);
  if (!subject.empty()) error = std::move(error).on(subject);
  return std::move(error).blaming(rank);
}

}  // namespace

Status agree(Exchange& exchange, const Status& own, Verdict* verdict) {
  if (verdict != nullptr) *verdict = own.ok() ? Verdict::unknown : Verdict::some_failed;
  const ErrorRecord mine = record_of(own);
  std::vector<ErrorRecord> all(static_cast<size_t>(exchange.size()));
  // The code is always sent, the text only if a rank has one.
  std::vector<int32_t> codes(all.size());
  MERON_TRY(exchange.gather(reinterpret_cast<const std::byte*>(&mine.code), sizeof(int32_t),
                            reinterpret_cast<std::byte*>(codes.data())));
  const auto failed = static_cast<size_t>(
      std::count_if(codes.begin(), codes.end(), [](int32_t code) { return code != MERON_OK; }));
  if (verdict != nullptr) *verdict = failed == 0 ? Verdict::all_succeeded : Verdict::some_failed;
  if (failed == 0) return Ok{};
  MERON_TRY(exchange.gather(reinterpret_cast<const std::byte*>(&mine), sizeof(ErrorRecord),
                            reinterpret_cast<std::byte*>(all.data())));
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const ErrorRecord& each) { return each.code != MERON_OK; });
  const std::string others =
      failed == 1 ? std::string() : fmt::format(" (and {} other ranks failed)", failed - 1);
  return error_of(*first, static_cast<int>(first - all.begin()), exchange.rank(), others);
}

Result<std::string> share(Exchange& exchange, const Result<std::string>& own, int root) {
  struct Head {
    ErrorRecord error;
    uint64_t bytes = 0;
  } head;
  const bool ours = exchange.rank() == root;
  if (ours) {
    if (own.ok()) {
      head.bytes = own->size();
    } else {
      head.error = record_of(own.error());
    }
  }
  MERON_TRY(exchange.broadcast(reinterpret_cast<std::byte*>(&head), sizeof(head), root));
  if (head.error.code != MERON_OK) return error_of(head.error, root, exchange.rank(), {});
  std::string text = ours ? *own : std::string(head.bytes, '\0');
  if (!text.empty()) {
    MERON_TRY(exchange.broadcast(reinterpret_cast<std::byte*>(text.data()), text.size(), root));
  }
  return text;
}

Result<std::vector<std::string>> gather_texts(Exchange& exchange, const std::string& own,
                                              bool everywhere) {
  const auto ranks = static_cast<size_t>(exchange.size());
  const uint64_t size = own.size();
  std::vector<uint64_t> sizes(ranks);
  MERON_TRY(exchange.gather(reinterpret_cast<const std::byte*>(&size), sizeof(size),
                            reinterpret_cast<std::byte*>(sizes.data())));
  const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  const uint64_t step = std::min(longest, std::max<uint64_t>(kGathered / ranks, 1024));
  const bool keeps = everywhere || exchange.rank() == 0;
  std::vector<std::string> texts(ranks);
  std::string chunk(step, '\0'), chunks(step * ranks, '\0');
  for (uint64_t at = 0; at < longest; at += step) {
    if (at < size) own.copy(chunk.data(), step, at);
    MERON_TRY(exchange.gather(reinterpret_cast<const std::byte*>(chunk.data()), step,
                              reinterpret_cast<std::byte*>(chunks.data())));
    for (size_t r = 0; r < ranks && keeps; ++r) {
      if (at < sizes[r]) texts[r].append(chunks, r * step, std::min(step, sizes[r] - at));
    }
  }
  return texts;
}

}  // namespace meron
