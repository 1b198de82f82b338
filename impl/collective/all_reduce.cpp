// SPDX-License-Identifier: Apache-2.0
#include "collective/all_reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/reduce.h"

namespace meron {
namespace {

kernels::Type kernel_type(NumberType type) {
  return static_cast<kernels::Type>(static_cast<int32_t>(type));
}

// The first NaN if there is one, and of equal values the first.
template <class T>
T extreme(T first, T second, bool largest) {
  if constexpr (std::is_floating_point_v<T>) {
    if (first != first) return first;
    if (second != second) return second;
  }
  return (largest ? second > first : second < first) ? second : first;
}

// As the hardware adds: an integer that overflows wraps around.
template <class T>
T sum_of(T first, T second) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(first) + static_cast<Unsigned>(second));
  } else {
    return first + second;
  }
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::mean:
      return "mean";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  return "?";
}

std::string_view name_of(NumberType type) {
  if (type == NumberType::f64) return "f64";
  if (type == NumberType::i64) return "i64";
  return name_of(static_cast<DType>(type));
}

AllReduceOperation::AllReduceOperation(Channel& channel, Deadline deadline, std::byte* data,
                                       uint64_t count, NumberType type, ReduceOp op)
    : StagedOperation(channel, deadline, chunks_of(count * size_of(type))),
      data_(data),
      count_(count),
      type_(type),
      op_(op) {}

uint64_t AllReduceOperation::chunk_elements(uint64_t chunk) const {
  const uint64_t per_chunk = kStagingChunk / size_of(type_);
  return std::min(per_chunk, count_ - chunk * per_chunk);
}

uint64_t AllReduceOperation::fill(uint64_t chunk, std::byte* half) {
  const uint64_t bytes = chunk_elements(chunk) * size_of(type_);
  std::memcpy(half, data_ + chunk * kStagingChunk, bytes);
  return bytes;
}

template <class T>
void AllReduceOperation::combine_numbers(uint64_t chunk) {
  const uint64_t elements = chunk_elements(chunk);
  const auto values = [&](int member) { return reinterpret_cast<const T*>(half(member, chunk)); };
  std::vector<T> results(values(0), values(0) + elements);
  for (int m = 1; m < channel_.size(); ++m) {
    const T* const next = values(m);
    for (uint64_t i = 0; i < elements; ++i) {
      results[i] = op_ == ReduceOp::max || op_ == ReduceOp::min
                       ? extreme(results[i], next[i], op_ == ReduceOp::max)
                       : sum_of(results[i], next[i]);
    }
  }
  if (op_ == ReduceOp::mean) {
    for (T& result : results) result /= static_cast<T>(channel_.size());
  }
  std::memcpy(data_ + chunk * kStagingChunk, results.data(), elements * sizeof(T));
}

void AllReduceOperation::combine_floats(uint64_t chunk) {
  const uint64_t elements = chunk_elements(chunk);
  std::vector<const void*> inputs;
  for (int m = 0; m < channel_.size(); ++m) inputs.push_back(half(m, chunk));
  std::vector<float> results(elements);
  if (op_ == ReduceOp::sum || op_ == ReduceOp::mean) {
    const float scale = op_ == ReduceOp::mean ? static_cast<float>(1.0 / channel_.size()) : 1.0f;
    kernels::reduce(results.data(), false, inputs.data(), inputs.size(), kernel_type(type_), scale,
                    elements, nullptr);
  } else {
    kernels::convert(results.data(), kernels::Type::f32, inputs[0], kernel_type(type_), elements);
    std::vector<float> next(elements);
    for (size_t m = 1; m < inputs.size(); ++m) {
      kernels::convert(next.data(), kernels::Type::f32, inputs[m], kernel_type(type_), elements);
      for (uint64_t i = 0; i < elements; ++i) {
        results[i] = extreme(results[i], next[i], op_ == ReduceOp::max);
      }
    }
  }
  kernels::convert(data_ + chunk * kStagingChunk, kernel_type(type_), results.data(),
                   kernels::Type::f32, elements);
}

void AllReduceOperation::combine(uint64_t chunk) {
  if (type_ == NumberType::f64) {
    combine_numbers<double>(chunk);
  } else if (type_ == NumberType::i64) {
    combine_numbers<int64_t>(chunk);
  } else {
    combine_floats(chunk);
  }
  add(channel_.counters().collective,
      chunk_elements(chunk) * size_of(type_) * static_cast<uint64_t>(channel_.size() - 1));
}

}  // namespace meron
