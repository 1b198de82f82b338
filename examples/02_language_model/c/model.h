/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A language model on bytes: it sees the last `context` bytes of a text and predicts the next one.
 * This file and model.c do not depend on Meron. The model is a row of layers. Each layer reads its
 * weights and writes its gradients at addresses of the caller; train.c chooses these addresses.
 *
 *   layer 0               embedding: a row of `bytes` per byte seen, side by side: `width` values
 *   layers 1 .. blocks    residual block: h + relu(h w1 + b1) w2 + b2
 *   layer blocks + 1      head: softmax(h w + b) over the 256 values of the next byte
 */
#ifndef LANGUAGE_MODEL_MODEL_H
#define LANGUAGE_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum { kByteValues = 256, kMaxTensors = 4 };

struct tensor {
  const char* name;
  int64_t shape[2]; /* row-major: inputs x outputs, or a vector */
  uint32_t dims;
  double bound; /* initial values are uniform in [-bound, bound) */
};

struct model {
  int64_t batch, context, width;
  size_t blocks;
  const uint8_t** windows; /* of each example: `context` bytes of text, then the one to predict */
  float loss;              /* of the last forward pass: mean negative log-likelihood, in nats */

  /* Activations, kept from forward to backward. One row per example. */
  float* hidden;       /* [blocks + 1][batch][width] what flows from layer to layer */
  float* inner;        /* [blocks][batch][width]     relu(h w1 + b1) */
  float* logits_error; /* [batch][256]               gradient of the loss by the logits */
  float* hidden_error; /* [batch][width]             by `hidden`, on its way back */
  float* inner_error;  /* [batch][width]             by `inner` */
  float* bytes_error;  /* [256][width / context]     by the embedding */
  float* panel;        /* scratch of the matrix product */
};

/* Allocates everything above; the caller sets `windows` elements. 0, or -1 without memory. */
int model_create(struct model* model, int64_t batch, int64_t context, int64_t width, size_t blocks);
void model_destroy(struct model* model);

/* Layers are numbered 0 .. model_layer_count() - 1. */
size_t model_layer_count(const struct model* model);

/* Describes a layer's tensors; returns how many there are. */
size_t model_layer_tensors(const struct model* model, size_t layer,
                           struct tensor tensors[kMaxTensors]);

/* Runs one layer. Call it for the layers in order; the head sets model->loss. */
void model_forward(struct model* model, size_t layer, const float* const weights[]);

/*
 * Runs one layer backwards, in reverse order, and ADDS the batch's gradient to `gradients`. It is
 * summed apart first and added once: two batches in a row give the same bits as two ranks whose
 * gradients are summed.
 */
void model_backward(struct model* model, size_t layer, const float* const weights[],
                    float* const gradients[]);

/* A random number that depends on nothing but its arguments: the same on every rank. */
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Writes `count` initial values of a tensor; `stream` numbers the tensors of the model. */
void tensor_initialize(const struct tensor* tensor, uint64_t seed, uint64_t stream, float* values,
                       size_t count);

#endif
