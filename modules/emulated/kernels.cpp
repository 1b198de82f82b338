// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the emulated device: that of kernels/cpu, on the stream's thread.
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/exact_sum.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/update.h"
#include "modules/emulated/device.h"

namespace meron::emulated {
namespace {

static_assert(MERON_SQUARES_BYTES == sizeof(kernels::ExactPieces));

kernels::Type type_of(meron_dtype dtype) {
  return static_cast<kernels::Type>(dtype);
}

// Kernels of several streams may add to the same sum.
void add_squares(void* to, const kernels::ExactSum& sum) {
  static std::mutex* const mutex = new std::mutex();  // outlives the threads of streams
  const std::lock_guard lock(*mutex);
  kernels::ExactPieces before;
  std::memcpy(&before, to, sizeof(before));
  kernels::ExactSum total(before);
  total.merge(sum);
  const kernels::ExactPieces after = total.pieces();
  std::memcpy(to, &after, sizeof(after));
}

meron_status reduce(void* device, float* out, uint32_t accumulate, const void* const* in,
                    uint32_t count, meron_dtype dtype, float scale, uint64_t elements,
                    void* squares, void* stream, meron_backend_failure* failure) {
  std::vector<const void*> inputs(in, in + count);
  return ask(
      device, stream,
      [=, inputs = std::move(inputs)] {
        kernels::ExactSum sum;
        kernels::reduce(out, accumulate != 0, inputs.data(), inputs.size(), type_of(dtype), scale,
                        elements, squares == nullptr ? nullptr : &sum);
        if (squares != nullptr) add_squares(squares, sum);
      },
      failure);
}

meron_status cast(void* device, const meron_cast_task* tasks, uint32_t count, meron_dtype to,
                  meron_dtype from, uint32_t add, void* stream, meron_backend_failure* failure) {
  std::vector<meron_cast_task> all(tasks, tasks + count);
  return ask(
      device, stream,
      [=, all = std::move(all)] {
        for (const meron_cast_task& task : all) {
          (add != 0 ? kernels::accumulate : kernels::convert)(task.to, type_of(to), task.from,
                                                              type_of(from), task.count);
        }
      },
      failure);
}

meron_status update(void* device, const meron_update_step* step, const meron_update_task* tasks,
                    uint32_t count, meron_state_type states, meron_dtype out, void* stream,
                    meron_backend_failure* failure) {
  std::vector<meron_update_task> all(tasks, tasks + count);
  return ask(
      device, stream,
      [=, numbers = *step, all = std::move(all)] {
        kernels::UpdateStep each;
        each.rule = static_cast<kernels::Rule>(numbers.rule);
        each.lr = numbers.learning_rate;
        each.beta1 = numbers.beta1;
        each.beta2 = numbers.beta2;
        each.eps = numbers.epsilon;
        each.weight_decay = numbers.weight_decay;
        each.bias1 = numbers.bias1;
        each.bias2 = numbers.bias2;
        each.grad_scale = numbers.gradient_scale;
        each.nesterov = numbers.nesterov != 0;
        each.dampening = numbers.dampening;
        each.first_step = numbers.first_step != 0;
        for (const meron_update_task& task : all) {
          each.seed = task.seed;
          const kernels::States of{.type = static_cast<kernels::StateType>(states),
                                   .data = {task.states[0], task.states[1]}};
          kernels::update(each, task.values, task.sum, kernels::Type::f32, of, task.out,
                          type_of(out), task.count, task.first);
        }
      },
      failure);
}

kernels::QuantFormat format_of(const meron_quant_format& format) {
  return {.bits = format.bits,
          .block = format.block,
          .stochastic = format.stochastic != 0,
          .hadamard = format.hadamard != 0};
}

meron_status encode(void* device, const meron_quant_format* format, const meron_encode_task* tasks,
                    uint32_t count, meron_dtype in, float beta, void* stream,
                    meron_backend_failure* failure) {
  std::vector<meron_encode_task> all(tasks, tasks + count);
  return ask(
      device, stream,
      [=, how = format_of(*format), all = std::move(all)] {
        for (const meron_encode_task& task : all) {
          kernels::quantize(kernels::encoded_at(task.out, task.count, how), task.in, type_of(in),
                            task.count, how, task.seed, 0, nullptr, task.residual, beta);
        }
      },
      failure);
}

meron_status decode(void* device, const meron_quant_format* format, const meron_cast_task* tasks,
                    uint32_t count, meron_dtype to, void* stream, meron_backend_failure* failure) {
  std::vector<meron_cast_task> all(tasks, tasks + count);
  return ask(
      device, stream,
      [=, how = format_of(*format), all = std::move(all)] {
        for (const meron_cast_task& task : all) {
          kernels::dequantize(task.to, type_of(to), kernels::encoded_at(task.from, task.count, how),
                              task.count, how);
        }
      },
      failure);
}

meron_status reduce_encoded(void* device, const meron_quant_format* format, float* out,
                            uint32_t accumulate, const void* const* in, uint32_t count, float scale,
                            uint64_t elements, void* squares, void* stream,
                            meron_backend_failure* failure) {
  const kernels::QuantFormat how = format_of(*format);
  std::vector<kernels::ConstEncoded> inputs;
  for (uint32_t i = 0; i < count; ++i) {
    inputs.push_back(kernels::encoded_at(in[i], elements, how));
  }
  return ask(
      device, stream,
      [=, inputs = std::move(inputs)] {
        kernels::ExactSum sum;
        kernels::dequantize_sum(out, accumulate != 0, inputs.data(), inputs.size(), scale, elements,
                                how, squares == nullptr ? nullptr : &sum);
        if (squares != nullptr) add_squares(squares, sum);
      },
      failure);
}

}  // namespace

const meron_kernel_table& kernel_table() {
  static const meron_kernel_table table = {
      .struct_size = sizeof(meron_kernel_table),
      .reserved_0 = 0,
      .reduce = reduce,
      .cast = cast,
      .update = update,
      .encode = encode,
      .decode = decode,
      .reduce_encoded = reduce_encoded,
  };
  return table;
}

}  // namespace meron::emulated
