/* SPDX-License-Identifier: Apache-2.0 */
/* Starting from published weights, and publishing the result, in Hugging Face's layout. */
#ifndef LANGUAGE_MODEL_PRETRAINED_H
#define LANGUAGE_MODEL_PRETRAINED_H

#include "train.h"

/*
 * Loads the weights of --from, at any number of ranks and under any plan, and reports it on rank 0.
 * The optimizer starts anew. 0, or -1 with what is wrong in `problem`, the same on all ranks.
 * Collective.
 */
int start_from(struct trainer* trainer, char* problem, size_t problem_size);

/* Publishes the weights in the directory of --export. Collective. */
void publish(const struct trainer* trainer);

#endif
