// SPDX-License-Identifier: Apache-2.0
#include "modules/emulated/machine.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace meron::emulated {
namespace {

constexpr std::array kKeys = {
    std::pair("count", &Settings::count),
    std::pair("memory", &Settings::memory),
    std::pair("delay", &Settings::delay),
    std::pair("break", &Settings::break_at),
    std::pair("fail", &Settings::fail_at),
    std::pair("alone", &Settings::alone),
    std::pair("collectives", &Settings::collectives),
    std::pair("shared", &Settings::shared),
    std::pair("pins", &Settings::pins),
    std::pair("strict", &Settings::strict),
    std::pair("windows", &Settings::windows),
    std::pair("registers", &Settings::registers),
    std::pair("block", &Settings::block),
};

std::string all_keys() {
  std::string text;
  for (const auto& [name, place] : kKeys) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// Returns the key or value that is not understood; empty: all are.
std::string read_settings(std::string_view text, Settings* out) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equal = item.find('=');
    if (equal == std::string_view::npos) return std::string(item);
    const std::string_view value = item.substr(equal + 1);
    const auto key = std::find_if(kKeys.begin(), kKeys.end(), [&](const auto& each) {
      return item.substr(0, equal) == each.first;
    });
    if (key == kKeys.end()) return std::string(item);
    const char* const end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, out->*key->second);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::string(item);
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
    say(failure, "MERON_EMULATED_DEVICE has '" + wrong + "', which is none of " + all_keys() +
                     " with a number");
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

void block_caller() {
  uint64_t block = 0;
  {
    Machine& all = machine();
    const std::lock_guard lock(all.mutex);
    block = all.settings.block;
  }
  if (block > 0) std::this_thread::sleep_for(std::chrono::microseconds(block));
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
