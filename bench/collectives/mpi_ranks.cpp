// SPDX-License-Identifier: Apache-2.0
// The arms of `tools/bench collectives` that MPI runs: see README.md.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "bench/collectives/values.h"

namespace meron::bench {
namespace {

void expect(int result) {
  if (result != MPI_SUCCESS) give_up("an MPI call failed");
}

class Collectives {
 public:
  Collectives(size_t bytes, const Ranks& ranks)
      : ranks_(ranks),
        part_(bytes / sizeof(float) / static_cast<size_t>(ranks.size)),
        full_(part_ * static_cast<size_t>(ranks.size)),
        shard_(part_),
        counts_(static_cast<size_t>(ranks.size), static_cast<int>(part_)) {}

  void all_gather() {
    expect(MPI_Allgather(shard_.data(), part_count(), MPI_FLOAT, full_.data(), part_count(),
                         MPI_FLOAT, MPI_COMM_WORLD));
  }
  void reduce_scatter() {
    expect(MPI_Reduce_scatter(full_.data(), shard_.data(), counts_.data(), MPI_FLOAT, MPI_SUM,
                              MPI_COMM_WORLD));
  }
  void reduce_scatter_block() {
    expect(MPI_Reduce_scatter_block(full_.data(), shard_.data(), part_count(), MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD));
  }
  void reader_pass() { use(sum_of(full_.data(), full_.count())); }

  void check_values() {
    const uint64_t offset = part_ * static_cast<uint64_t>(ranks_.rank);
    for (size_t i = 0; i < part_; ++i) shard_.data()[i] = parameter_value(offset + i, 1);
    all_gather();
    check_gathered(full_.data(), full_.count(), 1);
    fill_gradient(full_.data(), full_.count(), ranks_.rank);
    reduce_scatter();
    check_reduced(shard_.data(), part_, offset, ranks_.size);
    reduce_scatter_block();
    check_reduced(shard_.data(), part_, offset, ranks_.size);
  }

 private:
  int part_count() const { return static_cast<int>(part_); }

  const Ranks& ranks_;
  size_t part_;  // elements per rank
  Floats full_;
  Floats shard_;
  std::vector<int> counts_;
};

void measure_size(Ranks& ranks, size_t bytes, const Effort& effort) {
  Collectives collectives(bytes, ranks);
  collectives.check_values();
  ranks.measure("gather", bytes, effort, [&] { collectives.all_gather(); });
  ranks.measure("gather + pass", bytes, effort, [&] {
    collectives.all_gather();
    collectives.reader_pass();
  });
  ranks.measure("reduce", bytes, effort, [&] { collectives.reduce_scatter(); });
  ranks.measure("reduce block", bytes, effort, [&] { collectives.reduce_scatter_block(); });
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  using namespace meron::bench;
  const Arguments arguments = read_arguments(argc, argv);
  expect(MPI_Init(nullptr, nullptr));
  Ranks ranks;
  expect(MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank));
  expect(MPI_Comm_size(MPI_COMM_WORLD, &ranks.size));
  pin(ranks.rank, ranks.size);
  ranks.barrier = [] { expect(MPI_Barrier(MPI_COMM_WORLD)); };
  ranks.largest = [](double value) {
    double largest = 0;
    expect(MPI_Allreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return largest;
  };
  for (const size_t bytes : arguments.sizes) measure_size(ranks, bytes, arguments.effort);
  ranks.print();
  expect(MPI_Finalize());
  return 0;
}
