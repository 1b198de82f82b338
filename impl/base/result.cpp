// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include "base/no_memory.h"

namespace meron {

Error::Error(meron_status code, std::string what, std::string advice) : info_(new ErrorInfo) {
  info_->code = code;
  info_->what = std::move(what);
  info_->advice = std::move(advice);
}

Error::Error(ErrorInfo info) : info_(new ErrorInfo(std::move(info))) {}

Error::Error(const Error& other) : info_(new ErrorInfo(*other.info_)) {}

Error&& Error::on(std::string subject) && {
  if (info_->subject.empty()) info_->subject = std::move(subject);
  return std::move(*this);
}

Error&& Error::during(std::string operation) && {
  if (info_->operation.empty()) info_->operation = std::move(operation);
  return std::move(*this);
}

Error no_memory_error(std::string operation) {
  Error error(MERON_E_NO_MEMORY, "the process has no memory left",
              "free memory, or use smaller units");
  error.info().operation = std::move(operation);
  return error;
}

void Error::destroy() {
  delete info_;
}

}  // namespace meron
