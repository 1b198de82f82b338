// SPDX-License-Identifier: Apache-2.0
// A drive as `meron io-bench` measures it: through the engine that moves states there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/io_engine.h"
#include "os/mapping.h"

namespace meron::tools {

struct Setting {
  IoOptions::Backend backend = IoOptions::Backend::uring;
  uint32_t block = 0;
  uint32_t depth = 32;
  int threads = 1;

  bool uring() const { return backend == IoOptions::Backend::uring; }
  // Number of pending requests.
  uint64_t requests() const { return uring() ? depth : static_cast<uint64_t>(threads); }
  std::string text() const;
};

struct Rate {
  uint64_t bytes = 0;
  double seconds = 0.0;

  double gigabytes() const;  // a second
  uint64_t whole() const;    // bytes a second, for a plan
};

struct Measurement {
  Setting setting;
  Rate read, write;

  // Of reading and writing the same bytes, one after the other.
  double both() const;
};

// As the engine's arena has it: shared memory, with huge pages where the kernel grants them.
class MeasuredMemory {
 public:
  MeasuredMemory();
  std::byte* data() const { return const_cast<std::byte*>(mapping_.data()); }

 private:
  Mapping mapping_;
};

// The unnamed file that all settings move.
class Drive {
 public:
  Drive(const std::string& directory, uint64_t size);

  // Reads the file and writes it, each for `seconds` at most.
  Measurement measure(const Setting& setting, double seconds) const;
  // Reads one half of the file while it writes the other.
  Rate both(const Setting& setting, double seconds) const;

  const DirectFile& file() const { return file_; }

 private:
  std::shared_ptr<IoEngine> start(const Setting& setting) const;
  std::shared_ptr<IoFile> open(IoEngine& engine) const;
  Rate move(IoEngine& engine, const std::shared_ptr<IoFile>& file, bool write, uint64_t ahead,
            int64_t limit_ns) const;

  const uint64_t size_;
  const MeasuredMemory memory_;
  const DirectFile file_;
};

}  // namespace meron::tools
