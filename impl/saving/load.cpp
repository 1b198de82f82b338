// SPDX-License-Identifier: Apache-2.0
#include "saving/load.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/directory.h"
#include "saving/loader.h"

namespace meron {
namespace {

Status fit(const Differences& differences, bool strict, const std::string& path) {
  Differences matter = differences;
  if (!strict) matter.missing.clear(), matter.unexpected.clear();
  if (!matter.any()) return Ok{};
  return Error(MERON_E_ARGUMENT,
               fmt::format("the checkpoint does not fit the units: {}", matter.text()),
               strict ? "load it into the model that it is of, or without `strict`"
                      : "load it into a model of these shapes")
      .on(path);
}

}  // namespace

Result<LoadReport> load(Exchange& exchange, std::span<const UnitState> units,
                        const LoadOptions& options,
                        const std::shared_ptr<checkpoint::Staging>& staging,
                        const UpdateUnit& update,
                        const std::function<Status(const checkpoint::Manifest&)>& check) {
  const auto find = [&]() -> Result<std::string> {
    MERON_ASSIGN(const checkpoint::Checkpoint found,
                 checkpoint::resolve(options.root, options.name));
    return found.path + '\0' + checkpoint::to_json(found.manifest);
  };
  // Rank 0 reads the manifest for all.
  MERON_ASSIGN(const std::string shared,
               share(exchange, exchange.rank() == 0 ? find() : Result<std::string>(std::string())));
  const size_t cut = shared.find('\0');
  checkpoint::Checkpoint checkpoint;
  checkpoint.path = shared.substr(0, cut);
  MERON_ASSIGN(checkpoint.manifest,
               checkpoint::parse_manifest(std::string_view(shared).substr(cut + 1)));

  const Matching matching(checkpoint.manifest, units, options.values_only);
  MERON_TRY(fit(matching.differences(), options.strict, checkpoint.path));
  MERON_TRY(check(checkpoint.manifest));
  auto loader = Loader::create(checkpoint, units, matching, staging, options.timeout_ns);
  MERON_TRY(agree(exchange, loader.ok() ? Status(Ok{}) : Status(loader.error())));
  for (const UnitState& unit : units) {
    MERON_TRY(update(unit, [&] { return (*loader)->load_next(exchange); }));
  }
  LoadReport report;
  report.differences = matching.differences();
  report.bytes_read = (*loader)->bytes_read();
  report.checkpoint = std::move(checkpoint);
  return report;
}

}  // namespace meron
