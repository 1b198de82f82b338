// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/token.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "os/file.h"

namespace meron {
namespace {

constexpr size_t kDigits = 64;
constexpr size_t kPublicBytes = 16;

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Token::hex() const {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::string Token::public_name() const {
  return hex().substr(0, 2 * kPublicBytes);
}

Result<Token> parse_token(std::string_view hex) {
  while (!hex.empty() && (hex.back() == '\n' || hex.back() == '\r')) hex.remove_suffix(1);
  if (hex.size() != kDigits) {
    return Error(MERON_E_AUTH,
                 fmt::format("the token has {} characters instead of {}", hex.size(), kDigits),
                 "pass 64 hexadecimal digits, the same on all ranks");
  }
  Token token;
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return Error(MERON_E_AUTH, "the token holds a character that is no hexadecimal digit",
                   "pass 64 hexadecimal digits, the same on all ranks");
    }
    token.bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return token;
}

Result<Token> find_token(const char* given, Deadline deadline,
                         const std::function<bool()>& should_stop) {
  if (given != nullptr) return parse_token(given);
  if (const char* text = std::getenv("MERON_TOKEN_FD")) {
    int fd = -1;
    const char* end = text + std::strlen(text);
    const auto [stop, code] = std::from_chars(text, end, fd);
    if (code != std::errc{} || stop != end || fd < 0) {
      return Error(MERON_E_AUTH, fmt::format("MERON_TOKEN_FD='{}' is not a descriptor", text),
                   "start the ranks with `meron run`");
    }
    auto contents = read_descriptor(fd, kDigits, 2 * kDigits, deadline, should_stop);
    if (!contents.ok() && contents.error().code() == MERON_E_CANCELLED) {
      return std::move(contents).error();
    }
    if (!contents.ok() && contents.error().code() == MERON_E_TIMEOUT) {
      return Error(
          MERON_E_TIMEOUT,
          fmt::format("no token came through descriptor {} (MERON_TOKEN_FD) in time", fd),
          "let its writer write 64 hexadecimal digits, or start the ranks with `meron run`");
    }
    if (!contents.ok()) {
      return Error(MERON_E_AUTH,
                   fmt::format("the token cannot be read from descriptor {} (MERON_TOKEN_FD): {}",
                               fd, contents.error().info().what),
                   "start the ranks with `meron run`, and let no wrapper close descriptors");
    }
    return parse_token(*contents);
  }
  if (const char* text = std::getenv("MERON_TOKEN")) return parse_token(text);
  return Error(MERON_E_AUTH, "there is no token, so the ranks cannot tell friend from stranger",
               "start the ranks with `meron run -n N program`; or set MERON_STORE to a directory "
               "that all of them see, or MERON_TOKEN to the same 64 hexadecimal digits");
}

}  // namespace meron
