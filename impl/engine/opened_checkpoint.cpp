// SPDX-License-Identifier: Apache-2.0
#include "engine/opened_checkpoint.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "checkpoint/source.h"

namespace meron {
namespace {

std::string lines_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

}  // namespace

Result<std::shared_ptr<OpenedCheckpoint>> OpenedCheckpoint::open(const std::string& folder,
                                                                 const std::string& name) {
  const Deadline deadline = Deadline::after(checkpoint::kReplacedNs);
  while (true) {
    LoadReport report;
    MERON_ASSIGN(report.checkpoint, checkpoint::open_source(folder, name));
    auto opened = std::make_shared<OpenedCheckpoint>(std::move(report));
    const Status held = opened->reader_.hold();
    if (held.ok()) return opened;
    // Another save has replaced or removed it since: there is a newer one.
    if (held.error().code() != MERON_E_NOT_FOUND || deadline.passed()) return held.error();
  }
}

OpenedCheckpoint::OpenedCheckpoint(LoadReport report)
    : reader_(std::move(report.checkpoint)),
      loaded_bytes_(report.bytes_read),
      missing_count_(report.differences.missing.size()),
      unexpected_count_(report.differences.unexpected.size()),
      missing_(lines_of(report.differences.missing)),
      unexpected_(lines_of(report.differences.unexpected)),
      passed_over_(checkpoint::words_of_skipped(reader_.checkpoint())) {}

uint64_t OpenedCheckpoint::file_bytes() const {
  uint64_t bytes = 0;
  for (const checkpoint::File& file : reader_.manifest().files) bytes += file.bytes;
  return bytes;
}

const std::string& OpenedCheckpoint::manifest() {
  std::call_once(composed_, [&] { manifest_ = checkpoint::to_json(reader_.manifest()); });
  return manifest_;
}

}  // namespace meron
