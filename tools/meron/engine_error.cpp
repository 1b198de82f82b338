// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/engine_error.h"

#include <cctype>

#include "tools/meron/failure.h"

namespace meron::tools {
namespace {

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

std::string sentence_of(const Error& error) {
  const ErrorInfo& info = error.info();
  std::string text = info.subject.empty() ? info.what : info.subject + ": " + info.what;
  if (!info.advice.empty()) text += ". " + capital(info.advice);
  return text;
}

void fail(const Error& error, const std::string& subject) {
  const std::string sentence = sentence_of(error);
  throw Failure(subject.empty() ? sentence : subject + ": " + sentence);
}

}  // namespace meron::tools
