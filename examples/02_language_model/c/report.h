/* SPDX-License-Identifier: Apache-2.0 */
/* Output for people, and the JSON file. Everything here runs on rank 0 alone. */
#ifndef LANGUAGE_MODEL_REPORT_H
#define LANGUAGE_MODEL_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

/* Counters of one rank in training, and the predictions of the plan, in bytes. */
struct figures {
  uint64_t mapped, copied, reduced;                         /* in all steps together */
  uint64_t planned_mapped, planned_copied, planned_reduced; /* in one step */
  uint64_t peak, planned_peak, arena_pages;
  bool between_nodes; /* some of the peers share no memory with this rank */
};

struct summary {
  const struct options* options;
  int32_t ranks;
  const char* transport;
  const char* plan; /* as JSON */
  uint64_t parameters, units, text_bytes;
  long steps;          /* that were taken */
  const float* losses; /* one per step */
  double seconds;
  const struct figures* figures; /* one per rank */
};

/* Says what is about to be trained. */
void report_begin(const struct summary* summary);

/* Shows how far the training is, which began after step `first`: `loss` is the mean over the steps
 * since the last call. */
void report_progress(long first, long step, long steps, float loss, double seconds);

/* The first and the last loss: of step 1, and the mean over the last twentieth of the steps. */
float first_loss(const struct summary* summary);
float last_loss(const struct summary* summary);
/* After how many steps the progress is shown: a fiftieth of them. */
long steps_per_report(long steps);

/* Counted bytes equal the plan's to the byte, and peak memory is within 5 % of it. */
bool figures_as_planned(const struct figures* figures, long steps);

void report_summary(const struct summary* summary);

/* 0, or an errno. */
int report_json(const struct summary* summary, const char* path);

#endif
