/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hand-written backward pass of examples/02_language_model, tensor by tensor, against finite
 * differences of its forward pass; and that gradients are added, not set. Sizes are odd on purpose:
 * the tiles of the matrix product must cope with remainders.
 */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 7, kContext = 3, kWidth = 27, kBlocks = 2, kLayers = kBlocks + 2, kSeed = 5 };

static struct model model;
static float* weights[kLayers][kMaxTensors];
static float* gradients[kLayers][kMaxTensors];
static size_t tensor_count[kLayers];
static struct tensor tensors[kLayers][kMaxTensors];
static int failures;

static size_t elements(const struct tensor* tensor) {
  return (size_t)(tensor->shape[0] * (tensor->dims == 2 ? tensor->shape[1] : 1));
}

static double loss(void) {
  for (int64_t layer = 0; layer < kLayers; ++layer)
    model_forward(&model, layer, (const float* const*)weights[layer]);
  return model.loss;
}

static void backward(void) {
  for (int64_t layer = kLayers - 1; layer >= 0; --layer)
    model_backward(&model, layer, (const float* const*)weights[layer], gradients[layer]);
}

static void expect(int condition, const char* what, int layer, const char* tensor, double got,
                   double wanted) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "layer %d, %s: %s: got %.6g, expected %.6g\n", layer, tensor, what, got, wanted);
}

/* Along the gradient's own direction, where the difference is largest and rounding matters least.
 */
static void check_tensor(int layer, size_t index) {
  const size_t count = elements(&tensors[layer][index]);
  float* w = weights[layer][index];
  const float* g = gradients[layer][index];
  float* saved = malloc(count * sizeof(float));
  double squares = 0.0;
  memcpy(saved, w, count * sizeof(float));
  for (size_t i = 0; i < count; ++i) squares += (double)g[i] * g[i];

  const double length = sqrt(squares), step = 4e-3 / length;
  for (size_t i = 0; i < count; ++i) w[i] = (float)(saved[i] + step * g[i]);
  const double above = loss();
  for (size_t i = 0; i < count; ++i) w[i] = (float)(saved[i] - step * g[i]);
  const double below = loss();
  memcpy(w, saved, count * sizeof(float));
  free(saved);

  const double slope = (above - below) / (2.0 * step);
  expect(fabs(slope - squares) < 0.01 * squares, "slope along the gradient", layer,
         tensors[layer][index].name, slope, squares);
}

int main(void) {
  uint8_t text[kBatch + kContext];
  for (size_t i = 0; i < sizeof text; ++i) text[i] = (uint8_t)random_bits(kSeed, 1000, i);
  if (model_create(&model, kBatch, kContext, kWidth, kBlocks)) return 2;
  for (int i = 0; i < kBatch; ++i) model.windows[i] = text + i;

  for (int layer = 0; layer < kLayers; ++layer) {
    tensor_count[layer] = model_layer_tensors(&model, layer, tensors[layer]);
    for (size_t i = 0; i < tensor_count[layer]; ++i) {
      struct tensor wide = tensors[layer][i];
      const size_t count = elements(&wide);
      weights[layer][i] = calloc(count, sizeof(float));
      gradients[layer][i] = calloc(count, sizeof(float));
      if (!weights[layer][i] || !gradients[layer][i]) return 2;
      /* Biases and head start at or near zero: too small for a difference to show. */
      if (wide.bound < 0.1) wide.bound = 0.1;
      tensor_initialize(&wide, kSeed, (uint64_t)layer * kMaxTensors + i, weights[layer][i], count);
    }
  }

  loss();
  backward();
  for (int layer = 0; layer < kLayers; ++layer)
    for (size_t i = 0; i < tensor_count[layer]; ++i) check_tensor(layer, i);

  /* Once more on top: exactly twice the gradient. */
  static float* once[kLayers][kMaxTensors];
  for (int layer = 0; layer < kLayers; ++layer)
    for (size_t i = 0; i < tensor_count[layer]; ++i) {
      const size_t bytes = elements(&tensors[layer][i]) * sizeof(float);
      once[layer][i] = malloc(bytes);
      memcpy(once[layer][i], gradients[layer][i], bytes);
    }
  loss();
  backward();
  for (int layer = 0; layer < kLayers; ++layer)
    for (size_t i = 0; i < tensor_count[layer]; ++i)
      for (size_t x = 0; x < elements(&tensors[layer][i]); ++x) {
        const float twice = 2.0f * once[layer][i][x];
        if (gradients[layer][i][x] != twice) {
          expect(0, "second pass", layer, tensors[layer][i].name, gradients[layer][i][x], twice);
          break;
        }
      }

  if (!failures) printf("gradients agree with finite differences\n");
  return failures != 0;
}
