// SPDX-License-Identifier: Apache-2.0
// How a subcommand gives up: it throws a Failure, and main() prints it and exits with its code.
#pragma once

#include <stdexcept>
#include <string>

#include "meron/base.h"

namespace meron::tools {

enum ExitCode : int {
  kSuccess = 0,
  kRuntimeError = 1,
  kUsageError = 2,
  // `meron run` follows the shell where a program was not even started, and timeout(1) where it
  // took too long.
  kTimedOut = 124,
  kNotExecutable = 126,
  kNotFound = 127,
  kKilledBySignal = 128,  // plus the signal's number
};

class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, int exit_code = kRuntimeError)
      : std::runtime_error(message), exit_code_(exit_code) {}

  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// "cannot open f.json: No such file or directory", from errno.
Failure system_failure(const std::string& what, int error);

// Receives the error object of one call of the library:
//
//   LibraryError error;
//   error.check(meron_plan_preset(&plan, name, error.out()));
class LibraryError {
 public:
  LibraryError() = default;
  LibraryError(const LibraryError&) = delete;
  LibraryError& operator=(const LibraryError&) = delete;
  ~LibraryError() { meron_error_free(error_); }

  meron_error** out();

  // Throws what the library said unless `status` is MERON_OK; `subject`, for example the file that
  // was read, begins the message.
  void check(meron_status status, const std::string& subject = {}) const;

 private:
  meron_error* error_ = nullptr;
};

}  // namespace meron::tools
