// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/merged_output.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace meron::tools {

void MergedOutput::receive(int rank, std::string_view bytes) {
  std::string& line = unfinished_[rank];
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line += bytes.substr(0, end);
    if (end == std::string_view::npos && line.size() < kLongestLine) return;
    add_marked(rank, line);
    line.clear();
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
  }
}

void MergedOutput::end(int rank) {
  const auto found = unfinished_.find(rank);
  if (found == unfinished_.end()) return;
  if (!found->second.empty()) add_marked(rank, found->second);
  unfinished_.erase(found);
}

void MergedOutput::add_line(std::string_view line) {
  pending_ += line;
  pending_ += '\n';
}

void MergedOutput::add_marked(int rank, std::string_view line) {
  fmt::format_to(std::back_inserter(pending_), "[{}] {}\n", rank, line);
}

void MergedOutput::write_some() {
  // A pipe that polls writable has room for PIPE_BUF bytes; for more, write() could block.
  const size_t size = std::min<size_t>(pending_.size() - written_, PIPE_BUF);
  const ssize_t done = write(fd_, pending_.data() + written_, size);
  if (done >= 0) {
    written_ += static_cast<size_t>(done);
  } else if (errno != EAGAIN && errno != EINTR) {
    reader_is_gone_ = true;
    written_ = pending_.size();
  }
  if (written_ == pending_.size() || written_ >= kFull) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace meron::tools
