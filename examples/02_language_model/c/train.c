/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"
#include "report.h"
#include "sixteen.h"

meron_error* err;

void check(meron_status status) {
  if (status == MERON_OK) return;
  fprintf(stderr, "language_model: %s\n", meron_error_message(err));
  exit(1);
}

void* check_memory(void* memory) {
  if (memory) return memory;
  fprintf(stderr, "language_model: no memory left: lower --width, --layers or --batch\n");
  exit(1);
}

void finish(meron_future future) {
  check(meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &err));
  check(meron_future_release(future, &err));
}

/* --- Setting up -------------------------------------------------------------------------------*/

/* Registers the tensors of a layer and makes them a unit. */
static void create_layer(struct trainer* t, size_t l) {
  struct layer* layer = &t->layers[l];
  struct tensor tensors[kMaxTensors];
  char name[64];
  layer->count = model_layer_tensors(&t->model, l, tensors);
  for (size_t i = 0; i < layer->count; ++i) {
    snprintf(name, sizeof name, "layers.%zu.%s", l, tensors[i].name);
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = name;
    desc.dtype = t->options->dtype;
    desc.shape = tensors[i].shape;
    desc.dims = tensors[i].dims;
    check(meron_param_register(&layer->params[i], t->context, &desc, &err));

    meron_param_info info = MERON_PARAM_INFO_INIT;
    check(meron_param_get_info(&info, layer->params[i], &err));
    layer->sizes[i] = info.count;
    t->parameters += info.count;
  }
  snprintf(name, sizeof name, "layers.%zu", l);
  check(meron_unit_create(&layer->unit, t->context, name, layer->params, layer->count, &err));
}

/* Every rank computes the same initial values; Meron keeps this rank's part of them. */
static void write_initial_values(struct trainer* t, size_t l) {
  const struct layer* layer = &t->layers[l];
  struct tensor tensors[kMaxTensors];
  meron_future update;
  model_layer_tensors(&t->model, l, tensors);
  check(meron_update_begin(&update, &layer->unit, 1, &err));
  check(meron_future_wait(update, MERON_TIMEOUT_DEFAULT, &err));
  for (size_t i = 0; i < layer->count; ++i) {
    float* values = t->wide_weights[i];
    tensor_initialize(&tensors[i], (uint64_t)t->options->seed, l * kMaxTensors + i, values,
                      layer->sizes[i]);
    check(meron_update_write(update, layer->params[i], values, layer->sizes[i], MERON_F32, &err));
  }
  check(meron_update_publish(update, &err));
}

static void create_optimizer(struct trainer* t) {
  meron_unit* units = check_memory(calloc(t->layer_count, sizeof *units));
  for (size_t l = 0; l < t->layer_count; ++l) units[l] = t->layers[l].unit;
  meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
  options.learning_rate = t->options->learning_rate;
  options.beta1 = 0.6; /* more momentum would carry the first steps past what they aim at */
  options.max_norm = 1.0;
  check(meron_optimizer_create(&t->optimizer, units, t->layer_count, &options, &err));
  free(units);
}

void trainer_create(struct trainer* t, meron_context context, const struct options* options,
                    const struct text* text) {
  *t = (struct trainer){.context = context, .options = options, .text = text};
  check(meron_context_world(&t->world, context, &err));
  check(meron_context_rank(&t->rank, context, &err));
  check(meron_context_world_size(&t->ranks, context, &err));

  if (model_create(&t->model, options->batch, options->context, options->width,
                   (size_t)options->layers))
    check_memory(NULL);
  t->layer_count = model_layer_count(&t->model);
  t->layers = check_memory(calloc(t->layer_count, sizeof *t->layers));
  t->reductions = check_memory(calloc(t->layer_count, sizeof *t->reductions));

  uint64_t largest[kMaxTensors] = {1, 1, 1, 1};
  for (size_t l = 0; l < t->layer_count; ++l) {
    create_layer(t, l);
    for (size_t i = 0; i < t->layers[l].count; ++i)
      if (t->layers[l].sizes[i] > largest[i]) largest[i] = t->layers[l].sizes[i];
  }
  for (size_t i = 0; i < kMaxTensors; ++i) {
    t->wide_weights[i] = check_memory(calloc(largest[i], sizeof(float)));
    t->wide_gradients[i] = check_memory(calloc(largest[i], sizeof(float)));
  }
  for (size_t l = 0; l < t->layer_count; ++l) write_initial_values(t, l);
  create_optimizer(t);
}

/* Units, params and the optimizer's states live as long as the context. */
void trainer_destroy(struct trainer* t) {
  for (size_t i = 0; i < kMaxTensors; ++i) {
    free(t->wide_weights[i]);
    free(t->wide_gradients[i]);
  }
  free(t->reductions);
  free(t->layers);
  model_destroy(&t->model);
}

/* --- Training ---------------------------------------------------------------------------------*/

/* Makes a layer whole on this rank, until meron_future_release. */
static meron_future gather_layer(struct trainer* t, const struct layer* layer,
                                 const float* weights[kMaxTensors]) {
  meron_future gather;
  check(meron_gather_begin(&gather, &layer->unit, 1, NULL, &err));
  check(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &err));
  for (size_t i = 0; i < layer->count; ++i) {
    meron_view view;
    check(meron_gather_view(&view, gather, layer->params[i], &err));
    weights[i] = view.data;
    if (view.dtype != MERON_F32) {
      widen(t->wide_weights[i], view.data, view.count, view.dtype);
      weights[i] = t->wide_weights[i];
    }
  }
  return gather;
}

static void forward(struct trainer* t, size_t l) {
  const float* weights[kMaxTensors];
  const meron_future gather = gather_layer(t, &t->layers[l], weights);
  model_forward(&t->model, l, weights);
  check(meron_future_release(gather, &err));
}

/* Begins the reduction of the layer's gradients, and does not wait for it. */
static void backward(struct trainer* t, size_t l, bool boundary) {
  const struct layer* layer = &t->layers[l];
  const float* weights[kMaxTensors];
  float* gradients[kMaxTensors];
  meron_view views[kMaxTensors];

  for (size_t i = 0; i < layer->count; ++i) {
    check(meron_gradient_view(&views[i], layer->params[i], 0, &err));
    gradients[i] = views[i].data;
    if (views[i].dtype != MERON_F32) {
      gradients[i] = t->wide_gradients[i];
      memset(gradients[i], 0, views[i].count * sizeof(float));
    }
  }

  const meron_future gather = gather_layer(t, layer, weights);
  model_backward(&t->model, l, weights, gradients);
  check(meron_future_release(gather, &err));

  for (size_t i = 0; i < layer->count; ++i)
    if (views[i].dtype != MERON_F32)
      add_rounded(views[i].data, gradients[i], views[i].count, views[i].dtype);

  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT; /* a mean over the ranks */
  options.boundary = boundary;
  options.divisor = (double)t->options->accumulate;
  check(meron_reduce_begin(&t->reductions[l], layer->unit, NULL, 0, &options, &err));
}

/* Micro-batches are numbered over all ranks: one process that takes N times as many sees the same
 * examples as N ranks. */
static void choose_examples(struct trainer* t, long round) {
  const uint64_t micro_batch =
      t->position + (uint64_t)round * (uint64_t)t->ranks + (uint64_t)t->rank;
  const uint64_t stream = (UINT64_C(1) << 32) + micro_batch; /* initial values use those below */
  const uint64_t places = t->text->length - (uint64_t)t->options->context;
  for (long i = 0; i < t->options->batch; ++i)
    t->model.windows[i] =
        t->text->bytes + random_bits((uint64_t)t->options->seed, stream, (uint64_t)i) % places;
}

/* Up to the peak over the first 100 steps, and down to a tenth of it over all steps. */
static double learning_rate(const struct options* options, long step) {
  const double rise = (double)(step + 1) / 100.0;
  const double fall = 1.0 - 0.9 * (double)step / (double)options->steps;
  return options->learning_rate * (rise < fall ? rise : fall);
}

/* One step of the optimizer; the sum of the losses of this rank's micro-batches. */
static float train_step(struct trainer* t, long step) {
  const long accumulate = t->options->accumulate;
  float loss = 0.0f;
  for (long a = 0; a < accumulate; ++a) {
    choose_examples(t, (step - t->first) * accumulate + a);
    for (size_t l = 0; l < t->layer_count; ++l) forward(t, l);
    for (size_t l = t->layer_count; l-- > 0;) backward(t, l, a + 1 == accumulate);
    for (size_t l = t->layer_count; l-- > 0;) finish(t->reductions[l]);
    loss += t->model.loss;
  }
  meron_future stepped;
  check(meron_optimizer_set_learning_rate(t->optimizer, learning_rate(t->options, step), &err));
  check(meron_optimizer_step_begin(&stepped, t->optimizer, &err));
  finish(stepped);
  return loss;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double train(struct trainer* t, float* losses) {
  const long steps = t->options->steps, every = steps_per_report(steps);
  const float micro_batches = (float)(t->options->accumulate * t->ranks);
  const long first = t->first;
  const double begin = now();
  for (long step = first + 1, known = first; step <= steps; ++step) {
    losses[step - first - 1] = train_step(t, step - 1);
    if (save_is_due(t, step))
      save_begin(t, step, losses[step - first - 1] / (float)t->options->accumulate);
    if (step % every != 0 && step != steps) continue;

    /* The losses since the last report, of all ranks. */
    meron_future summed;
    float* const recent = losses + (known - first);
    const long count = step - known;
    check(meron_all_reduce_begin(&summed, t->world, recent, (size_t)count, MERON_F32,
                                 MERON_REDUCE_OP_SUM, &err));
    finish(summed);
    float mean = 0.0f;
    for (long s = 0; s < count; ++s) {
      recent[s] /= micro_batches;
      mean += recent[s] / (float)count;
    }
    known = step;
    if (t->rank == 0 && !t->options->quiet)
      report_progress(first, step, steps, mean, now() - begin);
  }
  save_finish(t);
  return now() - begin;
}
