// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/human_bytes.h"
#include "checkpoint/source.h"
#include "tools/meron/checkpoint.h"
#include "tools/meron/failure.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

constexpr int64_t kShowEveryNs = 200'000'000;

}  // namespace

checkpoint::Checkpoint open_checkpoint(const Which& which) {
  checkpoint::Checkpoint found = must(checkpoint::open_source(which.path, which.name));
  const std::string skipped = checkpoint::words_of_skipped(found);
  if (!skipped.empty()) fmt::print(stderr, "meron: {}\n", skipped);
  return found;
}

uint64_t elements_of(const checkpoint::Tensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t size : tensor.shape) count *= size;
  return count;
}

uint64_t bytes_of(const checkpoint::Tensor& tensor) {
  return elements_of(tensor) * checkpoint::element_bytes(tensor.dtype);
}

std::string shape_text(const checkpoint::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

int64_t ProgressLine::now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

double ProgressLine::seconds() const {
  return static_cast<double>(now() - begun_ns_) / 1e9;
}

void ProgressLine::add(uint64_t bytes) {
  done_ += bytes;
  const int64_t at = now();
  if (at - shown_ns_ < kShowEveryNs || isatty(STDERR_FILENO) == 0) return;
  shown_ns_ = at;
  const double part = total_ == 0 ? 1 : static_cast<double>(done_) / static_cast<double>(total_);
  const double rate = static_cast<double>(done_) / std::max(seconds(), 1e-3);
  fmt::print(stderr, "\r\033[K{} {} of {} ({:.0f} %), {}/s", verb_, human_bytes(done_),
             human_bytes(total_), 100 * part, human_bytes(static_cast<uint64_t>(rate)));
  std::fflush(stderr);
  on_line_ = true;
}

void ProgressLine::clear() {
  if (on_line_) fmt::print(stderr, "\r\033[K");
  on_line_ = false;
}

}  // namespace meron::tools
