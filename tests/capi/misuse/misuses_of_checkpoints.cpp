// SPDX-License-Identifier: Apache-2.0
// Names, options and tensors that mean nothing to a checkpoint, and saves and loads at a wrong
// time.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

using Statuses = std::vector<meron_status>;

meron_future future;
meron_checkpoint made;
const char* text;
char* list;

Misuse misuse(const std::string& name, Statuses expected,
              std::function<CallFailed(Objects&)> call) {
  return {name, std::move(expected),
          [call = std::move(call)](Objects& o, Random&) { return call(o); }};
}

// The error of a save of `b`, which has no pending operation: from its begin, or from its wait.
CallFailed save(const Objects& o, const char* name, const meron_checkpoint_save_options& options) {
  CallFailed failed = FAILURE_OF(meron_checkpoint_save_begin, &future, o.b->context,
                                 o.folder.c_str(), name, &options);
  if (failed.status != MERON_OK) return failed;
  failed = FAILURE_OF(meron_future_wait, future, MERON_TIMEOUT_DEFAULT);
  MUST(meron_future_release, future);
  return failed;
}

Misuse bad_name(const char* what, std::string name) {
  return misuse(std::string("meron_checkpoint_save_begin: ") + what, {MERON_E_ARGUMENT},
                [name = std::move(name)](Objects& o) {
                  return save(o, name.c_str(), MERON_CHECKPOINT_SAVE_OPTIONS_INIT);
                });
}
Misuse bad_save(const char* what, Statuses expected,
                std::function<void(Objects&, meron_checkpoint_save_options&)> spoil) {
  return misuse(std::string("meron_checkpoint_save_begin: ") + what, std::move(expected),
                [spoil = std::move(spoil)](Objects& o) {
                  meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
                  spoil(o, options);
                  return save(o, "never", options);
                });
}
Misuse bad_load(const char* what, Statuses expected, const char* name,
                std::function<void(Objects&, meron_checkpoint_load_options&)> spoil) {
  return misuse(std::string("meron_checkpoint_load: ") + what, std::move(expected),
                [=](Objects& o) {
                  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
                  options.optimizers = &o.b->optimizer;
                  options.optimizer_count = 1;
                  spoil(o, options);
                  return FAILURE_OF(meron_checkpoint_load, &made, o.b->context, o.folder.c_str(),
                                    name, &options);
                });
}

std::vector<Misuse> misuses_of_saves() {
  return {
      bad_name("empty name", ""),
      bad_name("name with a slash", "a/b"),
      bad_name("hidden name", ".hidden"),
      bad_name("parent folder", ".."),
      bad_name("long name", std::string(201, 'n')),
      bad_name("name that is no UTF-8", "n\xff"),
      misuse("meron_checkpoint_save_begin: name is taken", {MERON_E_DUPLICATE},
             [](Objects& o) { return save(o, "good", MERON_CHECKPOINT_SAVE_OPTIONS_INIT); }),
      misuse("meron_checkpoint_save_begin: folder is a file", {MERON_E_IO, MERON_E_ARGUMENT},
             [](Objects& o) {
               const CallFailed failed =
                   FAILURE_OF(meron_checkpoint_save_begin, &future, o.b->context, o.io_path.c_str(),
                              "never", nullptr);
               if (failed.status != MERON_OK) return failed;
               const CallFailed ended =
                   FAILURE_OF(meron_future_wait, future, MERON_TIMEOUT_DEFAULT);
               MUST(meron_future_release, future);
               return ended;
             }),
      bad_save("values_only neither 0 nor 1", {MERON_E_ARGUMENT},
               [](Objects&, meron_checkpoint_save_options& it) { it.values_only = 2; }),
      bad_save("skip_frozen neither 0 nor 1", {MERON_E_ARGUMENT},
               [](Objects&, meron_checkpoint_save_options& it) { it.skip_frozen = 2; }),
      bad_save("overwrite neither 0 nor 1", {MERON_E_ARGUMENT},
               [](Objects&, meron_checkpoint_save_options& it) { it.overwrite = UINT32_MAX; }),
      bad_save("extra is a list", {MERON_E_ARGUMENT, MERON_E_PARSE},
               [](Objects&, meron_checkpoint_save_options& it) { it.extra = "[1]"; }),
      bad_save("extra is no JSON", {MERON_E_ARGUMENT, MERON_E_PARSE},
               [](Objects&, meron_checkpoint_save_options& it) { it.extra = "{\"a\": "; }),
      bad_save("no optimizers where some are counted", {MERON_E_ARGUMENT},
               [](Objects&, meron_checkpoint_save_options& it) { it.optimizer_count = 1; }),
      bad_save("optimizer of another context", {MERON_E_HANDLE},
               [](Objects& o, meron_checkpoint_save_options& it) {
                 it.optimizers = &o.a->optimizer;
                 it.optimizer_count = 1;
               }),
      bad_save("optimizer that is a unit", {MERON_E_HANDLE},
               [](Objects& o, meron_checkpoint_save_options& it) {
                 static meron_optimizer wrong;
                 wrong.id = o.b->units[0].id;
                 it.optimizers = &wrong;
                 it.optimizer_count = 1;
               }),
      bad_save("optimizer twice", {MERON_E_DUPLICATE},
               [](Objects& o, meron_checkpoint_save_options& it) {
                 static meron_optimizer twice[2];
                 twice[0] = twice[1] = o.b->optimizer;
                 it.optimizers = twice;
                 it.optimizer_count = 2;
               }),
      bad_save("no units where some are counted", {MERON_E_ARGUMENT},
               [](Objects&, meron_checkpoint_save_options& it) { it.unit_count = 1; }),
      bad_save("unit of another context", {MERON_E_HANDLE},
               [](Objects& o, meron_checkpoint_save_options& it) {
                 it.units = &o.a->units[0];
                 it.unit_count = 1;
               }),
      bad_save("unit that is an optimizer", {MERON_E_HANDLE},
               [](Objects& o, meron_checkpoint_save_options& it) {
                 static meron_unit wrong;
                 wrong.id = o.b->optimizer.id;
                 it.units = &wrong;
                 it.unit_count = 1;
               }),
      bad_save("unit twice", {MERON_E_DUPLICATE},
               [](Objects& o, meron_checkpoint_save_options& it) {
                 static meron_unit twice[2];
                 twice[0] = twice[1] = o.b->units[0];
                 it.units = twice;
                 it.unit_count = 2;
               }),
      bad_save("optimizer with a unit that is left out", {MERON_E_ARGUMENT},
               [](Objects& o, meron_checkpoint_save_options& it) {
                 it.units = &o.b->units[0];
                 it.unit_count = 1;
                 it.optimizers = &o.b->optimizer;
                 it.optimizer_count = 1;
               }),
      misuse("meron_checkpoint_save_begin: a unit is updated", {MERON_E_STATE},
             [](Objects& o) {
               return FAILURE_OF(meron_checkpoint_save_begin, &future, o.a->context,
                                 o.folder.c_str(), "never", nullptr);
             }),
  };
}

std::vector<Misuse> misuses_of_loads() {
  const auto as_it_is = [](Objects&, meron_checkpoint_load_options&) {};
  return {
      bad_load("no such checkpoint", {MERON_E_NOT_FOUND}, "never", as_it_is),
      bad_load("name with a slash", {MERON_E_ARGUMENT, MERON_E_NOT_FOUND}, "../good", as_it_is),
      bad_load("lenient neither 0 nor 1", {MERON_E_ARGUMENT}, "good",
               [](Objects&, meron_checkpoint_load_options& it) { it.lenient = 2; }),
      bad_load("values_only neither 0 nor 1", {MERON_E_ARGUMENT}, "good",
               [](Objects&, meron_checkpoint_load_options& it) { it.values_only = 7; }),
      bad_load("rank0_only neither 0 nor 1", {MERON_E_ARGUMENT}, "good",
               [](Objects&, meron_checkpoint_load_options& it) { it.rank0_only = 2; }),
      bad_load("without its optimizer", {MERON_E_ARGUMENT}, "good",
               [](Objects&, meron_checkpoint_load_options& it) { it.optimizer_count = 0; }),
      bad_load("no optimizers where some are counted", {MERON_E_ARGUMENT}, "good",
               [](Objects&, meron_checkpoint_load_options& it) { it.optimizers = nullptr; }),
      bad_load(
          "optimizer of another context", {MERON_E_HANDLE}, "good",
          [](Objects& o, meron_checkpoint_load_options& it) { it.optimizers = &o.a->optimizer; }),
      bad_load("no units where some are counted", {MERON_E_ARGUMENT}, "good",
               [](Objects&, meron_checkpoint_load_options& it) { it.unit_count = 1; }),
      bad_load("unit of another context", {MERON_E_HANDLE}, "good",
               [](Objects& o, meron_checkpoint_load_options& it) {
                 it.units = &o.a->units[0];
                 it.unit_count = 1;
               }),
      bad_load("unit twice", {MERON_E_DUPLICATE}, "good",
               [](Objects& o, meron_checkpoint_load_options& it) {
                 static meron_unit twice[2];
                 twice[0] = twice[1] = o.b->units[0];
                 it.units = twice;
                 it.unit_count = 2;
               }),
      bad_load("optimizer with a unit that is left out", {MERON_E_ARGUMENT}, "good",
               [](Objects& o, meron_checkpoint_load_options& it) {
                 it.units = &o.b->units[0];
                 it.unit_count = 1;
               }),
      misuse("meron_checkpoint_list: no such folder", {MERON_E_NOT_FOUND},
             [](Objects&) { return FAILURE_OF(meron_checkpoint_list, &list, "/never/there"); }),
      misuse("meron_checkpoint_remove: no such checkpoint", {MERON_E_NOT_FOUND},
             [](Objects& o) {
               return FAILURE_OF(meron_checkpoint_remove, o.folder.c_str(), "never");
             }),
      misuse("meron_checkpoint_remove: a path", {MERON_E_ARGUMENT},
             [](Objects& o) {
               return FAILURE_OF(meron_checkpoint_remove, o.folder.c_str(), "../good");
             }),
      misuse(
          "meron_checkpoint_remove: it is open", {MERON_E_STATE},
          [](Objects& o) { return FAILURE_OF(meron_checkpoint_remove, o.folder.c_str(), "good"); }),
      misuse("meron_checkpoint_load: no such folder", {MERON_E_NOT_FOUND},
             [](Objects& o) {
               return FAILURE_OF(meron_checkpoint_load, &made, o.b->context, "/never/there",
                                 nullptr, nullptr);
             }),
      misuse("meron_checkpoint_load: a unit is updated", {MERON_E_STATE},
             [](Objects& o) {
               return FAILURE_OF(meron_checkpoint_load, &made, o.a->context, o.folder.c_str(),
                                 "good", nullptr);
             }),
      misuse("meron_checkpoint_load: a unit is gathered", {MERON_E_STATE},
             [](Objects& o) {
               meron_future held{};
               MUST(meron_gather_begin, &held, &o.b->units[0], 1, nullptr);
               MUST(meron_future_wait, held, MERON_TIMEOUT_DEFAULT);
               meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
               options.optimizers = &o.b->optimizer;
               options.optimizer_count = 1;
               const CallFailed failed = FAILURE_OF(meron_checkpoint_load, &made, o.b->context,
                                                    o.folder.c_str(), "good", &options);
               MUST(meron_future_release, held);
               return failed;
             }),
      misuse("meron_checkpoint_load: a gradient waits", {MERON_E_STATE},
             [](Objects& o) {
               o.b->reduce(0, 1.0f);
               meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
               options.optimizers = &o.b->optimizer;
               options.optimizer_count = 1;
               const CallFailed failed = FAILURE_OF(meron_checkpoint_load, &made, o.b->context,
                                                    o.folder.c_str(), "good", &options);
               MUST(meron_reduce_discard, o.b->units[0]);
               return failed;
             }),
      misuse("meron_checkpoint_text: unknown text", {MERON_E_ARGUMENT},
             [](Objects& o) {
               return FAILURE_OF(meron_checkpoint_text, &text, o.checkpoint,
                                 MERON_CHECKPOINT_TEXT_PASSED_OVER + 1);
             }),
      misuse("meron_checkpoint_text: negative text", {MERON_E_ARGUMENT},
             [](Objects& o) { return FAILURE_OF(meron_checkpoint_text, &text, o.checkpoint, -1); }),
  };
}

}  // namespace

std::vector<Misuse> misuses_of_checkpoints() {
  std::vector<Misuse> all;
  for (auto& some : {misuses_of_saves(), misuses_of_loads()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace meron::test
