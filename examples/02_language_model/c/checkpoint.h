/* SPDX-License-Identifier: Apache-2.0 */
/* Saving while training goes on, and going on from what was saved. */
#ifndef LANGUAGE_MODEL_CHECKPOINT_H
#define LANGUAGE_MODEL_CHECKPOINT_H

#include "train.h"

/*
 * Loads the newest complete checkpoint of --resume, whatever number of ranks and plan saved it,
 * says so on rank 0, and sets what train() goes on from. 0, or -1 with what is wrong in `problem`,
 * the same on all ranks. Collective.
 */
int resume(struct trainer* trainer, char* problem, size_t problem_size);

/* Whether a checkpoint is due after this many steps in all. */
bool save_is_due(const struct trainer* trainer, long step);

/* Begins to save, once the save before has ended. The next step waits only until its states are
 * copied. Collective. */
void save_begin(struct trainer* trainer, long step, float loss);

/* Waits until the last save has ended. */
void save_finish(struct trainer* trainer);

#endif
