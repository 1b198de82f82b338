// SPDX-License-Identifier: Apache-2.0
// meron/cpp/io.hpp: files read and written past the page cache, as DeepSpeed's DeepNVMe does it.
#ifndef MERON_CPP_IO_HPP
#define MERON_CPP_IO_HPP

#include <chrono>
#include <cstddef>
#include <type_traits>

#include "meron/cpp/base.hpp"
#include "meron/io.h"

namespace meron {
inline namespace v1 {

// Who moves the bytes.
enum class IoBackend : int32_t {
  automatic = MERON_IO_AUTO,  // io_uring where the host allows it, else threads
  io_uring = MERON_IO_URING,
  threads = MERON_IO_THREADS
};

struct IoOptions {
  IoBackend backend = IoBackend::automatic;
  uint32_t block_bytes = 1 << 20;      // of one call of the kernel, a multiple of 4096
  uint32_t depth = 32;                 // calls under way at a time, of io_uring
  uint32_t threads = 1;                // of the backend of threads: as many calls at a time
  bool single_submit = false;          // each call is handed to the kernel alone
  bool overlap_events = true;          // false: the next calls begin when the last have ended
  std::chrono::nanoseconds timeout{};  // a wait ends when nothing has moved for so long; 0: 600 s

  meron_io_options raw() const noexcept {
    meron_io_options made = MERON_IO_OPTIONS_INIT;
    made.backend = static_cast<meron_io_backend>(backend);
    made.block_bytes = block_bytes;
    made.depth = depth;
    made.threads = threads;
    made.single_submit = single_submit ? 1 : 0;
    made.overlap_events = overlap_events ? 1 : 0;
    made.timeout_ns = timeout.count();
    return made;
  }
};

// A read or write that was begun. Letting go of it does not stop it: its memory must stay until it
// has ended, and Io::wait or Io::close tells how it did.
class IoRequest : public Handle<meron_io_request, meron_io_request_release> {
 public:
  using Handle::Handle;

  // Waits until it has ended, as long as something moves.
  void wait() const {
    detail::call(meron_io_request_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT});
  }
  // False when the time has passed: it goes on.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_io_request_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }
  // Whether it has ended well; never blocks.
  [[nodiscard]] bool done() const { return wait_for({}); }
};

// Pinned, page-aligned memory: the fastest to read into and write from.
class IoBuffer : public Handle<meron_io_buffer, meron_io_buffer_release> {
 public:
  using Handle::Handle;

  // Until the buffer is released.
  Span<std::byte> bytes() const& {
    const meron_io_buffer_info found = info();
    return {static_cast<std::byte*>(found.data), static_cast<size_t>(found.bytes)};
  }
  Span<std::byte> bytes() const&& = delete;  // the span would outlive the buffer
  meron_io_buffer_info info() const {
    return detail::receive_info<meron_io_buffer_info>(meron_io_buffer_get_info, handle());
  }
};

namespace detail {

// Memory of elements that are bytes and nothing else.
template <class T>
constexpr bool kIsPlain = std::is_trivially_copyable_v<std::remove_cv_t<T>>;

template <class Range>
using ElementOf = std::remove_pointer_t<decltype(std::declval<Range&>().data())>;

}  // namespace detail

// A queue to the kernel, and the threads that serve it. Dies after what is under way, at most after
// five seconds.
//
// Memory is a Span, std::vector, std::array or std::string of plain elements, of any alignment. It
// must stay until its request has ended; that of an IoBuffer does by itself.
class Io : public Handle<meron_io, meron_io_close> {
 public:
  using Handle::Handle;

  // Reads into all of `into` from a byte of the file on, and waits for it.
  template <class Range, class T = detail::ElementOf<Range>>
  void read(Text path, Range&& into, uint64_t offset = 0) const {
    static_assert(detail::kIsPlain<T> && !std::is_const_v<T>);
    detail::call(meron_io_read, handle(), path.c_str(), static_cast<void*>(into.data()),
                 uint64_t{into.size() * sizeof(T)}, offset);
  }
  // Writes all of `data`, and waits for the kernel. Makes the file where there is none; what it
  // holds besides stays.
  template <class Range, class T = detail::ElementOf<const Range>>
  void write(Text path, const Range& data, uint64_t offset = 0) const {
    static_assert(detail::kIsPlain<T>);
    detail::call(meron_io_write, handle(), path.c_str(), static_cast<const void*>(data.data()),
                 uint64_t{data.size() * sizeof(T)}, offset);
  }
  // Begin a read or write; the file is opened, and grows, here.
  template <class Range, class T = detail::ElementOf<Range>>
  [[nodiscard]] IoRequest read_begin(Text path, Range&& into, uint64_t offset = 0) const {
    static_assert(detail::kIsPlain<T> && !std::is_const_v<T>);
    return IoRequest(detail::receive(meron_io_read_begin, handle(), path.c_str(),
                                     static_cast<void*>(into.data()),
                                     uint64_t{into.size() * sizeof(T)}, offset));
  }
  template <class Range, class T = detail::ElementOf<const Range>>
  [[nodiscard]] IoRequest write_begin(Text path, const Range& data, uint64_t offset = 0) const {
    static_assert(detail::kIsPlain<T>);
    return IoRequest(detail::receive(meron_io_write_begin, handle(), path.c_str(),
                                     static_cast<const void*>(data.data()),
                                     uint64_t{data.size() * sizeof(T)}, offset));
  }

  // Waits for everything that was begun and not waited for alone. Throws the first error of it when
  // all has ended.
  void wait() const { detail::call(meron_io_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  // False when the time has passed: some goes on.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_io_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }

  [[nodiscard]] IoBuffer buffer(uint64_t bytes) const {
    return IoBuffer(detail::receive(meron_io_buffer_create, handle(), bytes));
  }

  meron_io_info info() const {
    return detail::receive_info<meron_io_info>(meron_io_get_info, handle());
  }
  // What a person should know about its speed, several lines.
  String describe() const { return String(detail::receive(meron_io_describe, handle())); }

  // As the destructor, and throws the first error of requests that nobody has waited for: it is
  // closed all the same.
  void close() { detail::call(meron_io_close, detach()); }
};

// Opens one. Needs no context.
[[nodiscard]] inline Io open_io(const IoOptions& options = {}) {
  const meron_io_options raw = options.raw();
  return Io(detail::receive(meron_io_open, &raw));
}

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_IO_HPP
