// SPDX-License-Identifier: Apache-2.0
#include "plan/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include "plan/text.h"

namespace meron {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024;
constexpr double kBit = 0.125;  // bytes

constexpr std::array kBytes = {Unit{"B", 1},
                               Unit{"kB", 1e3},
                               Unit{"MB", 1e6},
                               Unit{"GB", 1e9},
                               Unit{"TB", 1e12},
                               Unit{"PB", 1e15},
                               Unit{"KiB", kKi},
                               Unit{"MiB", kKi* kKi},
                               Unit{"GiB", kKi* kKi* kKi},
                               Unit{"TiB", kKi* kKi* kKi* kKi},
                               Unit{"PiB", kKi* kKi* kKi* kKi* kKi}};
constexpr std::array kByteRates = {Unit{"b/s", kBit},
                                   Unit{"kb/s", kBit * 1e3},
                                   Unit{"Mb/s", kBit * 1e6},
                                   Unit{"Gb/s", kBit * 1e9},
                                   Unit{"Tb/s", kBit * 1e12},
                                   Unit{"B/s", 1},
                                   Unit{"kB/s", 1e3},
                                   Unit{"MB/s", 1e6},
                                   Unit{"GB/s", 1e9},
                                   Unit{"TB/s", 1e12},
                                   Unit{"KiB/s", kKi},
                                   Unit{"MiB/s", kKi* kKi},
                                   Unit{"GiB/s", kKi* kKi* kKi},
                                   Unit{"TiB/s", kKi* kKi* kKi* kKi}};
constexpr std::array kSeconds = {Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"us", 1e-6},
                                 Unit{"ns", 1e-9}};
constexpr std::array kWorkRates = {Unit{"FLOP/s", 1}, Unit{"GFLOP/s", 1e9}, Unit{"TFLOP/s", 1e12},
                                   Unit{"PFLOP/s", 1e15}};

struct Kind {
  const char* what;
  const char* example;
  std::span<const Unit> units;
  double most;
};

Kind kind_of(QuantityKind kind) {
  switch (kind) {
    case QuantityKind::bytes:
      return {"a number of bytes", "80 GiB", kBytes, kMaxQuantity};
    case QuantityKind::byte_rate:
      return {"a rate", "100 Gb/s", kByteRates, kMaxQuantity};
    case QuantityKind::seconds:
      return {"a time", "5 us", kSeconds, kMaxSeconds};
    case QuantityKind::work_rate:
      break;
  }
  return {"a rate of arithmetic", "400 TFLOP/s", kWorkRates, kMaxQuantity};
}

// Three digits before and after the point together, without zeros at the end.
std::string three_digits(double value) {
  return fmt::format("{:.3g}", value);
}

}  // namespace

Result<double> parse_quantity(std::string_view text, QuantityKind wanted) {
  const Kind kind = kind_of(wanted);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  const bool negative = !text.empty() && text[0] == '-';
  if (code != std::errc() || !std::isfinite(number) || negative) {
    return Error(MERON_E_PARSE, fmt::format("{} is not {}", in_quotes(text), kind.what),
                 fmt::format("write a number and a unit, for example \"{}\"", kind.example));
  }
  std::string_view name(stop, static_cast<size_t>(end - stop));
  while (name.starts_with(' ')) name.remove_prefix(1);
  std::vector<std::string_view> known;
  for (const Unit& unit : kind.units) {
    known.push_back(unit.name);
    if (unit.name != name) continue;
    const double value = number * unit.factor;
    if (value <= kind.most) return value;
    return Error(MERON_E_PARSE, fmt::format("{} is more than is possible", in_quotes(text)),
                 "check number and unit");
  }
  const std::string what = name.empty()
                               ? fmt::format("{} has no unit", in_quotes(text))
                               : fmt::format("{} is not a unit of {}", in_quotes(name), kind.what);
  return Error(MERON_E_PARSE, what, suggestion(name, "units", known));
}

std::string human_seconds(double seconds) {
  for (const Unit& unit : kSeconds) {
    // 0.9995 ms would print as 1e+03 us.
    if (seconds >= unit.factor * 0.9995) {
      const double value = seconds / unit.factor;
      return value >= 999.5 ? fmt::format("{:.0f} {}", value, unit.name)
                            : three_digits(value) + " " + std::string(unit.name);
    }
  }
  return seconds == 0 ? "0 s" : three_digits(seconds * 1e9) + " ns";
}

std::string human_rate(double bytes_per_second) {
  std::string_view name = "B/s";
  double factor = 1;
  for (const Unit& unit :
       {Unit{"kB/s", 1e3}, Unit{"MB/s", 1e6}, Unit{"GB/s", 1e9}, Unit{"TB/s", 1e12}}) {
    if (bytes_per_second < unit.factor) break;
    name = unit.name;
    factor = unit.factor;
  }
  return fmt::format("{:.4g} {}", bytes_per_second / factor, name);
}

}  // namespace meron
