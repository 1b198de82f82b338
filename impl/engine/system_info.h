// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace meron {

// What this host and this build offer, as JSON; docs/info.md names the keys.
std::string system_info_json();

}  // namespace meron
