/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

/* --- The model's shape ------------------------------------------------------------------------*/

/* Every row of c[m][n] becomes `row`. */
static void set_rows(float* c, const float* row, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i) memcpy(c + i * n, row, (size_t)n * sizeof(float));
}

static float* floats(size_t rows, int64_t columns) {
  return calloc(rows * (size_t)columns, sizeof(float));
}

int model_create(struct model* model, int64_t batch, int64_t context, int64_t width,
                 size_t blocks) {
  const int64_t widest = width > kByteValues ? width : kByteValues;
  const int64_t longest = batch > widest ? batch : widest;
  *model = (struct model){
      .batch = batch,
      .context = context,
      .width = width,
      .blocks = blocks,
      .windows = calloc((size_t)batch, sizeof(*model->windows)),
      .hidden = floats(blocks + 1, batch * width),
      .inner = floats(blocks ? blocks : 1, batch * width),
      .logits_error = floats(kByteValues, batch),
      .hidden_error = floats(1, batch * width),
      .inner_error = floats(1, batch * width),
      .bytes_error = floats(kByteValues, width / context),
      .panel = floats(kTileColumns, longest),
  };
  if (model->windows && model->hidden && model->inner && model->logits_error &&
      model->hidden_error && model->inner_error && model->bytes_error && model->panel)
    return 0;
  model_destroy(model);
  return -1;
}

void model_destroy(struct model* model) {
  free(model->windows);
  free(model->hidden);
  free(model->inner);
  free(model->logits_error);
  free(model->hidden_error);
  free(model->inner_error);
  free(model->bytes_error);
  free(model->panel);
  *model = (struct model){0};
}

size_t model_layer_count(const struct model* model) {
  return model->blocks + 2;
}

size_t model_layer_tensors(const struct model* model, size_t layer,
                           struct tensor tensors[kMaxTensors]) {
  const int64_t width = model->width;
  const double unit = sqrt(3.0 / (double)width); /* keeps the variance of what passes through */
  if (layer == 0) {
    tensors[0] = (struct tensor){"bytes", {kByteValues, width / model->context}, 2, 1.0};
    return 1;
  }
  if (layer <= model->blocks) {
    tensors[0] = (struct tensor){"w1", {width, width}, 2, sqrt(2.0) * unit};
    tensors[1] = (struct tensor){"b1", {width, 0}, 1, 0.0};
    tensors[2] = (struct tensor){"w2", {width, width}, 2, unit / (double)model->blocks};
    tensors[3] = (struct tensor){"b2", {width, 0}, 1, 0.0};
    return 4;
  }
  tensors[0] = (struct tensor){"w", {width, kByteValues}, 2, 0.1 * unit};
  tensors[1] = (struct tensor){"b", {kByteValues, 0}, 1, 0.0};
  return 2;
}

/* --- Embedding --------------------------------------------------------------------------------*/

static void embedding_forward(struct model* model, const float* bytes, float* output) {
  const int64_t columns = model->width / model->context;
  for (int64_t i = 0; i < model->batch; ++i)
    for (int64_t t = 0; t < model->context; ++t)
      memcpy(output + i * model->width + t * columns, bytes + model->windows[i][t] * columns,
             (size_t)columns * sizeof(float));
}

static void embedding_backward(struct model* model, float* bytes_gradient) {
  const int64_t columns = model->width / model->context;
  float* sums = model->bytes_error;
  memset(sums, 0, (size_t)(kByteValues * columns) * sizeof(float));
  for (int64_t i = 0; i < model->batch; ++i)
    for (int64_t t = 0; t < model->context; ++t) {
      const float* error = model->hidden_error + i * model->width + t * columns;
      float* row = sums + model->windows[i][t] * columns;
      for (int64_t x = 0; x < columns; ++x) row[x] += error[x];
    }
  for (int64_t x = 0; x < kByteValues * columns; ++x) bytes_gradient[x] += sums[x];
}

/* --- Residual block ---------------------------------------------------------------------------*/

static void block_forward(struct model* model, const float* const weights[], const float* input,
                          float* inner, float* output) {
  const int64_t batch = model->batch, width = model->width;
  const float *w1 = weights[0], *b1 = weights[1], *w2 = weights[2], *b2 = weights[3];

  set_rows(inner, b1, batch, width);
  add_product(inner, rows_of(input, width), rows_of(w1, width), batch, width, width, model->panel);
  for (int64_t x = 0; x < batch * width; ++x) inner[x] = inner[x] > 0.0f ? inner[x] : 0.0f;

  set_rows(output, b2, batch, width);
  add_product(output, rows_of(inner, width), rows_of(w2, width), batch, width, width, model->panel);
  for (int64_t x = 0; x < batch * width; ++x) output[x] += input[x];
}

static void block_backward(struct model* model, const float* const weights[],
                           float* const gradients[], const float* input, const float* inner) {
  const int64_t batch = model->batch, width = model->width;
  const float *w1 = weights[0], *w2 = weights[2];
  float *error = model->hidden_error, *inner_error = model->inner_error;

  add_product(gradients[2], transpose_of(inner, width), rows_of(error, width), width, width, batch,
              model->panel);
  add_row_sums(gradients[3], error, width, batch, model->panel);

  memset(inner_error, 0, (size_t)(batch * width) * sizeof(float));
  add_product(inner_error, rows_of(error, width), transpose_of(w2, width), batch, width, width,
              model->panel);
  for (int64_t x = 0; x < batch * width; ++x)
    if (inner[x] <= 0.0f) inner_error[x] = 0.0f;

  add_product(gradients[0], transpose_of(input, width), rows_of(inner_error, width), width, width,
              batch, model->panel);
  add_row_sums(gradients[1], inner_error, width, batch, model->panel);

  /* `error` already contains the values of the residual path. */
  add_product(error, rows_of(inner_error, width), transpose_of(w1, width), batch, width, width,
              model->panel);
}

/* --- Head -------------------------------------------------------------------------------------*/

static void head_forward(struct model* model, const float* const weights[], const float* input) {
  float* logits = model->logits_error; /* turned into their error in place */
  set_rows(logits, weights[1], model->batch, kByteValues);
  add_product(logits, rows_of(input, model->width), rows_of(weights[0], kByteValues), model->batch,
              kByteValues, model->width, model->panel);

  double loss = 0.0;
  for (int64_t i = 0; i < model->batch; ++i) {
    float* row = logits + i * kByteValues;
    const uint8_t target = model->windows[i][model->context];
    float greatest = row[0], sum = 0.0f;
    for (int x = 1; x < kByteValues; ++x) greatest = row[x] > greatest ? row[x] : greatest;
    const float distance = greatest - row[target];
    for (int x = 0; x < kByteValues; ++x) sum += row[x] = expf(row[x] - greatest);
    for (int x = 0; x < kByteValues; ++x)
      row[x] = (row[x] / sum - (x == target ? 1.0f : 0.0f)) / (float)model->batch;
    loss += logf(sum) + distance;
  }
  model->loss = (float)(loss / (double)model->batch);
}

static void head_backward(struct model* model, const float* const weights[],
                          float* const gradients[], const float* input) {
  const int64_t batch = model->batch, width = model->width;
  add_product(gradients[0], transpose_of(input, width), rows_of(model->logits_error, kByteValues),
              width, kByteValues, batch, model->panel);
  add_row_sums(gradients[1], model->logits_error, kByteValues, batch, model->panel);
  memset(model->hidden_error, 0, (size_t)(batch * width) * sizeof(float));
  add_product(model->hidden_error, rows_of(model->logits_error, kByteValues),
              transpose_of(weights[0], kByteValues), batch, width, kByteValues, model->panel);
}

/* --- Any layer --------------------------------------------------------------------------------*/

/* Output of layer `layer`, the input of the next one. */
static float* output_of(const struct model* model, size_t layer) {
  return model->hidden + layer * (size_t)(model->batch * model->width);
}
static float* inner_of(const struct model* model, size_t layer) {
  return model->inner + (layer - 1) * (size_t)(model->batch * model->width);
}

void model_forward(struct model* model, size_t layer, const float* const weights[]) {
  if (layer == 0)
    embedding_forward(model, weights[0], output_of(model, 0));
  else if (layer <= model->blocks)
    block_forward(model, weights, output_of(model, layer - 1), inner_of(model, layer),
                  output_of(model, layer));
  else
    head_forward(model, weights, output_of(model, layer - 1));
}

void model_backward(struct model* model, size_t layer, const float* const weights[],
                    float* const gradients[]) {
  if (layer == 0)
    embedding_backward(model, gradients[0]);
  else if (layer <= model->blocks)
    block_backward(model, weights, gradients, output_of(model, layer - 1), inner_of(model, layer));
  else
    head_backward(model, weights, gradients, output_of(model, layer - 1));
}

/* --- Random numbers ---------------------------------------------------------------------------*/

/* SplitMix64's output function (Steele, Lea and Flood, 2014). */
static uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix(mix(mix(seed) + stream) + index);
}

void tensor_initialize(const struct tensor* tensor, uint64_t seed, uint64_t stream, float* values,
                       size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float zero_to_two = (float)(random_bits(seed, stream, i) >> 40) * 0x1p-23f;
    values[i] = (zero_to_two - 1.0f) * (float)tensor->bound;
  }
}
