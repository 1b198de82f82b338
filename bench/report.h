// SPDX-License-Identifier: Apache-2.0
// What the benchmarks that are one C++ program report, and how.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "bench/workers.h"

namespace meron::bench {

struct Goal {
  std::string name;
  double value;
  double at_least;

  bool met() const { return value >= at_least; }
};

struct Report {
  nlohmann::ordered_json json;
  std::vector<Goal> goals;
};

// The error of a report's file that cannot be written, before anything is measured; "" if it can.
inline std::string report_file_error(const std::string& file) {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::absolute(file, failed);
  if (std::filesystem::is_directory(path, failed)) return file + " is a folder: name a file";
  if (std::filesystem::is_directory(path.parent_path(), failed)) return {};
  return file + " cannot be made: there is no folder " + path.parent_path().string();
}

// Prints the goals, unless the run was a quick one, and writes the JSON file, if one is named.
// Returns the exit status.
inline int finish(const std::string& program, Report& report, const Workers& workers, bool quick,
                  const std::string& json_file) {
  bool all_met = true;
  nlohmann::ordered_json goals = nlohmann::ordered_json::array();
  for (const Goal& goal : report.goals) {
    if (!quick)
      fmt::print("{:<36}{:>8.2f}   goal {:.2f}   {}\n", goal.name, goal.value, goal.at_least,
                 goal.met() ? "met" : "MISSED");
    goals.push_back({{"name", goal.name},
                     {"value", goal.value},
                     {"goal", goal.at_least},
                     {"passed", goal.met()}});
    all_met = all_met && goal.met();
  }
  if (quick)
    fmt::print("--quick: the figures show only that everything works; goals are left out.\n");
  if (workers.disturbed() > 0.1) {
    fmt::print(
        "Other programs had the CPUs during {:.0f} % of the runs: do not trust the figures.\n",
        workers.disturbed() * 100);
  }
  report.json["disturbed_runs"] = workers.disturbed();
  report.json["goals"] = goals;
  report.json["passed"] = all_met;
  if (json_file.empty()) return 0;
  std::ofstream file(json_file);
  file << report.json.dump(2) << '\n';
  file.close();
  if (file) return 0;
  fmt::print(stderr, "{}: cannot write {}: choose a file in a folder that exists\n", program,
             json_file);
  return 2;
}

}  // namespace meron::bench
