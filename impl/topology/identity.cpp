// SPDX-License-Identifier: Apache-2.0
#include "topology/identity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

namespace meron {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
};

constexpr std::array kLaunchers = {
    Launcher{kMeronRun, "MERON_RANK", "MERON_WORLD_SIZE", "MERON_LOCAL_RANK",
             "MERON_LOCAL_WORLD_SIZE"},
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    Launcher{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

Result<std::optional<int>> read_number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::optional<int>{};
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, code] = std::from_chars(text, end, value);
  if (code != std::errc{} || stop != end || text == end) {
    return Error(MERON_E_ARGUMENT, fmt::format("{}='{}' is not a whole number", variable, text),
                 "correct or unset the variable, or pass rank and world size");
  }
  return std::optional<int>{value};
}

Status check(const Identity& identity) {
  if (identity.world_size < 1 || identity.world_size > kMaxWorldSize) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("a world of {} ranks is not possible", identity.world_size),
                 fmt::format("give a world size from 1 to {}", kMaxWorldSize));
  }
  if (identity.rank < 0 || identity.rank >= identity.world_size) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("rank {} is beyond a world of {} (from {})", identity.rank,
                             identity.world_size, identity.source),
                 fmt::format("give a rank from 0 to {}", identity.world_size - 1));
  }
  return Ok{};
}

// Variables that name a job, with those that distinguish its parts and repetitions.
constexpr std::array kJobs = {
    std::array{"MERON_JOB", "", ""},
    std::array{"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
    std::array{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", ""},
    std::array{"PBS_JOBID", "", ""},
    std::array{"LSB_JOBID", "LSB_JOBINDEX", ""},
};
constexpr size_t kLongestJob = 128;

std::string job_of_launcher() {
  for (const auto& variables : kJobs) {
    std::string name;
    for (const char* variable : variables) {
      const char* text = *variable != '\0' ? std::getenv(variable) : nullptr;
      if (text != nullptr && *text != '\0') {
        name += name.empty() ? "" : "-";
        name += text;
      } else if (name.empty()) {
        break;
      }
    }
    if (!name.empty()) return name;
  }
  return "default";
}

}  // namespace

Result<std::string> find_job(const std::string& given) {
  std::string name = given.empty() ? job_of_launcher() : given;
  if (name.size() > kLongestJob) {
    return Error(MERON_E_ARGUMENT, fmt::format("the job's name has {} bytes", name.size()),
                 fmt::format("use at most {} (option `job`, or MERON_JOB)", kLongestJob));
  }
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  for (char& c : name) {
    if (kPlain.find(c) == std::string_view::npos) c = '_';
  }
  return name;
}

Result<Identity> find_identity(int rank, int world_size) {
  Identity identity;
  if (rank != -1 || world_size != -1) {
    if (rank == -1 || world_size == -1) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("only the {} was given", rank == -1 ? "world size" : "rank"),
                   "give both rank and world size, or neither (-1) to read the launcher's "
                   "variables");
    }
    identity = {rank, world_size, rank, world_size, "arguments"};
    MERON_TRY(check(identity));
    return identity;
  }
  for (const Launcher& launcher : kLaunchers) {
    MERON_ASSIGN(const auto found_rank, read_number(launcher.rank));
    MERON_ASSIGN(const auto found_size, read_number(launcher.world_size));
    if (!found_rank && !found_size) continue;
    if (!found_rank || !found_size) {
      return Error(
          MERON_E_ARGUMENT,
          fmt::format("{} is set, but {} is not", found_rank ? launcher.rank : launcher.world_size,
                      found_rank ? launcher.world_size : launcher.rank),
          "set both or neither, or pass rank and world size");
    }
    MERON_ASSIGN(const auto local_rank, read_number(launcher.local_rank));
    MERON_ASSIGN(const auto local_size, read_number(launcher.local_size));
    identity = {*found_rank, *found_size, local_rank.value_or(*found_rank),
                local_size.value_or(*found_size), launcher.name};
    MERON_TRY(check(identity));
    return identity;
  }
  identity.source = "alone";
  return identity;
}

}  // namespace meron
