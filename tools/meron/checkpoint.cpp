// SPDX-License-Identifier: Apache-2.0
// `meron checkpoint`: its subcommands and their options.
#include "tools/meron/checkpoint.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/meron/checkpoint_help.h"
#include "tools/meron/commands.h"
#include "tools/meron/failure.h"

namespace meron::tools {
namespace {

using Subcommands = std::vector<Subcommand>;

CLI::App* add(CLI::App& parent, const char* name, const char* what, const char* footer) {
  CLI::App* const app = parent.add_subcommand(name, what);
  app->footer(footer);
  app->get_formatter()->column_width(30);
  return app;
}

void add_which(CLI::App& app, Which& which) {
  app.add_option("checkpoint", which.path, "a directory (see meron checkpoint --help)")
      ->required()
      ->type_name("CHECKPOINT");
  app.add_option("--name", which.name, "which of the directory (the newest complete one)")
      ->type_name("NAME");
}

void add_looking(CLI::App& parent, Subcommands& out) {
  auto inspect = std::make_shared<InspectOptions>();
  CLI::App* app = add(parent, "inspect", "Show what a checkpoint or model has", kInspectFooter);
  add_which(*app, inspect->which);
  app->add_flag("--all", inspect->all, "a line for each tensor");
  app->add_flag("--json", inspect->json, "print JSON");
  out.push_back({app, [inspect] { return inspect_checkpoint(*inspect); }});

  auto verify = std::make_shared<std::pair<Which, bool>>();
  app = add(parent, "verify", "Compare every byte with its checksum", kVerifyFooter);
  add_which(*app, verify->first);
  app->add_flag("--json", verify->second, "print JSON");
  out.push_back({app, [verify] { return verify_checkpoint(verify->first, verify->second); }});

  auto diff = std::make_shared<DiffOptions>();
  app = add(parent, "diff", "Compare two, tensor by tensor", kDiffFooter);
  app->add_option("a", diff->a.path, "a checkpoint or model")->required()->type_name("A");
  app->add_option("b", diff->b.path, "another one")->required()->type_name("B");
  app->add_option("--name-a", diff->a.name, "which of directory A")->type_name("NAME");
  app->add_option("--name-b", diff->b.name, "which of directory B")->type_name("NAME");
  app->add_flag("--values-only", diff->values_only, "no states of optimizers, no masters");
  app->add_flag("--all", diff->all, "show equal tensors too");
  app->add_flag("--json", diff->json, "print JSON");
  out.push_back({app, [diff] { return diff_checkpoints(*diff); }});

  auto list = std::make_shared<ListOptions>();
  app = add(parent, "list", "Show the checkpoints of a directory, the newest first", "");
  app->add_option("directory", list->root, "of checkpoints")->required()->type_name("DIR");
  app->add_flag("--json", list->json, "print JSON");
  out.push_back({app, [list] { return list_checkpoints(*list); }});
}

void add_writing(CLI::App& parent, Subcommands& out) {
  auto reshard = std::make_shared<ReshardWords>();
  CLI::App* app = add(parent, "reshard", "Rewrite one as the files of N ranks", kReshardFooter);
  add_which(*app, reshard->from);
  app->add_option("new", reshard->to, "the directory of the new one; its parent is made")
      ->required()
      ->type_name("NEW");
  app->add_option("-n,--ranks", reshard->ranks, "how many")->required()->type_name("N");
  app->add_flag("--overwrite", reshard->overwrite, "replace a checkpoint of that name");
  out.push_back({app, [reshard] { return reshard_checkpoint(*reshard); }});

  auto give = std::make_shared<ExportWords>();
  give->dtype = "keep";
  app = add(parent, "export", "Write the values as a model of Hugging Face", kExportFooter);
  add_which(*app, give->from);
  app->add_option("folder", give->folder, "of the model; made if it is not there")
      ->required()
      ->type_name("DIR");
  app->add_option("--dtype", give->dtype, "f32, bf16, f16 or keep (default): each tensor's own")
      ->type_name("DTYPE");
  app->add_option("--max-file-size", give->max_file_size, "of tensors in a file (5GB)")
      ->type_name("SIZE");
  app->add_flag("--overwrite", give->overwrite, "replace a model that is there");
  out.push_back({app, [give] { return export_checkpoint(*give); }});

  auto prune = std::make_shared<PruneWords>();
  app = add(parent, "prune", "Remove old checkpoints", kPruneFooter);
  app->add_option("directory", prune->root, "of checkpoints")->required()->type_name("DIR");
  app->add_option("--keep", prune->keep, "how many stay")->required()->type_name("N");
  app->add_flag("--dry-run", prune->dry_run, "only name them");
  out.push_back({app, [prune] { return prune_checkpoints(*prune); }});

  app =
      add(parent, "import", "Make one of DeepSpeed's, of torch DCP's or of a torch.save file", "");
  app->set_help_flag();  // all words, --help too, are for Python
  app->prefix_command();
  out.push_back({app, [app] { return import_checkpoint(app->remaining()); }});
}

}  // namespace

Subcommand add_checkpoint(CLI::App& parent) {
  CLI::App* const app =
      parent.add_subcommand("checkpoint", "Look at, compare, convert and remove checkpoints");
  app->footer(kCheckpointFooter);
  app->require_subcommand(1);
  Subcommands subcommands;
  add_looking(*app, subcommands);
  add_writing(*app, subcommands);
  return {app, [subcommands] {
            for (const Subcommand& subcommand : subcommands) {
              if (subcommand.app->parsed()) return subcommand.run();
            }
            return static_cast<int>(kUsageError);
          }};
}

}  // namespace meron::tools
