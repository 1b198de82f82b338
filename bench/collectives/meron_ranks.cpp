// SPDX-License-Identifier: Apache-2.0
// The arms of `tools/bench collectives` that Meron runs: see README.md.
#include <cstring>
#include <memory>

#include "bench/collectives/values.h"
#include "bench/meron_rank.h"

namespace meron::bench {
namespace {

// Publishes a new version on every rank. With `values` the rank's part is written first.
void publish(const Tensor& tensor, int round) {
  meron_future update;
  expect(meron_update_begin(&update, &tensor.unit, 1, expect.error()));
  expect(meron_future_wait(update, MERON_TIMEOUT_DEFAULT, expect.error()));
  if (round >= 0) {
    meron_view part;
    expect(meron_update_view(&part, update, tensor.param, expect.error()));
    for (uint64_t i = 0; i < part.count; ++i) {
      static_cast<float*>(part.data)[i] = parameter_value(part.offset + i, round);
    }
  }
  expect(meron_update_publish(update, expect.error()));
}

constexpr int kWithoutWriting = -1;

// Gathers, passes the full tensor to `reader`, and releases it. `into` makes a private copy.
void gather(const Tensor& tensor, const Floats* into,
            const std::function<void(const float*, size_t)>& reader) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  meron_destination destination = {tensor.param, nullptr, 0};
  if (into != nullptr) {
    destination.data = into->data();
    destination.bytes = into->bytes();
    options.mode = MERON_GATHER_INTO;
    options.destinations = &destination;
    options.destination_count = 1;
  }
  meron_future full;
  expect(meron_gather_begin(&full, &tensor.unit, 1, &options, expect.error()));
  expect(meron_future_wait(full, MERON_TIMEOUT_DEFAULT, expect.error()));
  if (into != nullptr) {
    reader(into->data(), into->count());
  } else {
    meron_view view;
    expect(meron_gather_view(&view, full, tensor.param, expect.error()));
    reader(static_cast<const float*>(view.data), view.count);
  }
  expect(meron_future_release(full, expect.error()));
}

void no_reader(const float* data, size_t) {
  use(data);
}

void reader_pass(const float* data, size_t count) {
  use(sum_of(data, count));
}

float* gradient_bucket(const Tensor& tensor) {
  meron_view view;
  expect(meron_gradient_view(&view, tensor.param, MERON_GRADIENT_OVERWRITE, expect.error()));
  return static_cast<float*>(view.data);
}

// Reduce-scatters the bucket, or `staged`, to the ranks that own the shards.
void reduce_scatter(const Tensor& tensor, const Floats* staged,
                    const std::function<void(const meron_view&)>& reader) {
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.op = MERON_REDUCE_OP_SUM;
  meron_source source = {tensor.param, nullptr, 0, MERON_F32, 0};
  if (staged != nullptr) {
    source.data = staged->data();
    source.count = staged->count();
  }
  meron_future done;
  expect(meron_reduce_begin(&done, tensor.unit, staged != nullptr ? &source : nullptr,
                            staged != nullptr ? 1 : 0, &options, expect.error()));
  wait_and_release(done);
  if (reader) {
    meron_view part;
    expect(meron_reduced_view(&part, tensor.param, expect.error()));
    reader(part);
  }
  expect(meron_reduce_discard(tensor.unit, expect.error()));
}

void check_values(const Tensor& tensor, const Floats& copy, Floats& gradient, const Ranks& ranks) {
  for (int round = 0; round < 2; ++round) {
    publish(tensor, round);
    const auto check = [&](const float* data, size_t count) { check_gathered(data, count, round); };
    gather(tensor, nullptr, check);
    gather(tensor, &copy, check);
  }
  const auto check = [&](const meron_view& part) {
    check_reduced(static_cast<const float*>(part.data), part.count, part.offset, ranks.size);
  };
  fill_gradient(gradient.data(), gradient.count(), ranks.rank);
  for (int i = 0; i < 4; ++i) {  // every buffer of the ring is filled once
    fill_gradient(gradient_bucket(tensor), gradient.count(), ranks.rank);
    reduce_scatter(tensor, nullptr, check);
    reduce_scatter(tensor, &gradient, check);
  }
}

void measure_size(MeronRank& rank, size_t bytes, const Effort& effort) {
  const size_t count = bytes / sizeof(float);
  const Tensor tensor(rank, "tensor." + std::to_string(bytes), count);
  Floats copy(count), gradient(count);
  check_values(tensor, copy, gradient, rank.ranks);

  Ranks& ranks = rank.ranks;
  ranks.measure("memcpy", bytes, effort, [&] {
    std::memcpy(copy.data(), gradient.data(), bytes);
    use(copy.data());
  });
  ranks.measure("gather mapped", bytes, effort, [&] {
    publish(tensor, kWithoutWriting);
    gather(tensor, nullptr, no_reader);
  });
  ranks.measure("gather mapped + pass", bytes, effort, [&] {
    publish(tensor, kWithoutWriting);
    gather(tensor, nullptr, reader_pass);
  });
  ranks.measure("gather private", bytes, effort, [&] {
    publish(tensor, kWithoutWriting);
    gather(tensor, &copy, no_reader);
  });
  ranks.measure("reduce registered", bytes, effort, [&] {
    use(gradient_bucket(tensor));
    reduce_scatter(tensor, nullptr, nullptr);
  });
  ranks.measure("reduce staged", bytes, effort,
                [&] { reduce_scatter(tensor, &gradient, nullptr); });
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  using namespace meron::bench;
  const Arguments arguments = read_arguments(argc, argv);
  MeronRank rank;
  for (const size_t bytes : arguments.sizes) measure_size(rank, bytes, arguments.effort);
  rank.ranks.print();
  return 0;
}
