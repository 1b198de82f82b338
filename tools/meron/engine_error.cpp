// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/engine_error.h"

#include <cctype>
#include <string_view>

#include "tools/meron/failure.h"

namespace meron::tools {
namespace {

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// Advice of the engine with the options of the command.
std::string in_options(std::string advice) {
  constexpr std::string_view kOverwrite = "or overwrite it";
  const size_t place = advice.find(kOverwrite);
  if (place != std::string::npos) advice.replace(place, kOverwrite.size(), "or pass --overwrite");
  return advice;
}

}  // namespace

std::string sentence_of(const Error& error) {
  const ErrorInfo& info = error.info();
  std::string text = info.subject.empty() ? info.what : info.subject + ": " + info.what;
  if (!info.advice.empty()) text += ". " + capital(in_options(info.advice));
  return text;
}

void fail(const Error& error, const std::string& subject) {
  const std::string sentence = sentence_of(error);
  throw Failure(subject.empty() ? sentence : subject + ": " + sentence);
}

}  // namespace meron::tools
