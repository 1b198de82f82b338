// SPDX-License-Identifier: Apache-2.0
// meron/cpp/io.hpp: reads and writes files past the page cache, like DeepSpeed's DeepNVMe.
#ifndef MERON_CPP_IO_HPP
#define MERON_CPP_IO_HPP

#include <chrono>
#include <cstddef>
#include <type_traits>

#include "meron/cpp/base.hpp"
#include "meron/cpp/future.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/cpp/values.hpp"
#include "meron/io.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// A pending read or write. Its wait lasts as long as transfers progress. A release does not stop
// it: its memory must stay valid until it has ended, and Io::wait or Io::close returns its result.
class IoRequest : public detail::Operation {
 public:
  using Operation::Operation;
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

// A queue to the kernel, and the threads that serve it. The destructor waits for pending requests,
// at most five seconds.
//
// Memory is a range of plain elements (a Span, std::span, std::vector, std::string, an array), or
// one of them, of any alignment. It must stay valid until its request has ended; the memory of an
// IoBuffer does so by itself. A temporary is refused, except by write.
class Io : public Handle<meron_io, meron_io_close>, public detail::IoMethods<Io> {
 public:
  using Handle::Handle;

  // Reads into all of `into` from a byte of the file on, and waits for it.
  template <class Memory, detail::Lasting<Memory> = 0>
  void read(const Text& path, Memory&& into, uint64_t offset = 0) const {
    const auto bytes = writable_bytes(into);
    detail::call(meron_io_read, handle(), path.c_str(), bytes.data, bytes.size, offset);
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  void read(const Text& path, Memory&& into, uint64_t offset = 0) const = delete;
  // Writes all of `data`, and waits for the kernel. Creates the file if it does not exist; its
  // other content stays.
  template <class Memory, detail::Readable<Memory> = 0>
  void write(const Text& path, const Memory& data, uint64_t offset = 0) const {
    const auto bytes = bytes_of(data);
    detail::call(meron_io_write, handle(), path.c_str(), bytes.data, bytes.size, offset);
  }
  // Begin a read or write; the file is opened, and grows, here.
  template <class Memory, detail::Lasting<Memory> = 0>
  [[nodiscard]] IoRequest read_begin(const Text& path, Memory&& into, uint64_t offset = 0) const {
    const auto bytes = writable_bytes(into);
    return IoRequest(adopt, detail::receive(meron_io_read_begin, handle(), path.c_str(), bytes.data,
                                            bytes.size, offset));
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  IoRequest read_begin(const Text& path, Memory&& into, uint64_t offset = 0) const = delete;
  template <class Memory, detail::Lasting<Memory> = 0>
  [[nodiscard]] IoRequest write_begin(const Text& path, Memory&& data, uint64_t offset = 0) const {
    const auto bytes = bytes_of(data);
    return IoRequest(adopt, detail::receive(meron_io_write_begin, handle(), path.c_str(),
                                            bytes.data, bytes.size, offset));
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  IoRequest write_begin(const Text& path, Memory&& data, uint64_t offset = 0) const = delete;

  // Waits for all requests that no call has waited for. Throws their first error after all have
  // ended.
  void wait() const { detail::call(meron_io_wait, handle(), int64_t{MERON_TIMEOUT_DEFAULT}); }
  // Returns false after the timeout: requests continue.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds duration) const {
    return detail::call(meron_io_wait, handle(), detail::timeout(duration)) == MERON_OK;
  }

  [[nodiscard]] IoBuffer buffer(uint64_t bytes) const {
    return IoBuffer(adopt, detail::receive(meron_io_buffer_create, handle(), bytes));
  }

  meron_io_info info() const {
    return detail::receive_info<meron_io_info>(meron_io_get_info, handle());
  }
  // Like the destructor, but throws the first error of requests that no call has waited for. The io
  // is closed even then.
  void close() { detail::call(meron_io_close, detach()); }

 private:
  template <class Address>
  struct Bytes {
    Address data;
    uint64_t size;
  };
  template <class Memory>
  static Bytes<const void*> bytes_of(const Memory& memory) noexcept {
    const auto span = detail::memory_of(memory);
    static_assert(std::is_trivially_copyable_v<typename decltype(span)::value_type>);
    return {span.data(), span.size_bytes()};
  }
  template <class Memory>
  static Bytes<void*> writable_bytes(Memory& memory) noexcept {
    const auto span = detail::memory_of(memory);
    using T = typename decltype(span)::element_type;
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
    return {span.data(), span.size_bytes()};
  }
};

// Opens one. Needs no context.
[[nodiscard]] inline Io open_io(const IoOptions& options = {}) {
  const meron_io_options raw = options.raw();
  return Io(adopt, detail::receive(meron_io_open, &raw));
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_IO_HPP
