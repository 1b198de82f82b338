// SPDX-License-Identifier: Apache-2.0
// The values that cases write and expect, and the element types they are stored in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "meron/meron.h"

namespace conformance {

// A sum of terms, as README.md's "Values" defines them.
class Values {
 public:
  Values(const std::string& text, int rank, int world);
  // Value of the element with this row-major index in the full tensor.
  double at(uint64_t index) const;

 private:
  struct Term {
    std::vector<int64_t> seeds;  // patterns that are added up
    double constant = 0.0;       // if there is no seed
    double factor = 1.0;
  };
  std::vector<Term> terms_;
};

meron_dtype dtype_of(const std::string& name);
std::string name_of(meron_dtype dtype);

// Elements in memory, exact: throws Malformed for a value that the dtype does not have.
void store(meron_dtype dtype, void* data, uint64_t index, double value);
double load(meron_dtype dtype, const void* data, uint64_t index);

// `count` elements from `offset` on, and their bytes.
std::vector<std::byte> stored(const Values& values, meron_dtype dtype, uint64_t count,
                              uint64_t offset = 0);

// CRC-32 of IEEE 802.3, as 8 hexadecimal digits.
std::string crc32_of(const void* data, size_t bytes);

}  // namespace conformance
