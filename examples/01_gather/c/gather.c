/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tensor, cut over all ranks: gathered, changed by its owners, gathered again.
 *
 *   meron run -n 3 -- gather
 *
 * Exit code 0 when every rank saw what it should.
 */
#include <inttypes.h>
#include <meron/meron.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 8, kColumns = 1000, kCount = kRows * kColumns };

/* The error of the last failed call. check() reads it. */
static meron_error* err;

static void check(meron_status status) {
  if (status == MERON_OK) return;
  fprintf(stderr, "gather: %s\n", meron_error_message(err));
  exit(1);
}

static void finish(meron_future future) {
  check(meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &err));
  check(meron_future_release(future, &err));
}

/* rows[r] goes from rank r to all others. */
static void share_rows(meron_group world, void* rows, size_t row_bytes, int32_t ranks) {
  for (int32_t r = 0; r < ranks; ++r) {
    meron_future sent;
    check(meron_broadcast_begin(&sent, world, (char*)rows + (size_t)r * row_bytes, row_bytes, r,
                                &err));
    finish(sent);
  }
}

/* Each rank writes the part that it owns, in place: element i becomes i + shift. */
static void write_own_part(meron_unit unit, meron_param param, float shift) {
  meron_future update;
  meron_view part;
  check(meron_update_begin(&update, &unit, 1, &err));
  check(meron_future_wait(update, MERON_TIMEOUT_DEFAULT, &err)); /* all ranks have released it */
  check(meron_update_view(&part, update, param, &err));
  float* values = part.data;
  for (uint64_t i = 0; i < part.count; ++i) values[i] = (float)(part.offset + i) + shift;
  check(meron_update_publish(update, &err));
}

/* The elements that a rank owns. */
struct part {
  uint64_t offset, count;
};

/*
 * Gathers the tensor and compares each element with what its owner wrote: i + shift * (rank + 1).
 * `seen` receives the first element of each rank's part. Returns how many elements are wrong.
 */
static uint64_t gather_and_compare(meron_unit unit, meron_param param, const struct part* parts,
                                   int32_t ranks, float shift, float* seen) {
  meron_future gather;
  meron_view whole;
  check(meron_gather_begin(&gather, &unit, 1, NULL, &err));
  check(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &err));
  check(meron_gather_view(&whole, gather, param, &err));
  const float* values = whole.data; /* the peers' own memory: nothing was copied */

  uint64_t wrong = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    const uint64_t begin = parts[r].offset, end = begin + parts[r].count;
    for (uint64_t i = begin; i < end; ++i)
      if (values[i] != (float)i + shift * (float)(r + 1)) ++wrong;
    seen[r] = parts[r].count ? values[begin] : 0.0f;
  }
  check(meron_future_release(gather, &err));
  return wrong;
}

static void print_seen(const char* title, const struct part* parts, const float* seen,
                       int32_t ranks) {
  printf("\n%s\n  element ", title);
  for (int32_t r = 0; r < ranks; ++r)
    if (parts[r].count) printf("%9" PRIu64, parts[r].offset);
  for (int32_t r = 0; r < ranks; ++r) {
    printf("\n  rank %-3d", (int)r);
    for (int32_t owner = 0; owner < ranks; ++owner)
      if (parts[owner].count) printf("%9.0f", (double)seen[r * ranks + owner]);
  }
  printf("\n");
}

int main(void) {
  meron_context context;
  meron_group world;
  int32_t rank, ranks;
  check(meron_context_open(&context, NULL, &err)); /* plan zero3: parameters are cut too */
  check(meron_context_world(&world, context, &err));
  check(meron_context_rank(&rank, context, &err));
  check(meron_context_world_size(&ranks, context, &err));

  /* A param says what a tensor is; a unit gives it memory, on each rank its part. */
  const int64_t shape[] = {kRows, kColumns};
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "table";
  desc.shape = shape;
  desc.dims = 2;
  meron_param table;
  meron_unit unit;
  check(meron_param_register(&table, context, &desc, &err));
  check(meron_unit_create(&unit, context, "table", &table, 1, &err));

  const size_t side = (size_t)ranks;
  struct part* parts = calloc(side, sizeof *parts);
  float* seen = calloc(side * side, sizeof *seen); /* a row per rank */
  if (!parts || !seen) return 1;

  meron_param_info info = MERON_PARAM_INFO_INIT;
  check(meron_param_get_info(&info, table, &err));
  parts[rank] = (struct part){info.shard_offset, info.shard_count};
  share_rows(world, parts, sizeof *parts, ranks);
  if (rank == 0) {
    printf("A tensor of %d x %d over %d rank%s.\n", kRows, kColumns, (int)ranks,
           ranks == 1 ? "" : "s");
    for (int32_t r = 0; r < ranks; ++r)
      printf("  rank %d owns %5" PRIu64 " elements, from %" PRIu64 "\n", (int)r, parts[r].count,
             parts[r].offset);
  }

  write_own_part(unit, table, 0.0f);
  uint64_t wrong = gather_and_compare(unit, table, parts, ranks, 0.0f, &seen[rank * ranks]);
  share_rows(world, seen, side * sizeof *seen, ranks);
  if (rank == 0) print_seen("Gathered, every rank sees all parts:", parts, seen, ranks);

  write_own_part(unit, table, 10000.0f * (float)(rank + 1));
  wrong += gather_and_compare(unit, table, parts, ranks, 10000.0f, &seen[rank * ranks]);
  share_rows(world, seen, side * sizeof *seen, ranks);
  if (rank == 0)
    print_seen("Each rank has added 10000 x (rank + 1) to its part. Gathered again:", parts, seen,
               ranks);

  if (wrong) fprintf(stderr, "gather: rank %d: %" PRIu64 " elements are wrong\n", (int)rank, wrong);
  meron_future all_done; /* no rank closes while others still read its memory */
  check(meron_barrier_begin(&all_done, world, &err));
  finish(all_done);
  check(meron_context_close(context, &err));
  free(seen);
  free(parts);
  return wrong ? 1 : 0;
}
