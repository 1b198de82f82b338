// SPDX-License-Identifier: Apache-2.0
// meron/cpp/transport.hpp: the caller's own transport, as a class to derive from.
#ifndef MERON_CPP_TRANSPORT_HPP
#define MERON_CPP_TRANSPORT_HPP

#include <algorithm>
#include <chrono>
#include <thread>

#include "meron/cpp/base.hpp"
#include "meron/transport.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Moves bytes between ranks that share no memory. meron/transport.h has the rules for the
// functions; above all they never block (except idle), and may only look and release: see the rule
// of callbacks in meron/meron.h. They are called one at a time. An exception ends the use of that
// peer (MERON_E_PEER_DEAD) and is the cause() of the error.
class Transport {
 public:
  virtual ~Transport() = default;

  // For messages.
  virtual const char* name() const noexcept { return "custom"; }
  // Maximal bytes of a message, at least 4096; 0: no limit.
  virtual uint64_t max_message() const noexcept { return 0; }

  // Starts to send to rank `peer`, and stores a number in `request` that identifies the request.
  // Returns false if it cannot accept the message now: Meron will call it again. The bytes stay
  // unchanged until the request is done or cancelled.
  virtual bool send(uint64_t& request, int32_t peer, uint64_t tag, const void* data,
                    uint64_t bytes) = 0;
  // Starts to receive at most `bytes` bytes. Otherwise as send.
  virtual bool receive(uint64_t& request, int32_t peer, uint64_t tag, void* data,
                       uint64_t bytes) = 0;
  // Returns true if a request is done, with the size of its message in `bytes`. Then the request is
  // not tested again.
  virtual bool test(uint64_t request, uint64_t& bytes) = 0;
  // Cancels a request. After the return its memory is not touched.
  virtual void cancel(uint64_t request) noexcept = 0;
  // Returns when a message may have progressed, or after `timeout`. Its exceptions are ignored.
  virtual void idle(std::chrono::nanoseconds timeout) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(timeout, kNap));
  }
  // Returns false only if rank `peer` is known to be dead.
  virtual bool alive(int32_t peer) noexcept {
    static_cast<void>(peer);
    return true;
  }
  // The last call: no other function is called after it.
  virtual void closed() noexcept {}

 protected:
  Transport() = default;
  Transport(const Transport&) = default;
  Transport& operator=(const Transport&) = default;

 private:
  static constexpr std::chrono::milliseconds kNap{1};
};

namespace detail {

// The status for the exception that is being handled, which becomes the cause of the error for the
// caller of the library.
inline meron_status status_of_exception() noexcept {
  thrown_by_callback() = std::current_exception();
#if MERON_CPP_EXCEPTIONS
  try {
    throw;
  } catch (const Error& error) {
    return error.status() < 0 ? error.status() : MERON_E_IO;
  } catch (...) {
    return MERON_E_IO;
  }
#else
  return MERON_E_IO;
#endif
}

template <class Body>
meron_status run_callback(const Body& body) noexcept {
  return guarded([&]() -> meron_status { return body() ? MERON_OK : MERON_IN_PROGRESS; },
                 status_of_exception);
}

inline Transport& transport_of(void* user) noexcept {
  return *static_cast<Transport*>(user);
}

// The table that calls `transport`, which must outlive its use.
inline meron_transport table_of(Transport& transport) noexcept {
  meron_transport table = MERON_TRANSPORT_INIT;
  table.name = transport.name();
  table.user = &transport;
  table.max_message = transport.max_message();
  table.send = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, const void* data,
                  uint64_t bytes) noexcept {
    return run_callback([=] { return transport_of(user).send(*request, peer, tag, data, bytes); });
  };
  table.receive = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, void* data,
                     uint64_t bytes) noexcept {
    return run_callback(
        [=] { return transport_of(user).receive(*request, peer, tag, data, bytes); });
  };
  table.test = [](void* user, uint64_t request, uint64_t* bytes) noexcept {
    return run_callback([=] { return transport_of(user).test(request, *bytes); });
  };
  table.cancel = [](void* user, uint64_t request) noexcept { transport_of(user).cancel(request); };
  table.idle = [](void* user, int64_t timeout_ns) noexcept {
    static_cast<void>(run_callback([=] {
      transport_of(user).idle(std::chrono::nanoseconds(timeout_ns));
      return true;
    }));
  };
  table.alive = [](void* user, int32_t peer) noexcept {
    return int32_t{transport_of(user).alive(peer)};
  };
  table.closed = [](void* user) noexcept { transport_of(user).closed(); };
  return table;
}

}  // namespace detail
}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_TRANSPORT_HPP
