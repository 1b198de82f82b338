// SPDX-License-Identifier: Apache-2.0
// The job's secret: 32 random bytes, written as 64 hexadecimal digits, that a launcher makes and
// every rank shows when the ranks meet.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meron {

struct Token {
  std::array<std::byte, 32> bytes{};

  // Names the meeting when no job name is given: 16 bytes of the token that are not the secret.
  std::string public_name() const;
  std::string hex() const;
};

Result<Token> parse_token(std::string_view hex);

// From `given` if not null, else from the descriptor named by MERON_TOKEN_FD (read from offset 0
// where it can seek), else from MERON_TOKEN. MERON_E_AUTH when there is none.
Result<Token> find_token(const char* given);

}  // namespace meron
