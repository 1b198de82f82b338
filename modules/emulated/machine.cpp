// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/machine.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace meron::emulated {
namespace {

// Returns the key or value that is not understood; empty: all are.
std::string read_settings(std::string_view text, Settings* out) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equal = item.find('=');
    if (equal == std::string_view::npos) return std::string(item);
    const std::string_view key = item.substr(0, equal), value = item.substr(equal + 1);
    uint64_t* const place = key == "count"         ? &out->count
                            : key == "memory"      ? &out->memory
                            : key == "delay"       ? &out->delay
                            : key == "break"       ? &out->break_at
                            : key == "fail"        ? &out->fail_at
                            : key == "alone"       ? &out->alone
                            : key == "collectives" ? &out->collectives
                            : key == "shared"      ? &out->shared
                            : key == "pins"        ? &out->pins
                            : key == "strict"      ? &out->strict
                            : key == "windows"     ? &out->windows
                                                   : nullptr;
    const auto parsed = place == nullptr
                            ? std::from_chars_result{value.data(), std::errc::invalid_argument}
                            : std::from_chars(value.data(), value.data() + value.size(), *place);
    if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size()) {
      return std::string(item);
    }
  }
  return {};
}

}  // namespace

Machine& machine() {
  static Machine* const made = new Machine();  // outlives the threads of streams
  return *made;
}

void say(meron_backend_failure* failure, std::string_view text, bool broken) {
  if (failure == nullptr) return;
  failure->code = 0;
  failure->broken = broken ? 1 : 0;
  const size_t length = std::min(text.size(), sizeof(failure->text) - 1);
  std::memcpy(failure->text, text.data(), length);
  failure->text[length] = '\0';
}

meron_status load_settings(meron_backend_failure* failure) {
  const char* const given = std::getenv("MERON_EMULATED_DEVICE");
  const std::string text = given == nullptr ? "" : given;
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  if (text == all.text) return MERON_OK;
  Settings settings;
  const std::string wrong = read_settings(text, &settings);
  if (!wrong.empty()) {
    say(failure, "MERON_EMULATED_DEVICE has '" + wrong +
                     "', which is none of count, memory, delay, break, fail, alone, collectives, "
                     "shared, pins, strict, windows with a number");
    return MERON_E_ARGUMENT;
  }
  all.text = text;
  all.settings = settings;
  all.operations = 0;
  all.collectives = 0;
  all.broken.clear();
  return MERON_OK;
}

bool is_broken(int32_t index) {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  return all.broken.count(index) != 0;
}

meron_status say_broken(meron_backend_failure* failure) {
  say(failure, "it broke, as MERON_EMULATED_DEVICE asks", true);
  return MERON_E_IO;
}

bool work_on(int32_t index, const std::function<void()>& work) {
  uint64_t delay = 0;
  {
    Machine& all = machine();
    const std::lock_guard lock(all.mutex);
    if (++all.operations == all.settings.break_at) all.broken.insert(index);
    if (all.broken.count(index) != 0) return false;
    delay = all.settings.delay;
  }
  if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  work();
  return true;
}

}  // namespace meron::emulated
