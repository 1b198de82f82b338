/* SPDX-License-Identifier: Apache-2.0 */
/* Saves checkpoints while training continues, and resumes from them. */
#ifndef LANGUAGE_MODEL_CHECKPOINT_H
#define LANGUAGE_MODEL_CHECKPOINT_H

#include "train.h"

/*
 * Loads the newest complete checkpoint of --resume, saved by any number of ranks and any plan.
 * Reports it on rank 0, and sets the state from which train() continues. Returns 0, or -1 with the
 * error in `problem`, the same on all ranks. Collective.
 */
int resume(struct trainer* trainer, char* problem, size_t problem_size);

/* True if a checkpoint is due after this many steps in all. */
bool save_is_due(const struct trainer* trainer, long step);

/* Begins to save, once the save before has ended. The next step waits only until its states are
 * copied. Collective. */
void save_begin(struct trainer* trainer, long step, float loss);

/* Waits until the last save has ended. */
void save_finish(struct trainer* trainer);

#endif
