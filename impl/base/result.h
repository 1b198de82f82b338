// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. Inside the engine nothing throws on purpose; capi/ turns an Error
// into a meron_error.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "meron/base.h"

namespace meron {

// A failure, in words by which the reader can act. Fields that do not apply stay empty.
struct ErrorInfo {
  meron_status code = MERON_E_INTERNAL;
  std::string what;            // what failed, one sentence, lower case, no full stop
  std::string operation;       // the call or collective, e.g. "gather"
  std::string subject;         // the tensor, unit or file concerned
  std::string advice;          // what to do next, one sentence
  int rank = MERON_RANK_NONE;  // the rank that reports
  int peer = MERON_RANK_NONE;  // the rank that is to blame, if another
};

struct Ok {};

template <class T = Ok>
class Result;

// Its members are compiled once, in result.cpp: nearly every source includes this header.
class [[nodiscard]] Error {
 public:
  Error(meron_status code, std::string what, std::string advice = {});
  explicit Error(ErrorInfo info);
  Error(const Error& other);
  Error(Error&& other) noexcept : info_(std::exchange(other.info_, nullptr)) {}
  Error& operator=(Error other) noexcept {
    std::swap(info_, other.info_);
    return *this;
  }
  ~Error() {
    if (info_ != nullptr) destroy();
  }

  meron_status code() const { return info_->code; }
  const ErrorInfo& info() const { return *info_; }
  ErrorInfo& info() { return *info_; }

  Error&& on(std::string subject) &&;
  Error&& during(std::string operation) &&;
  Error&& at(int rank) && {
    if (info_->rank == MERON_RANK_NONE) info_->rank = rank;
    return std::move(*this);
  }
  Error&& blaming(int peer) && {
    info_->peer = peer;
    return std::move(*this);
  }

 private:
  template <class T>
  friend class Result;
  Error() noexcept = default;  // of a Result that has a value
  void destroy();

  ErrorInfo* info_ = nullptr;  // owned; null after a move
};

// A union rather than std::variant, which takes longer to compile in each source of the engine.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)), ok_(true) {}                // NOLINT: by design
  Result(Error error) noexcept : error_(std::move(error)), ok_(false) {}  // NOLINT: by design
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : error_(std::move(other.error_)), ok_(other.ok_) {
    if (ok_) std::construct_at(std::addressof(value_), std::move(other.value_));
  }
  Result(const Result& other) requires std::is_copy_constructible_v<T> : ok_(other.ok_) {
    if (ok_) {
      std::construct_at(std::addressof(value_), other.value_);
    } else {
      error_ = other.error_;
    }
  }
  Result& operator=(Result other) noexcept {
    static_assert(std::is_nothrow_move_constructible_v<T>);
    if (ok_) value_.~T();
    error_ = std::move(other.error_);
    ok_ = other.ok_;
    if (ok_) std::construct_at(std::addressof(value_), std::move(other.value_));
    return *this;
  }
  ~Result() {
    if (ok_) value_.~T();
  }

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  T& value() & { return value_; }
  const T& value() const& { return value_; }
  T&& value() && { return std::move(value_); }
  T& operator*() & { return value_; }
  const T& operator*() const& { return value_; }
  T* operator->() { return std::addressof(value_); }
  const T* operator->() const { return std::addressof(value_); }
  Error& error() & { return error_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  union {
    T value_;  // exists if ok_
  };
  Error error_;  // null if ok_
  bool ok_;
};

using Status = Result<Ok>;

#define MERON_CONCAT_INNER(a, b) a##b
#define MERON_CONCAT(a, b) MERON_CONCAT_INNER(a, b)

// Returns the error of `expr`, a Result, from the enclosing function.
#define MERON_TRY(expr)                                          \
  do {                                                           \
    auto MERON_CONCAT(result_, __LINE__) = (expr);               \
    if (!MERON_CONCAT(result_, __LINE__).ok())                   \
      return std::move(MERON_CONCAT(result_, __LINE__)).error(); \
  } while (0)

// Declares or assigns `target` from `expr`, or returns its error.
#define MERON_ASSIGN(target, expr)                             \
  auto MERON_CONCAT(result_, __LINE__) = (expr);               \
  if (!MERON_CONCAT(result_, __LINE__).ok())                   \
    return std::move(MERON_CONCAT(result_, __LINE__)).error(); \
  target = std::move(MERON_CONCAT(result_, __LINE__)).value()

}  // namespace meron
