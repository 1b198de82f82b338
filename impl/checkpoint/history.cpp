// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/history.h"

#include <fmt/format.h>

#include "plan/json_text.h"

namespace meron::checkpoint {

std::string to_json(const History& history) {
  return fmt::format(
      "{{\"id\": {}, \"parent\": {}, \"lineage\": {}, \"step\": {}, \"saved\": {}}}\n",
      json_string(history.id), json_string(history.parent), json_string(history.lineage),
      history.step, history.saved_ns);
}

Result<History> parse_history(std::string_view text) {
  MERON_ASSIGN(const JsonText json, JsonText::parse(text, std::string(kHistoryFile),
                                                    {.bytes = kMaxHistory, .depth = 8}));
  const JsonValue root = json.root();
  MERON_TRY(root.object());
  History out;
  for (const auto& [key, field] :
       {std::pair{"id", &out.id}, {"parent", &out.parent}, {"lineage", &out.lineage}}) {
    MERON_ASSIGN(const JsonValue value, root.require(key));
    MERON_ASSIGN(*field, value.string());
  }
  for (const auto& [key, field] : {std::pair{"step", &out.step}, {"saved", &out.saved_ns}}) {
    MERON_ASSIGN(const JsonValue value, root.require(key));
    MERON_ASSIGN(*field, value.count(0, UINT64_MAX));
  }
  return out;
}

}  // namespace meron::checkpoint
