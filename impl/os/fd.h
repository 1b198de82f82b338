// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace meron {

// Owns one file descriptor; closes it in its destructor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor up without closing it.
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

  // A second descriptor of the same open file, close-on-exec; invalid when none is left.
  UniqueFd duplicate() const;

 private:
  int fd_ = -1;
};

}  // namespace meron
