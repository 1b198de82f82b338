// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "call_log/channel.h"

namespace meron {

// The last calls of every member, oldest first, with the group's error if there is one, as JSON. A
// snapshot while members continue: a record that is being overwritten is left out.
std::string flight_record_json(const Channel& channel);

}  // namespace meron
