// SPDX-License-Identifier: Apache-2.0
#include "operations.h"
#include "sockets.h"

namespace conformance {
namespace {

constexpr double kDeadline = 20.0;  // seconds
constexpr uint64_t kArenaReserve = 64ull << 20;

int32_t answer_should_stop(void* user) {
  return static_cast<Session*>(user)->stop.load();
}

void open_with(Session& session, const Statement& statement, uint32_t header_version) {
  const Setup& setup = session.setup;
  const std::string name = statement.name.empty() ? "ctx" : statement.name;
  const std::string transport = statement.get("transport", setup.transport);
  const std::string job =
      statement.get("job", setup.job + "." + session.name + "." + session.plan + "." + name);
  meron_context_options options{};
  call(meron_context_options_init, &options, sizeof options);
  options.header_version = header_version;
  options.transport = transport.c_str();
  options.job = job.c_str();
  options.rank = static_cast<int32_t>(statement.number("rank", setup.rank));
  options.world_size = static_cast<int32_t>(statement.number("world", setup.world));
  options.timeout_ns = static_cast<int64_t>(statement.number("timeout", kDeadline) * 1e9);
  options.host_memory_limit = static_cast<uint64_t>(statement.number("limit", 0));
  options.arena_reserve = kArenaReserve;
  options.threads = 1;
  if (statement.has("device")) options.device = statement.get("device").c_str();
  if (statement.has("token")) options.token = statement.get("token").c_str();
  if (statement.has("stoppable")) {
    options.should_stop = answer_should_stop;
    options.should_stop_user = &session;
  }
  if (transport == "custom") {
    // Kept before the context is, and so released after it.
    std::unique_ptr<Sockets> sockets = join_sockets(job, setup.rank, setup.world);
    options.custom = &sockets->table;
    session.keep(name + ".sockets", std::move(sockets));
  }
  std::unique_ptr<Plan> preset;
  if (statement.has("plan")) {
    options.plan = session.find<Plan>(statement.get("plan")).handle;
  } else {
    meron_plan plan{};
    call(meron_plan_preset, &plan, session.plan.c_str());
    preset = std::make_unique<Plan>(plan);
    options.plan = plan;
  }
  meron_context handle{};
  call(meron_context_open, &handle, &options);
  auto context = std::make_unique<Context>(handle);
  meron_group world{};
  call(meron_context_world, &world, handle);
  context->world = std::make_unique<Group>(world);
  session.keep(name, std::move(context));
  session.current_name = name;
}

void open(Session& session, const Statement& statement) {
  open_with(session, statement, MERON_VERSION);
}

void open_version(Session& session, const Statement& statement) {
  open_with(session, statement, static_cast<uint32_t>(to_integer(statement.get("minor"))) << 8);
}

void use(Session& session, const Statement& statement) {
  session.current_name = statement.name;
}

void close(Session& session, const Statement& statement) {
  session.find<Context>(statement.name.empty() ? session.current_name : statement.name).release();
}

void context(Session& session, const Statement&) {
  const meron_context handle = session.current().handle;
  int32_t rank = -1, size = -1;
  const char* transport = nullptr;
  call(meron_context_rank, &rank, handle);
  call(meron_context_world_size, &size, handle);
  call(meron_context_transport, &transport, handle);
  check_equal("the rank", rank, session.setup.rank);
  check_equal("the size of the world", size, session.setup.world);
  check_equal("the transport", transport, session.setup.transport);
}

void progress(Session& session, const Statement&) {
  call(meron_context_progress, session.current().handle);
}

void stop(Session& session, const Statement& statement) {
  session.stop = statement.name == "1";
}

meron_stats stats_of(Session& session) {
  meron_stats stats{};
  stats.struct_size = sizeof stats;
  call(meron_context_stats, &stats, session.current().handle);
  return stats;
}

void mark(Session& session, const Statement&) {
  session.current().marked = stats_of(session);
}

uint64_t counted_of(Session& session, const meron_stats& now, const std::string& name) {
  const Counter counter = counter_of(name);
  return now.*counter.field - (counter.grows ? session.current().marked.*counter.field : 0);
}

void counted(Session& session, const Statement& statement) {
  const meron_stats now = stats_of(session);
  for (const auto& [name, value] : statement.arguments) {
    if (name == "on") continue;
    check_equal(name, static_cast<double>(counted_of(session, now, name)), to_number(value));
  }
}

void predicted(Session& session, const Statement& statement) {
  meron_workload workload = MERON_WORKLOAD_INIT;
  workload.micro_batches = static_cast<uint32_t>(statement.number("micro_batches", 1));
  workload.gathers_per_micro_batch = static_cast<uint32_t>(statement.number("gathers", 2));
  meron_prediction prediction{};
  prediction.struct_size = sizeof prediction;
  call(meron_context_predict, &prediction, session.current().handle,
       static_cast<const meron_workload*>(&workload));
  const auto steps = static_cast<uint64_t>(statement.number("steps", 1));
  const std::pair<const char*, uint64_t> expected[] = {
      {"param_bytes", prediction.param_bytes},
      {"gradient_bytes", prediction.gradient_bytes},
      {"optimizer_bytes", prediction.optimizer_bytes},
      {"peak_bytes", prediction.peak_bytes},
      {"gather_mapped_bytes", prediction.gather_mapped_bytes * steps},
      {"gather_copied_bytes", prediction.gather_copied_bytes * steps},
      {"reduce_bytes", prediction.reduce_bytes * steps},
      {"inter_node_gather_bytes", prediction.inter_node_gather_bytes * steps},
      {"inter_node_reduce_bytes", prediction.inter_node_reduce_bytes * steps},
      {"nvme_read_bytes", prediction.nvme_read_bytes * steps},
      {"nvme_written_bytes", prediction.nvme_written_bytes * steps},
      {"nvme_bytes", prediction.nvme_bytes},
      {"device_bytes", prediction.device_bytes},
  };
  const meron_stats now = stats_of(session);
  for (const auto& [name, value] : expected) {
    const uint64_t found = counted_of(session, now, name);
    const bool staged = session.setup.transport == "custom" && name == std::string("peak_bytes");
    if (staged && found > value) continue;  // messages have memory of their own
    check_equal(name, static_cast<double>(found), static_cast<double>(value));
  }
}

void flight_record(Session& session, const Statement& statement) {
  char* out = nullptr;
  call(meron_context_flight_record, &out, session.current().handle);
  const std::unique_ptr<char, void (*)(char*)> owned(out, meron_string_free);
  check_has(out, statement);
}

}  // namespace

Operations context_operations() {
  return {{"open", open},
          {"open_version", open_version},
          {"use", use},
          {"close", close},
          {"context", context},
          {"progress", progress},
          {"stop", stop},
          {"mark", mark},
          {"counted", counted},
          {"predicted", predicted},
          {"flight_record", flight_record}};
}

}  // namespace conformance
