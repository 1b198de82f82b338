// SPDX-License-Identifier: Apache-2.0
// The table's arithmetic: kernels/cuda, with the device made current.
#include <algorithm>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "modules/cuda/device.h"
#include "modules/cuda/failure.h"

namespace meron::cuda {
namespace {

static_assert(MERON_SQUARES_BYTES == sizeof(SquaresPieces));

Type type_of(meron_dtype dtype) {
  return static_cast<Type>(dtype);
}

template <class Call>
meron_status launch(void* device, meron_backend_failure* failure, Call call) {
  const OnDevice current(index_of(device));
  return told(current.result() != cudaSuccess ? current.result() : call(), failure);
}

meron_status reduce(void* device, float* out, uint32_t accumulate, const void* const* in,
                    uint32_t count, meron_dtype dtype, float scale, uint64_t elements,
                    void* squares, void* stream, meron_backend_failure* failure) {
  return launch(device, failure, [&] {
    return cuda::reduce(out, accumulate != 0, in, count, type_of(dtype), scale, elements,
                        static_cast<SquaresPieces*>(squares), static_cast<cudaStream_t>(stream));
  });
}

meron_status cast(void* device, const meron_cast_task* tasks, uint32_t count, meron_dtype to,
                  meron_dtype from, uint32_t add, void* stream, meron_backend_failure* failure) {
  std::vector<CastTask> all(count);
  std::transform(tasks, tasks + count, all.begin(), [](const meron_cast_task& task) {
    return CastTask{task.to, task.from, task.count};
  });
  return launch(device, failure, [&] {
    return (add != 0 ? accumulate : convert)(all.data(), count, type_of(to), type_of(from),
                                             static_cast<cudaStream_t>(stream));
  });
}

meron_status update(void* device, const meron_update_step* step, const meron_update_task* tasks,
                    uint32_t count, meron_state_type states, meron_dtype out, void* stream,
                    meron_backend_failure* failure) {
  UpdateStep numbers;
  numbers.rule = static_cast<kernels::Rule>(step->rule);
  numbers.lr = step->learning_rate;
  numbers.beta1 = step->beta1;
  numbers.beta2 = step->beta2;
  numbers.eps = step->epsilon;
  numbers.weight_decay = step->weight_decay;
  numbers.bias1 = step->bias1;
  numbers.bias2 = step->bias2;
  numbers.grad_scale = step->gradient_scale;
  numbers.nesterov = step->nesterov != 0;
  numbers.dampening = step->dampening;
  numbers.first_step = step->first_step != 0;
  std::vector<UpdateTask> all(count);
  std::transform(tasks, tasks + count, all.begin(), [](const meron_update_task& task) {
    return UpdateTask{.p = task.values,
                      .g = task.sum,
                      .states = {task.states[0], task.states[1]},
                      .scales = {},
                      .out = task.out,
                      .n = task.count,
                      .first = task.first,
                      .seed = task.seed};
  });
  return launch(device, failure, [&] {
    return cuda::update(numbers, all.data(), count, Type::f32, static_cast<StateType>(states),
                        type_of(out), nullptr, static_cast<cudaStream_t>(stream));
  });
}

QuantFormat format_of(const meron_quant_format& format) {
  return {.bits = format.bits,
          .block = format.block,
          .stochastic = format.stochastic != 0,
          .hadamard = format.hadamard != 0};
}

meron_status encode(void* device, const meron_quant_format* format, const meron_encode_task* tasks,
                    uint32_t count, meron_dtype in, float beta, void* stream,
                    meron_backend_failure* failure) {
  const QuantFormat how = format_of(*format);
  return launch(device, failure, [&] {
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; i < count && error == cudaSuccess; ++i) {
      const meron_encode_task& task = tasks[i];
      error = quantize(kernels::encoded_at(task.out, task.count, how), task.in, type_of(in),
                       task.count, how, task.seed, 0, nullptr, task.residual, beta, nullptr,
                       static_cast<cudaStream_t>(stream));
    }
    return error;
  });
}

meron_status decode(void* device, const meron_quant_format* format, const meron_cast_task* tasks,
                    uint32_t count, meron_dtype to, void* stream, meron_backend_failure* failure) {
  const QuantFormat how = format_of(*format);
  return launch(device, failure, [&] {
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; i < count && error == cudaSuccess; ++i) {
      const meron_cast_task& task = tasks[i];
      error = dequantize(task.to, type_of(to), kernels::encoded_at(task.from, task.count, how),
                         task.count, how, false, static_cast<cudaStream_t>(stream));
    }
    return error;
  });
}

meron_status reduce_encoded(void* device, const meron_quant_format* format, float* out,
                            uint32_t accumulate, const void* const* in, uint32_t count, float scale,
                            uint64_t elements, void* squares, void* stream,
                            meron_backend_failure* failure) {
  const QuantFormat how = format_of(*format);
  std::vector<ConstEncoded> inputs;
  for (uint32_t i = 0; i < count; ++i) {
    inputs.push_back(kernels::encoded_at(in[i], elements, how));
  }
  return launch(device, failure, [&] {
    return dequantize_sum(out, accumulate != 0, inputs.data(), count, scale, elements, how,
                          static_cast<SquaresPieces*>(squares), static_cast<cudaStream_t>(stream));
  });
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

}  // namespace meron::cuda
