// SPDX-License-Identifier: Apache-2.0
// The job's secret: 32 random bytes, written as 64 hexadecimal digits, that a launcher makes and
// every rank shows when the ranks meet.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
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
// A descriptor may be a pipe: waits for its writer until `deadline`, and asks should_stop, which
// may be empty, meanwhile.
Result<Token> find_token(const char* given, Deadline deadline,
                         const std::function<bool()>& should_stop);

}  // namespace meron
