// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. Inside the engine nothing throws on purpose; capi/ turns an Error
// into a meron_error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "meron/base.h"

namespace meron {

// What went wrong, told so that the reader can act. Fields that do not apply stay empty.
struct ErrorInfo {
  meron_status code = MERON_E_INTERNAL;
  std::string what;            // what failed, one sentence, lower case, no full stop
  std::string operation;       // the call or collective, e.g. "gather"
  std::string subject;         // the tensor, unit or file concerned
  std::string advice;          // what to do next, one sentence
  int rank = MERON_RANK_NONE;  // the rank that reports
  int peer = MERON_RANK_NONE;  // the rank that is to blame, if another
};

class [[nodiscard]] Error {
 public:
  Error(meron_status code, std::string what, std::string advice = {})
      : info_(std::make_unique<ErrorInfo>()) {
    info_->code = code;
    info_->what = std::move(what);
    info_->advice = std::move(advice);
  }
  explicit Error(ErrorInfo info) : info_(std::make_unique<ErrorInfo>(std::move(info))) {}
  Error(const Error& other) : info_(std::make_unique<ErrorInfo>(*other.info_)) {}
  Error& operator=(const Error& other) {
    info_ = std::make_unique<ErrorInfo>(*other.info_);
    return *this;
  }
  Error(Error&&) noexcept = default;
  Error& operator=(Error&&) noexcept = default;
  ~Error() = default;

  meron_status code() const { return info_->code; }
  const ErrorInfo& info() const { return *info_; }
  ErrorInfo& info() { return *info_; }

  Error&& on(std::string subject) && {
    if (info_->subject.empty()) info_->subject = std::move(subject);
    return std::move(*this);
  }
  Error&& during(std::string operation) && {
    if (info_->operation.empty()) info_->operation = std::move(operation);
    return std::move(*this);
  }
  Error&& at(int rank) && {
    if (info_->rank == MERON_RANK_NONE) info_->rank = rank;
    return std::move(*this);
  }
  Error&& blaming(int peer) && {
    info_->peer = peer;
    return std::move(*this);
  }

 private:
  std::unique_ptr<ErrorInfo> info_;
};

struct Ok {};

template <class T = Ok>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: by design

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() & { return *std::get_if<1>(&state_); }
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
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
