/* SPDX-License-Identifier: Apache-2.0 */
/* From the command line to the exit code: 0, 1 (something was not as planned), 2 (bad input). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "pretrained.h"
#include "report.h"
#include "train.h"

/* The next three check the user's input. They return 0, or -1 with the problem and the remedy. */

/* A preset's name, or a file of JSON. */
static int load_plan(meron_plan* plan, const char* name, char* problem, size_t size) {
  if (!strpbrk(name, "./")) {
    if (meron_plan_preset(plan, name, &err) == MERON_OK) return 0;
    snprintf(problem, size, "--plan %s: %s", name, meron_error_message(err));
    return -1;
  }
  char reason[256];
  struct text json;
  if (text_load(&json, &name, 1, reason, sizeof reason)) {
    snprintf(problem, size,
             "--plan: %s; name zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file", reason);
    return -1;
  }
  const meron_status status = meron_plan_parse(plan, (const char*)json.bytes, json.length, &err);
  if (status != MERON_OK) snprintf(problem, size, "--plan %s: %s", name, meron_error_message(err));
  text_free(&json);
  return status == MERON_OK ? 0 : -1;
}

static int load_text(struct text* text, const struct options* options, char* problem, size_t size) {
  char reason[256];
  if (text_load(text, options->data, options->data_count, reason, sizeof reason)) {
    snprintf(problem, size,
             "--data: %s; name files that have text in them, or leave --data out to train on the "
             "licences in %s",
             reason, TEXT_DEFAULT_FOLDER);
    return -1;
  }
  if (text->length > (size_t)options->context) return 0;
  snprintf(problem, size,
           "--data: the text has %zu bytes, and one example takes %ld; name more text, or lower "
           "--context",
           text->length, options->context + 1);
  return -1;
}

static int try_output(const char* path, char* problem, size_t size) {
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!path || (file && fclose(file) == 0)) return 0;
  snprintf(problem, size, "--json: cannot write %s: %s", path, strerror(errno));
  return -1;
}

static meron_stats read_counters(meron_context context) {
  meron_stats stats = MERON_STATS_INIT;
  check(meron_context_stats(&stats, context, &err));
  return stats;
}

/* Exchanges the counters of all ranks since `before`, and the predictions of their plans. */
static void collect_figures(const struct trainer* t, const meron_stats* before,
                            struct figures* figures) {
  const meron_stats after = read_counters(t->context);
  meron_prediction plan = MERON_PREDICTION_INIT;
  meron_workload workload = MERON_WORKLOAD_INIT;
  workload.micro_batches = (uint32_t)t->options->accumulate;
  workload.gathers_per_micro_batch = 2; /* forward, backward */
  check(meron_context_predict(&plan, t->context, &workload, &err));

  figures[t->rank] = (struct figures){
      .mapped = after.gather_mapped_bytes - before->gather_mapped_bytes,
      .copied = after.gather_copied_bytes - before->gather_copied_bytes,
      .reduced = after.reduce_bytes - before->reduce_bytes,
      .planned_mapped = plan.gather_mapped_bytes,
      .planned_copied = plan.gather_copied_bytes,
      .planned_reduced = plan.reduce_bytes,
      .peak = after.peak_bytes,
      .planned_peak = plan.peak_bytes,
      .arena_pages = after.arena_pages_bytes,
      .between_nodes = plan.inter_node_gather_bytes + plan.inter_node_reduce_bytes > 0,
  };
  for (int32_t r = 0; r < t->ranks; ++r) {
    meron_future sent;
    check(meron_broadcast_begin(&sent, t->world, &figures[r], sizeof *figures, r, &err));
    finish(sent);
  }
}

/* Trains; rank 0 reports. Returns the exit code. */
static int run(meron_context context, meron_plan plan, const struct options* options,
               const struct text* text) {
  struct trainer trainer;
  choose_product(options->product);
  trainer_create(&trainer, context, options, text);
  const bool speaks = trainer.rank == 0;

  char problem[1024];
  if ((options->resume && resume(&trainer, problem, sizeof problem)) ||
      (options->from && start_from(&trainer, problem, sizeof problem))) {
    if (speaks) fprintf(stderr, "language_model: %s\n", problem);
    trainer_destroy(&trainer);
    return 2;
  }
  const long steps = options->steps - trainer.first;

  float* losses = check_memory(calloc((size_t)steps, sizeof *losses));
  struct figures* figures = check_memory(calloc((size_t)trainer.ranks, sizeof *figures));
  char* plan_json = NULL;
  check(meron_plan_json(&plan_json, plan, &err));
  struct summary summary = {.options = options,
                            .ranks = trainer.ranks,
                            .plan = plan_json,
                            .parameters = trainer.parameters,
                            .units = trainer.layer_count,
                            .text_bytes = text->length,
                            .steps = steps,
                            .losses = losses,
                            .figures = figures};
  check(meron_context_transport(&summary.transport, context, &err));
  if (speaks && !options->quiet) report_begin(&summary);

  const meron_stats before = read_counters(context);
  summary.seconds = train(&trainer, losses);
  collect_figures(&trainer, &before, figures);
  if (options->export) publish(&trainer);

  int code = 0;
  for (int32_t r = 0; r < trainer.ranks; ++r)
    if (!figures_as_planned(&figures[r], steps)) code = 1;
  if (speaks && !options->quiet) report_summary(&summary);
  if (speaks && code) fprintf(stderr, "language_model: counters and plan differ\n");
  const int error = speaks && options->json ? report_json(&summary, options->json) : 0;
  if (error) {
    fprintf(stderr, "language_model: cannot write %s: %s\n", options->json, strerror(error));
    code = 1;
  }

  meron_string_free(plan_json);
  free(figures);
  free(losses);
  trainer_destroy(&trainer);
  return code;
}

int main(int argc, char* argv[]) {
  struct options options;
  struct text text = {0};
  meron_plan plan = {0};
  char problem[1024] = "";

  /* The user's input is checked before the ranks meet, and reported after: every rank finds the
   * same error, and one rank reports it. */
  if (options_parse(&options, argc, argv, problem, sizeof problem) == 0 && !options.help &&
      load_plan(&plan, options.plan, problem, sizeof problem) == 0 &&
      load_text(&text, &options, problem, sizeof problem) == 0)
    try_output(options.json, problem, sizeof problem);

  meron_context context;
  meron_context_options context_options = MERON_CONTEXT_OPTIONS_INIT;
  context_options.plan = plan;
  check(meron_context_open(&context, &context_options, &err));
  int32_t rank;
  check(meron_context_rank(&rank, context, &err));

  int code = 0;
  if (*problem) {
    if (rank == 0) fprintf(stderr, "language_model: %s\n", problem);
    code = 2;
  } else if (options.help) {
    if (rank == 0) fputs(options_help, stdout);
  } else {
    code = run(context, plan, &options, &text);
  }

  /* `meron run` ends the job when a rank leaves with an error: let rank 0 have said why first. */
  meron_group world;
  meron_future all_here;
  check(meron_context_world(&world, context, &err));
  check(meron_barrier_begin(&all_here, world, &err));
  finish(all_here);

  check(meron_context_close(context, &err));
  if (plan.id) check(meron_plan_release(plan, &err));
  meron_error_free(err);
  text_free(&text);
  options_free(&options);
  return code;
}
