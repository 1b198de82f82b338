// SPDX-License-Identifier: Apache-2.0
#include "call_log/group_failure.h"

#include <fmt/format.h>

#include <utility>

#include "base/layout.h"

namespace meron {

Error GroupFailure::report(const Error& error) {
  // A record is written once: a peer may be reading it from then on.
  if (some() || written_) return this->error();
  FailureRecord& record = blocks_[members_.index()].failure;
  const ErrorInfo& info = error.info();
  record.code = info.code;
  record.finder = transport_.rank();
  record.culprit = info.peer;
  record.steps = steps_;
  put_text(record.operation, info.operation);
  put_text(record.subject, info.subject);
  put_text(record.what, info.what);
  put_text(record.advice, info.advice);
  const uint32_t claim = static_cast<uint32_t>(members_.index()) + 1;
  // First what may fail: the group must not be broken on this node alone.
  if (link_ != nullptr) {
    link_->store(members_.ranks(), transport_.offset_of(&record), round_up(sizeof(record), 8));
    link_->claim_word(members_.ranks(), transport_.offset_of(&header_->failed), claim);
  }
  written_ = true;
  uint32_t expected = 0;
  header_->failed.compare_exchange_strong(expected, claim, std::memory_order_seq_cst);
  transport_.ring();
  return this->error();
}

Error GroupFailure::unusable(const char* what) const {
  Error failure = error();
  ErrorInfo& info = failure.info();
  const uint32_t finder = header_->failed.load(std::memory_order_seq_cst);
  const uint32_t step = blocks_[finder - 1].failure.steps;
  const std::string since =
      step == 0 ? std::string() : fmt::format(" since optimizer step {}", step);
  const std::string call =
      info.operation.empty() ? std::string() : fmt::format("{} failed: ", info.operation);
  const bool named = info.subject.empty() || info.what.find(info.subject) != std::string::npos;
  info.what = fmt::format("this {} is unusable{}: {}{}{}", what, since, call,
                          named ? std::string() : info.subject + ": ", info.what);
  info.advice = info.advice.empty() ? std::string("start again")
                                    : fmt::format("start again ({})", info.advice);
  // Those of the call that is refused follow.
  info.operation.clear();
  info.subject.clear();
  return failure;
}

Error GroupFailure::error() const {
  const uint32_t finder = header_->failed.load(std::memory_order_seq_cst);
  const FailureRecord& record = blocks_[finder - 1].failure;
  ErrorInfo info;
  info.code = record.code;
  info.what = record.what;
  if (record.finder != transport_.rank()) {
    info.what += fmt::format(" (found by rank {})", record.finder);
  }
  info.operation = record.operation;
  info.subject = record.subject;
  info.advice = record.advice;
  info.rank = transport_.rank();
  info.peer = record.culprit;
  return Error(std::move(info));
}

}  // namespace meron
