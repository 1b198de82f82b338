// SPDX-License-Identifier: Apache-2.0
// `meron info`: what this host and this build offer. The library says it as JSON; here it is laid
// out by shape, so that what a later version adds is shown too.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/human_bytes.h"
#include "meron/base.h"
#include "tools/meron/commands.h"
#include "tools/meron/failure.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLabelWidth = 22;
constexpr size_t kTextWidth = 76;

constexpr const char* kInfoFooter = R"(Examples:
  meron info                     for people
  meron info --json              the same for programs
  meron info --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["cpu"]["name"])')";

std::string label_of(std::string key) {
  if (key.ends_with("_bytes")) key.resize(key.size() - std::string_view("_bytes").size());
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string text_of(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_unsigned() && key.ends_with("_bytes")) {
    return human_bytes(value.get<uint64_t>());
  }
  if (value.is_array()) {
    std::string words;
    for (const Json& item : value) words += (words.empty() ? "" : " ") + text_of(key, item);
    return words.empty() ? "none" : words;
  }
  return value.dump();
}

// A line, or several with the text indented under the first.
void print_row(size_t indent, const std::string& label, const std::string& text) {
  std::string head = std::string(indent, ' ') + label;
  head.resize(std::max(head.size() + 1, kLabelWidth), ' ');
  std::string line = head;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find(' ', begin);
    if (end == std::string::npos) end = text.size();
    const bool first_word = line.size() == kLabelWidth || line == head;
    if (!first_word && line.size() + 1 + (end - begin) > kLabelWidth + kTextWidth) {
      fmt::print("{}\n", line);
      line = std::string(kLabelWidth, ' ');
    } else if (!first_word) {
      line += ' ';
    }
    line.append(text, begin, end - begin);
    begin = end + 1;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  fmt::print("{}\n", line);
}

// "available (threads of one process)", "available (collectives between GPUs: nccl 2.28.9 at ...)",
// "unavailable: no permission".
std::string availability(const Json& object) {
  const auto text = [&](const char* key) {
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
  };
  const bool available = object["available"].is_boolean() && object["available"].get<bool>();
  std::string detail = text(available ? "use" : "reason");
  if (const std::string summary = text("summary"); available && !summary.empty()) {
    detail += (detail.empty() ? "" : ": ") + summary;
  }
  if (detail.empty()) return available ? "available" : "unavailable";
  return available ? fmt::format("available ({})", detail) : "unavailable: " + detail;
}

void print_object(size_t indent, const Json& object);

void print_value(size_t indent, const std::string& key, const Json& value) {
  const bool list_of_objects = value.is_array() && !value.empty() && value[0].is_object();
  if (value.is_object() && value.contains("available")) {
    print_row(indent, label_of(key), availability(value));
  } else if (value.is_object()) {
    const bool named = value.contains("name") && value["name"].is_string();
    print_row(indent, label_of(key), named ? value["name"].get<std::string>() : "");
    print_object(indent + 2, value);
  } else if (list_of_objects) {
    print_row(indent, label_of(key), "");
    for (const Json& item : value) {
      if (item.is_object() && item.contains("name") && item.contains("available")) {
        print_row(indent + 2, text_of("name", item["name"]), availability(item));
      } else {
        print_row(indent + 2, "", item.dump());
      }
    }
  } else {
    print_row(indent, label_of(key), text_of(key, value));
  }
}

void print_object(size_t indent, const Json& object) {
  for (const auto& [key, value] : object.items()) {
    if (indent > 0 && key == "name") continue;  // printed in the headline
    print_value(indent, key, value);
  }
}

int info(bool json) {
  char* text = nullptr;
  LibraryError error;
  error.check(meron_system_info(&text, error.out()));
  const std::unique_ptr<char, void (*)(char*)> owner(text, meron_string_free);
  if (json) {
    fmt::print("{}\n", text);
  } else {
    print_object(0, Json::parse(text));
  }
  return kSuccess;
}

}  // namespace

Subcommand add_info(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("info", "Report what this host and this build offer");
  app->footer(kInfoFooter);
  auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "print JSON");
  return {app, [json] { return info(*json); }};
}

}  // namespace meron::tools
