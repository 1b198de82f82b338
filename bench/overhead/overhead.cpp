// SPDX-License-Identifier: Apache-2.0
// What a gather of a unit that is at hand costs the caller, in C: see README.md.
#include <cstring>

#include "bench/meron_rank.h"

namespace meron::bench {
namespace {

void gather(const Tensor& tensor) {
  meron_future full;
  expect(meron_gather_begin(&full, &tensor.unit, 1, nullptr, expect.error()));
  expect(meron_future_wait(full, MERON_TIMEOUT_DEFAULT, expect.error()));
  expect(meron_future_release(full, expect.error()));
}

void measure(const Effort& effort) {
  MeronRank rank;
  const Tensor tensor(rank, "tensor", 1024);
  rank.ranks.measure("only lease", 0, effort, [&] { gather(tensor); });
  meron_future held;
  expect(meron_gather_begin(&held, &tensor.unit, 1, nullptr, expect.error()));
  expect(meron_future_wait(held, MERON_TIMEOUT_DEFAULT, expect.error()));
  rank.ranks.measure("leased already", 0, effort, [&] { gather(tensor); });
  expect(meron_future_release(held, expect.error()));
  rank.ranks.print();
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  using namespace meron::bench;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  measure(quick ? kQuickEffort : Effort{});
  return 0;
}
