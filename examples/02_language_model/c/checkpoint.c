/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The save also keeps the state of the run that Meron does not have, as JSON. The choice of
 * examples depends on the seed and on the number of micro-batches of all ranks. */
static const char kExtra[] = "{\"micro_batches\": %" PRIu64 ", \"seed\": %ld, \"loss\": %s}";

int resume(struct trainer* t, char* problem, size_t problem_size) {
  const char* folder = t->options->resume;
  meron_checkpoint loaded;
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.optimizers = &t->optimizer;
  options.optimizer_count = 1;
  if (meron_checkpoint_load(&loaded, t->context, folder, NULL, &options, &err) != MERON_OK) {
    snprintf(problem, problem_size, "--resume %s: %s", folder, meron_error_message(err));
    return -1;
  }
  meron_checkpoint_info info = MERON_CHECKPOINT_INFO_INIT;
  check(meron_checkpoint_get_info(&info, loaded, &err));
  const char *path, *extra;
  check(meron_checkpoint_text(&path, loaded, MERON_CHECKPOINT_TEXT_PATH, &err));
  check(meron_checkpoint_text(&extra, loaded, MERON_CHECKPOINT_TEXT_EXTRA, &err));
  const char* position = strstr(extra, "\"micro_batches\":");
  int result = -1;
  if (!position || sscanf(position, "\"micro_batches\": %" SCNu64, &t->position) != 1) {
    snprintf(problem, problem_size, "--resume %s: %s was not saved by this program", folder, path);
  } else if (info.step >= (uint64_t)t->options->steps) {
    snprintf(problem, problem_size,
             "--resume %s: step %" PRIu64 " was saved, and --steps %ld is no more; raise it",
             folder, info.step, t->options->steps);
  } else {
    t->first = (long)info.step;
    if (t->rank == 0 && !t->options->quiet)
      printf("resumed step %ld of %s, saved by %" PRIu32 " rank%s\n", t->first, path, info.world,
             info.world == 1 ? "" : "s");
    result = 0;
  }
  check(meron_checkpoint_release(loaded, &err)); /* what was loaded stays */
  return result;
}

bool save_is_due(const struct trainer* t, long step) {
  const struct options* options = t->options;
  if (!options->save) return false;
  return step == options->steps || (options->save_every && step % options->save_every == 0);
}

void save_begin(struct trainer* t, long step, float loss) {
  save_finish(t);
  const uint64_t taken = (uint64_t)((step - t->first) * t->options->accumulate * t->ranks);
  char name[32], number[32] = "null", extra[128]; /* JSON has no NaN */
  if (isfinite(loss)) snprintf(number, sizeof number, "%.9g", (double)loss);
  snprintf(name, sizeof name, "step-%06ld", step);
  snprintf(extra, sizeof extra, kExtra, t->position + taken, t->options->seed, number);
  meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
  options.step = (uint64_t)step;
  options.keep = 2;
  options.overwrite = 1; /* of a run that went on from an earlier step */
  options.extra = extra;
  options.optimizers = &t->optimizer;
  options.optimizer_count = 1;
  check(
      meron_checkpoint_save_begin(&t->saving, t->context, t->options->save, name, &options, &err));
}

void save_finish(struct trainer* t) {
  if (t->saving.id) finish(t->saving);
  t->saving.id = 0;
}
