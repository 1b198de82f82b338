// SPDX-License-Identifier: Apache-2.0
// meron/cpp/error.hpp: a status of the C interface as an exception.
#ifndef MERON_CPP_ERROR_HPP
#define MERON_CPP_ERROR_HPP

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "meron/base.h"
#include "meron/cpp/config.hpp"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// The exception of every call of this layer. Copying it does not throw; the texts live as long as a
// copy.
class MERON_CPP_SHARED Error : public std::exception {
 public:
  // Takes ownership of the error object, which may be null.
  Error(meron_status status, meron_error* error) noexcept : status_(status) {
#if MERON_CPP_EXCEPTIONS
    try {
      error_.reset(error, meron_error_free);  // frees the error itself if it throws
    } catch (const std::bad_alloc&) {
      // There is only enough memory for the status.
    }
#else
    error_.reset(error, meron_error_free);
#endif
  }

  // An error of this layer itself. The texts are literals.
  Error(meron_status status, const char* message, const char* subject, const char* advice) noexcept
      : status_(status), message_(message), subject_(subject), advice_(advice) {}

  // The full message for people; the status' name if there was no memory for one.
  const char* what() const noexcept override {
    if (error_) return meron_error_message(error_.get());
    return message_ != nullptr ? message_ : status_name();
  }
  meron_status status() const noexcept {
    return status_;
  }
  // For example "MERON_E_TIMEOUT".
  const char* status_name() const noexcept {
    return meron_status_name(status_);
  }
  // The operation that failed, for example "gather"; "" where none applies.
  const char* operation() const noexcept {
    return error_ ? meron_error_operation(error_.get()) : "";
  }
  // The tensor, unit, file or key concerned; "" where none applies.
  const char* subject() const noexcept {
    return error_ ? meron_error_subject(error_.get()) : subject_;
  }
  // The remedy, as one sentence; "" if none is known.
  const char* advice() const noexcept {
    return error_ ? meron_error_advice(error_.get()) : advice_;
  }
  // The rank that reports the error, or MERON_RANK_NONE.
  int32_t rank() const noexcept {
    return error_ ? meron_error_rank(error_.get()) : MERON_RANK_NONE;
  }
  // The rank that caused the error if it is another one, or MERON_RANK_NONE.
  int32_t peer() const noexcept {
    return error_ ? meron_error_peer(error_.get()) : MERON_RANK_NONE;
  }

  // The exception of the caller's should_stop or transport on this thread; null if there was none.
  const std::exception_ptr& cause() const noexcept {
    return cause_;
  }
  // For this layer: leaves `cause` empty.
  void take_cause(std::exception_ptr& cause) noexcept {
    cause_ = std::exchange(cause, nullptr);
  }

  // The class of the error, as in meron_status: the extent of the damage.
  bool is_of_call() const noexcept {
    return status_ <= -100 && status_ > -200;
  }
  bool is_of_resource() const noexcept {
    return status_ <= -200 && status_ > -300;
  }
  bool is_of_group() const noexcept {
    return status_ <= -300 && status_ > -400;
  }
  bool is_of_context() const noexcept {
    return status_ <= -400;
  }

 private:
  meron_status status_;
  std::shared_ptr<meron_error> error_;
  std::exception_ptr cause_;
  const char* message_ = nullptr;
  const char* subject_ = "";
  const char* advice_ = "";
};

namespace detail {

// The exception of should_stop or of a transport on this thread, until this layer throws the error
// that it explains: at once for should_stop; for a transport at the next call that needs the peer.
// One for all shared objects: the callback and the call may be compiled into different ones.
MERON_CPP_SHARED inline std::exception_ptr& thrown_by_callback() noexcept {
  static thread_local std::exception_ptr thrown;
  return thrown;
}

[[noreturn]] inline void raise(const Error& error) {
#if MERON_CPP_EXCEPTIONS
  throw error;
#else
  std::fprintf(stderr, "%s\n", error.what());
  std::abort();
#endif
}
[[noreturn]] inline void raise(meron_status status, meron_error* error) {
  Error made(status, error);
  if (status == MERON_E_CANCELLED || made.is_of_group()) made.take_cause(thrown_by_callback());
  raise(made);
}

// Runs `body` and returns its result. Throws MERON_E_NO_MEMORY if it runs out of memory.
template <class Body>
auto with_memory(const Body& body) -> decltype(body()) {
#if MERON_CPP_EXCEPTIONS
  try {
    return body();
  } catch (const std::bad_alloc&) {
    raise(Error(MERON_E_NO_MEMORY, "memory for the arguments of a call is missing", "",
                "Free memory of this process."));
  }
#else
  return body();
#endif
}

// Runs a callback of the caller. If it throws, runs `failed` and returns its result instead.
template <class Body, class Failed>
auto guarded(const Body& body, const Failed& failed) noexcept -> decltype(body()) {
#if MERON_CPP_EXCEPTIONS
  try {
    return body();
  } catch (...) {
    return failed();
  }
#else
  static_cast<void>(failed);
  return body();
#endif
}

// Calls a function of the C interface; the error object is its last argument.
template <class... Parameters, class... Arguments>
meron_status call(meron_status (*function)(Parameters...), Arguments... arguments) {
  meron_error* error = nullptr;
  const meron_status status = function(arguments..., &error);
  if (status < 0) raise(status, error);
  return status;
}

// Calls a function that returns its result through its first parameter.
template <class Out, class... Parameters, class... Arguments>
Out receive(meron_status (*function)(Out*, Parameters...), Arguments... arguments) {
  Out out{};
  call(function, &out, arguments...);
  return out;
}

// The same for a struct with a struct_size.
template <class Info, class... Parameters, class... Arguments>
Info receive_info(meron_status (*function)(Info*, Parameters...), Arguments... arguments) {
  Info info{};
  info.struct_size = static_cast<uint32_t>(sizeof(Info));
  call(function, &info, arguments...);
  return info;
}

}  // namespace detail
}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_ERROR_HPP
