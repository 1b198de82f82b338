// SPDX-License-Identifier: Apache-2.0
// meron/cpp/io.hpp: reads and writes files past the page cache, like DeepSpeed's DeepNVMe.
#ifndef MERON_CPP_IO_HPP
#define MERON_CPP_IO_HPP

#include <chrono>
#include <cstddef>
#include <type_traits>

#include "meron/cpp/base.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/cpp/values.hpp"
#include "meron/io.h"

namespace meron {
inline namespace v1 {

// A pending read or write. A release does not stop it: its memory must stay valid until it has
// ended, and Io::wait or Io::close returns its result.
class IoRequest : public Handle<meron_future, meron_future_release> {
 public:
  using Handle::Handle;

  // Waits until it has ended, as long as transfers progress.
  void wait() const { detail::call(meron_future_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  // Returns false after the timeout: the request continues.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_future_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }
  // True if it has succeeded; never blocks.
  [[nodiscard]] bool done() const { return wait_for({}); }
};

// Pinned, page-aligned memory: the fastest to read into and write from.
class IoBuffer : public Handle<meron_io_buffer, meron_io_buffer_release> {
 public:
  using Handle::Handle;

  // Valid until the buffer is released.
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

// Memory of trivially copyable elements.
template <class T>
constexpr bool kIsPlain = std::is_trivially_copyable_v<std::remove_cv_t<T>>;

template <class Range>
using ElementOf = std::remove_pointer_t<decltype(std::declval<Range&>().data())>;

}  // namespace detail

// A queue to the kernel, and the threads that serve it. The destructor waits for pending requests,
// at most five seconds.
//
// Memory is a Span, std::vector, std::array or std::string of plain elements, of any alignment. It
// must stay valid until its request has ended; the memory of an IoBuffer does so by itself.
class Io : public Handle<meron_io, meron_io_close>, public detail::IoMethods<Io> {
 public:
  using Handle::Handle;

  // Reads into all of `into` from a byte of the file on, and waits for it.
  template <class Range, class T = detail::ElementOf<Range>>
  void read(Text path, Range&& into, uint64_t offset = 0) const {
    static_assert(detail::kIsPlain<T> && !std::is_const_v<T>);
    detail::call(meron_io_read, handle(), path.c_str(), static_cast<void*>(into.data()),
                 uint64_t{into.size() * sizeof(T)}, offset);
  }
  // Writes all of `data`, and waits for the kernel. Creates the file if it does not exist; its
  // other content stays.
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

  // Waits for all requests that no call has waited for. Throws their first error after all have
  // ended.
  void wait() const { detail::call(meron_io_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  // Returns false after the timeout: requests continue.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_io_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }

  [[nodiscard]] IoBuffer buffer(uint64_t bytes) const {
    return IoBuffer(detail::receive(meron_io_buffer_create, handle(), bytes));
  }

  meron_io_info info() const {
    return detail::receive_info<meron_io_info>(meron_io_get_info, handle());
  }
  // Like the destructor, but throws the first error of requests that no call has waited for. The io
  // is closed even then.
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
