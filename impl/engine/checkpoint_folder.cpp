// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint_folder.h"

#include "checkpoint/directory.h"
#include "plan/json_out.h"

namespace meron {

Result<std::string> list_checkpoints(const std::string& folder) {
  MERON_ASSIGN(const auto entries, checkpoint::list(folder));
  JsonOut list = JsonOut::array();
  for (const checkpoint::Entry& entry : entries) {
    if (!entry.complete()) continue;
    list.push(JsonOut::object({{"name", entry.name},
                               {"step", entry.step},
                               {"world", entry.world},
                               {"bytes", entry.bytes},
                               {"created", entry.created},
                               {"whole", entry.whole_state}}));
  }
  return list.dump(-1);
}

}  // namespace meron
