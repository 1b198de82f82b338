// SPDX-License-Identifier: Apache-2.0
// Options of contexts and descriptions of params with values that mean nothing.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

struct Outs {
  meron_context context{};
  meron_param param{};
};
Outs out;

// A misuse by a struct that `spoil` made wrong.
Misuse bad_desc(const char* what, meron_status expected,
                std::function<void(meron_param_desc&, Random&)> spoil) {
  return {std::string("meron_param_register: ") + what,
          {expected},
          [spoil = std::move(spoil)](Objects& o, Random& random) {
            meron_param_desc desc = good_desc();
            spoil(desc, random);
            return FAILURE_OF(meron_param_register, &out.param, o.a->context, &desc);
          }};
}
Misuse bad_open(const char* what, meron_status expected,
                std::function<void(meron_context_options&, Random&)> spoil) {
  return {std::string("meron_context_open: ") + what,
          {expected},
          [spoil = std::move(spoil)](Objects&, Random& random) {
            meron_context_options options = good_options();
            spoil(options, random);
            return FAILURE_OF(meron_context_open, &out.context, &options);
          }};
}

}  // namespace

std::vector<Misuse> misuses_of_options() {
  return {
      bad_desc("null name", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random&) { desc.name = nullptr; }),
      bad_desc("null shape", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random&) { desc.shape = nullptr; }),
      bad_desc("taken name", MERON_E_DUPLICATE,
               [](meron_param_desc& desc, Random&) { desc.name = "u0.bias"; }),
      bad_desc("bad name", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random& random) {
                 desc.name = random.pick(bad_names()).c_str();
               }),
      bad_desc("unknown dtype", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random& random) { desc.dtype = bad_enum(random); }),
      bad_desc("negative shape", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random& random) {
                 static const int64_t shapes[][2] = {{-1, 4}, {4, INT64_MIN}, {0, -1}};
                 desc.shape = shapes[random.below(3)];
               }),
      bad_desc("overflowing shape", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random& random) {
                 static const int64_t shapes[][2] = {
                     {INT64_MAX, 2}, {int64_t{1} << 32, int64_t{1} << 32}, {INT64_MAX, INT64_MAX}};
                 desc.shape = shapes[random.below(3)];
               }),
      bad_desc("too many dimensions", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random&) {
                 static const int64_t shape[17] = {};
                 desc.shape = shape;
                 desc.dims = 17;
               }),
      bad_desc("absurd dimensions", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random&) { desc.dims = UINT32_MAX; }),
      bad_desc("unknown frozen", MERON_E_ARGUMENT,
               [](meron_param_desc& desc, Random&) { desc.frozen = 2; }),
      bad_open("another version of the headers", MERON_E_VERSION,
               [](meron_context_options& options, Random& random) {
                 options.header_version = random.below(2) == 0 ? 0 : MERON_VERSION + (1 << 8);
               }),
      bad_open("rank beyond the world", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.rank = 1; }),
      bad_open("negative rank", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.rank = -2; }),
      bad_open("empty world", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.world_size = 0; }),
      bad_open("rank without a world", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.world_size = -1; }),
      bad_open(
          "unknown transport", MERON_E_ARGUMENT,
          [](meron_context_options& options, Random&) { options.transport = "carrier pigeon"; }),
      bad_open("a world of several alone", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.world_size = 2; }),
      bad_open("negative timeout", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.timeout_ns = -5; }),
      bad_open("absurd threads", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.threads = UINT32_MAX; }),
      bad_open("reserved field", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) { options.reserved_0 = 7; }),
      bad_open("unknown device", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random& random) {
                 const std::vector<const char*> names = {
                     "gpu", "cuda:", "cuda:x", "emulated:7", "emulated:-1", "Emulated", "\xff"};
                 options.device = random.pick(names);
               }),
      bad_open("an allocator without functions", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) {
                 static const meron_allocator empty = MERON_ALLOCATOR_INIT;
                 options.device = "emulated";
                 options.allocator = &empty;
               }),
      bad_open("an allocator of another size", MERON_E_ARGUMENT,
               [](meron_context_options& options, Random&) {
                 static const meron_allocator bare = {};
                 options.allocator = &bare;
               }),
      bad_open("malformed token", MERON_E_AUTH,
               [](meron_context_options& options, Random& random) {
                 const std::vector<const char*> tokens = {"", "abc", "0123456789abcdef"};
                 options.transport = "shm";
                 options.token = random.pick(tokens);
               }),
      {"meron_context_open: bad plan",
       {MERON_E_HANDLE, MERON_E_STALE},
       [](Objects& o, Random& random) {
         meron_context_options options = good_options();
         do {
           options.plan.id = o.bad_handle(Kind::plan, random);
         } while (options.plan.id == 0);  // which stands for the default
         return FAILURE_OF(meron_context_open, &out.context, &options);
       }},
  };
}

}  // namespace meron::test
