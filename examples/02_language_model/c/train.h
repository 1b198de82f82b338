/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training with parameters, gradients and optimizer states partitioned over the ranks.
 *
 * Every layer is a unit. It is gathered before its forward pass and released after it, gathered
 * again for its backward pass, which adds the gradients to the unit's bucket; their reduction runs
 * while the layers below compute. The plan decides which states are sharded: no line of train.c
 * depends on it.
 */
#ifndef LANGUAGE_MODEL_TRAIN_H
#define LANGUAGE_MODEL_TRAIN_H

#include <meron/meron.h>
#include <stdint.h>

#include "model.h"
#include "options.h"
#include "text.h"

struct layer {
  meron_unit unit;
  meron_param params[kMaxTensors];
  uint64_t sizes[kMaxTensors]; /* in elements */
  size_t count;
};

struct trainer {
  const struct options* options;
  const struct text* text;
  struct model model;
  struct layer* layers;
  size_t layer_count;
  meron_future* reductions; /* one per layer */
  uint64_t parameters;

  meron_context context;
  meron_group world;
  int32_t rank, ranks;
  meron_optimizer optimizer;

  long first;          /* steps that were taken before this run */
  uint64_t position;   /* micro-batches that all ranks took in them */
  meron_future saving; /* the last save; null: none */

  /* The model computes in f32: these stand in for weights and gradients of 16 bits. */
  float* wide_weights[kMaxTensors];
  float* wide_gradients[kMaxTensors];
};

/* Makes the model's layers, with their initial values, and the optimizer. Collective. */
void trainer_create(struct trainer* trainer, meron_context context, const struct options* options,
                    const struct text* text);
void trainer_destroy(struct trainer* trainer);

/* Takes the steps up to options->steps, shows progress on rank 0, and fills `losses`, one per step,
 * with means over all ranks. Saves as the options say. Returns the seconds that it took. */
double train(struct trainer* trainer, float* losses);

/* The error of the last failed call, and the functions that handle it: check() ends the
 * program with the error's message. */
extern meron_error* err;
void check(meron_status status);
void* check_memory(void* memory);

/* Waits for a future and releases it. */
void finish(meron_future future);

#endif
