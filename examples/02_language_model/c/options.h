/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. */
#ifndef LANGUAGE_MODEL_OPTIONS_H
#define LANGUAGE_MODEL_OPTIONS_H

#include <meron/meron.h>
#include <stdbool.h>
#include <stddef.h>

#include "matrix.h"

struct options {
  const char** data; /* `data_count` file names, into argv; none: the default text */
  size_t data_count;
  const char* plan; /* a preset's name, or a file of JSON */
  long steps, batch, accumulate;
  long width, layers, context;
  double learning_rate;
  meron_dtype dtype;
  long seed;
  enum product product; /* kProductBlas unless the build has none */
  const char* json;     /* NULL: none */
  const char* save;     /* folder of checkpoints; NULL: none */
  long save_every;      /* steps; 0: at the end */
  const char* resume;   /* folder of checkpoints, or one of them; NULL: none */
  const char* from;     /* directory of published weights; NULL: none */
  const char* export;   /* directory to publish in; NULL: none */
  bool quiet, help;
};

/*
 * Reads argv. Always fills *options; when something is wrong it returns -1
 * and writes what, and what to do, to `problem`.
 */
int options_parse(struct options* options, int argc, char* argv[], char* problem,
                  size_t problem_size);
void options_free(struct options* options);

extern const char options_help[];

/* "f32", "bf16" or "f16". */
const char* dtype_name(meron_dtype dtype);

#endif
