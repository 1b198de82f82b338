// SPDX-License-Identifier: Apache-2.0
#include "plan_fuzz.h"
#include "tools/meron/planning/cluster.h"
#include "tools/meron/planning/step_time.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  using namespace meron::planning;
  const Result<Cluster> cluster = parse_cluster({reinterpret_cast<const char*>(data), size});
  if (!cluster) {
    require_good_error(cluster);
    return 0;
  }
  const Result<Cluster> again = parse_cluster(to_json(*cluster));
  require(again.ok() && *again == *cluster, "a cluster survives the way to JSON and back");
  constexpr uint32_t kMostDevices = 256;  // more of them take longer, and nothing else
  if (cluster->devices() > kMostDevices) return 0;
  const ModelDesc model = *model_from_size(1'000'000, 3, DType::bf16);
  const Result<Ranking> ranking = rank_strategies(model, *cluster, {.compute_seconds = 0.1});
  require(ranking.ok(), "every cluster can be ranked on");
  for (const Estimate& cost : ranking->estimates) {
    require(cost.with_overlap() <= cost.without_overlap(), "overlap makes nothing slower");
  }
  require(valid_utf8(to_table(*ranking)) && !to_json(*ranking).empty(), "a ranking can be printed");
  return 0;
}
