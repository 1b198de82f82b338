/* SPDX-License-Identifier: Apache-2.0 */
#include "pretrained.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Published files name tensors as transformers names those of GPT-2, and this program by its
 * layers. The mapping translates: JSON, "PARAM": "TENSOR". GPT-2's matrices are inputs x outputs
 * too.
 */
static const struct {
  const char *here, *published;
} kBlockNames[] = {{"w1", "mlp.c_fc.weight"},
                   {"b1", "mlp.c_fc.bias"},
                   {"w2", "mlp.c_proj.weight"},
                   {"b2", "mlp.c_proj.bias"}};

enum { kLineBytes = 96 }; /* more than one pair of names takes */

static char* names(const struct trainer* t) {
  const size_t size = kLineBytes * kMaxTensors * t->layer_count, head = t->layer_count - 1;
  char* json = check_memory(malloc(size));
  size_t used = (size_t)snprintf(json, size, "{\"layers.0.bytes\": \"transformer.wte.weight\"");
  for (size_t l = 1; l < head; ++l)
    for (size_t i = 0; i < kMaxTensors; ++i)
      used += (size_t)snprintf(json + used, size - used,
                               ", \"layers.%zu.%s\": \"transformer.h.%zu.%s\"", l,
                               kBlockNames[i].here, l - 1, kBlockNames[i].published);
  snprintf(json + used, size - used,
           ", \"layers.%zu.w\": \"lm_head.weight\", \"layers.%zu.b\": \"lm_head.bias\"}", head,
           head);
  return json;
}

int start_from(struct trainer* t, char* problem, size_t problem_size) {
  const char* folder = t->options->from;
  char* mapping = names(t);
  meron_checkpoint loaded;
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.values_only = 1; /* a published model has no states of an optimizer */
  options.mapping = mapping;
  const meron_status status =
      meron_checkpoint_load(&loaded, t->context, folder, NULL, &options, &err);
  free(mapping);
  if (status != MERON_OK) {
    snprintf(problem, problem_size, "--from %s: %s", folder, meron_error_message(err));
    return -1;
  }
  if (t->rank == 0 && !t->options->quiet) printf("started from the weights of %s\n", folder);
  check(meron_checkpoint_release(loaded, &err)); /* what was loaded stays */
  return 0;
}

void publish(const struct trainer* t) {
  char* mapping = names(t);
  meron_checkpoint_export_options options = MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
  options.mapping = mapping;
  options.overwrite = 1; /* of an earlier run */
  check(meron_checkpoint_export(t->context, t->options->export, &options, &err));
  free(mapping);
}
