// SPDX-License-Identifier: Apache-2.0
// Memory as the engine's arena has it: a memory file, mapped shared, with huge pages where the
// kernel grants them, and populated before anything is timed.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "base/layout.h"

namespace meron::bench {

class Region {
 public:
  explicit Region(size_t bytes) : bytes_((bytes + kHuge - 1) / kHuge * kHuge) {
    const int file = ::memfd_create("bench", MFD_CLOEXEC);
    if (file < 0) fail("memfd_create");
    if (::ftruncate(file, static_cast<off_t>(bytes_)) != 0) fail("ftruncate");
    // Reserved with room to begin at a huge page, as the offsets within the file do.
    reserved_ = ::mmap(nullptr, bytes_ + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved_ == MAP_FAILED) fail("mmap");
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(reserved_) + kHuge - 1) / kHuge * kHuge;
    void* mapped = ::mmap(reinterpret_cast<void*>(begin), bytes_, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED, file, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    ::close(file);
    data_ = static_cast<std::byte*>(mapped);
    ::madvise(data_, bytes_, MADV_HUGEPAGE);  // a wish: without it the pages are small
  }
  ~Region() { ::munmap(reserved_, bytes_ + kHuge); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* data() { return data_; }

  // Gives [offset, offset + bytes) memory and returns its start; the rest of the region costs none.
  // Threads may populate at the same time.
  std::byte* populate(size_t offset, size_t bytes) {
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
    const size_t begin = offset / kPage * kPage;
    const size_t length = (offset - begin + bytes + kPage - 1) / kPage * kPage;
    if (bytes != 0 && ::madvise(data_ + begin, length, kPopulateWrite) != 0) {
      if (errno != EINVAL) fail("madvise(MADV_POPULATE_WRITE)");
      std::memset(data_ + begin, 0, length);
    }
    return data_ + offset;
  }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kHuge = size_t{2} << 20;

  [[noreturn]] static void fail(const char* what) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
  }

  size_t bytes_;
  void* reserved_ = nullptr;
  std::byte* data_ = nullptr;
};

// Arrays one after the other in one region, staggered as the engine's arena staggers buffers.
class Arena {
 public:
  // Bytes that an array of `bytes` occupies.
  static size_t room_for(size_t bytes) { return footprint(bytes) + kColorReserve; }

  explicit Arena(size_t bytes) : region_(bytes) {}

  template <class T>
  T* place(size_t n) {
    const size_t at = next_ + color_ * kColorStep;
    next_ += room_for(n * sizeof(T));
    color_ = (color_ + 1) % kColors;
    return reinterpret_cast<T*>(region_.populate(at, n * sizeof(T)));
  }

 private:
  Region region_;
  size_t next_ = 0, color_ = 0;
};

}  // namespace meron::bench
