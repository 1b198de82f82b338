// SPDX-License-Identifier: Apache-2.0
// One tensor, cut over all ranks: gathered, changed by its owners, gathered again.
//
//   meron run -n 3 -- gather
//
// Exit code 0 when every rank saw what it should.
#include <cinttypes>
#include <cstdio>
#include <meron/meron.hpp>
#include <vector>

namespace {

constexpr int kRows = 8;
constexpr int kColumns = 1000;

// The elements that a rank owns.
struct Part {
  uint64_t offset = 0, count = 0;
};

// Rows of equal size: row r goes from rank r to all others.
template <class T>
void share_rows(const meron::Group& world, std::vector<T>& rows) {
  const auto ranks = static_cast<size_t>(world.size());
  const size_t columns = rows.size() / ranks;
  for (size_t r = 0; r < ranks; ++r) {
    world.broadcast(meron::Span<T>(&rows[r * columns], columns), static_cast<int32_t>(r));
  }
}

// Each rank writes the part that it owns, in place: element i becomes i + shift.
void write_own_part(const meron::Unit& unit, const meron::Param& table, float shift) {
  meron::Update update = meron::update(unit);  // all ranks have released it
  const meron::MutableView part = update.view(table);
  const auto values = part.as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(part.offset() + i) + shift;
  }
  update.publish();
}

// Gathers the tensor and compares each element with what its owner wrote: i + shift * (rank + 1).
// `seen` receives the first element of each rank's part. Returns how many elements are wrong.
uint64_t gather_and_compare(const meron::Unit& unit, const meron::Param& table,
                            const std::vector<Part>& parts, float shift, float* seen) {
  const meron::Gather full = meron::gather(unit);
  const auto values = full.view(table).as<float>();  // the peers' own memory: nothing was copied
  uint64_t wrong = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    const uint64_t begin = parts[r].offset, end = begin + parts[r].count;
    for (uint64_t i = begin; i < end; ++i) {
      if (values[i] != static_cast<float>(i) + shift * static_cast<float>(r + 1)) ++wrong;
    }
    seen[r] = parts[r].count != 0 ? values[begin] : 0.0F;
  }
  return wrong;
}

void print_seen(const char* title, const std::vector<Part>& parts, const std::vector<float>& seen) {
  std::printf("\n%s\n  element ", title);
  for (const Part& part : parts) {
    if (part.count != 0) std::printf("%9" PRIu64, part.offset);
  }
  for (size_t r = 0; r < parts.size(); ++r) {
    std::printf("\n  rank %-3zu", r);
    for (size_t owner = 0; owner < parts.size(); ++owner) {
      if (parts[owner].count == 0) continue;
      std::printf("%9.0f", static_cast<double>(seen[r * parts.size() + owner]));
    }
  }
  std::printf("\n");
}

int run() {
  const meron::Context context;  // plan zero3: parameters are cut too
  const meron::Group world = context.world();
  const auto rank = static_cast<size_t>(world.rank());
  const auto ranks = static_cast<size_t>(world.size());

  // A param says what a tensor is; a unit gives it memory, on each rank its part.
  const meron::Param table = context.param("table", {kRows, kColumns});
  const meron::Unit unit = context.unit("table", table);

  std::vector<Part> parts(ranks);
  const meron_param_info info = table.info();
  parts[rank] = {info.shard_offset, info.shard_count};
  share_rows(world, parts);
  if (rank == 0) {
    std::printf("A tensor of %d x %d over %zu rank%s.\n", kRows, kColumns, ranks,
                ranks == 1 ? "" : "s");
    for (size_t r = 0; r < ranks; ++r) {
      std::printf("  rank %zu owns %5" PRIu64 " elements, from %" PRIu64 "\n", r, parts[r].count,
                  parts[r].offset);
    }
  }

  std::vector<float> seen(ranks * ranks);  // a row per rank
  write_own_part(unit, table, 0);
  uint64_t wrong = gather_and_compare(unit, table, parts, 0, &seen[rank * ranks]);
  share_rows(world, seen);
  if (rank == 0) print_seen("Gathered, every rank sees all parts:", parts, seen);

  write_own_part(unit, table, 10000 * static_cast<float>(rank + 1));
  wrong += gather_and_compare(unit, table, parts, 10000, &seen[rank * ranks]);
  share_rows(world, seen);
  if (rank == 0) {
    print_seen("Each rank has added 10000 x (rank + 1) to its part. Gathered again:", parts, seen);
  }

  if (wrong != 0) {
    std::fprintf(stderr, "gather: rank %zu: %" PRIu64 " elements are wrong\n", rank, wrong);
  }
  world.barrier();  // no rank closes while others still read its memory
  return wrong != 0 ? 1 : 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const meron::Error& error) {
    std::fprintf(stderr, "gather: %s\n", error.what());
    return 1;
  }
}
