// SPDX-License-Identifier: Apache-2.0
// All-reduce of a small array in place. Each rank combines the values of all ranks in their order,
// so that all get the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collective/collective.h"

namespace meron {

enum class ReduceOp : int32_t { sum, mean, max, min };  // as meron_reduce_op
std::string_view name_of(ReduceOp op);

// The elements of an all-reduce: those of params, and the two types of numbers that only it takes.
enum class NumberType : int32_t {
  f32 = MERON_F32,
  bf16 = MERON_BF16,
  f16 = MERON_F16,
  f64 = MERON_F64,
  i64 = MERON_I64
};
std::string_view name_of(NumberType type);
constexpr uint64_t size_of(NumberType type) {
  if (type == NumberType::f64 || type == NumberType::i64) return 8;
  return size_of(static_cast<DType>(type));
}

class AllReduceOperation final : public StagedOperation {
 public:
  AllReduceOperation(Channel& channel, Deadline deadline, std::byte* data, uint64_t count,
                     NumberType type, ReduceOp op);
  std::string describe() const override { return "all_reduce"; }

 private:
  uint64_t fill(uint64_t chunk, std::byte* half) override;
  void combine(uint64_t chunk) override;
  uint64_t chunk_elements(uint64_t chunk) const;
  // For f64 and i64.
  template <class T>
  void combine_numbers(uint64_t chunk);
  // For the others, in f32.
  void combine_floats(uint64_t chunk);

  std::byte* data_;
  uint64_t count_;
  NumberType type_;
  ReduceOp op_;
};

}  // namespace meron
