// SPDX-License-Identifier: Apache-2.0
// Brings the lines that several ranks print into one stream, each whole and marked with its rank.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace meron::tools {

// Never waits for the stream's reader: what cannot be written yet is kept, and is_full() says when
// to stop taking more.
class MergedOutput {
 public:
  explicit MergedOutput(int fd) : fd_(fd) {}

  void receive(int rank, std::string_view bytes);
  // Ends the output of this rank: completes a last line that has no line end.
  void end(int rank);
  // A line of the launcher itself, without mark.
  void add_line(std::string_view line);

  int fd() const { return fd_; }
  bool has_pending() const { return written_ < pending_.size(); }
  bool is_full() const { return pending_.size() - written_ >= kFull; }
  bool reader_is_gone() const { return reader_is_gone_; }
  // Writes what a pipe that polls writable takes without blocking.
  void write_some();

 private:
  static constexpr size_t kFull = size_t{1} << 20;
  static constexpr size_t kLongestLine = size_t{1} << 20;  // a longer one is cut

  void add_marked(int rank, std::string_view line);

  int fd_;
  std::map<int, std::string> unfinished_;  // by rank: the line that has not ended yet
  std::string pending_;
  size_t written_ = 0;  // of pending_
  bool reader_is_gone_ = false;
};

}  // namespace meron::tools
