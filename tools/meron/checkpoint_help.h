// SPDX-License-Identifier: Apache-2.0
// What `meron checkpoint --help` and those of its subcommands say below their options.
#pragma once

namespace meron::tools {

inline constexpr const char* kCheckpointFooter =
    R"(A CHECKPOINT is a directory with a meron.json, or a directory of several: then the newest complete
one is meant, or the one of --name. inspect, diff, export and verify also take a model as Hugging Face
publishes it: its directory, or one safetensors file. If incomplete checkpoints are passed over, stderr
names them. Files are never changed in place: what is new is written beside, synced, and renamed when it
is whole.

Examples:
  meron checkpoint list runs/a                        which there are, and which are complete
  meron checkpoint inspect runs/a                     what the newest one has
  meron checkpoint verify runs/a --name step-001000   every byte against its checksum
  meron checkpoint diff runs/a runs/b                 where two differ, and by how much
  meron checkpoint export runs/a model --dtype bf16   a model that transformers loads
  meron checkpoint reshard runs/a runs/c/step-001000 --ranks 2
  meron checkpoint import deepspeed-run runs/d        from DeepSpeed, torch DCP or torch.save
  meron checkpoint prune runs/a --keep 3 --dry-run

Exit codes: 0 success (verify: no damage; diff: equal), 1 error (verify: damage; diff: different),
2 wrong usage. `meron checkpoint SUBCOMMAND --help` explains each.)";

inline constexpr const char* kInspectFooter =
    R"(Tensors that differ only in numbers of their names, as those of equal layers do, are one line with
their count; --all has a line for each. `bytes` is the sum over all kinds of state:
values (params and buffers), master (f32 values of 16-bit params), exp_avg and exp_avg_sq (states of
the optimizer), residual.R (what replica R's codec has lost), gradient, state.KEY, extra.)";

inline constexpr const char* kVerifyFooter =
    R"(Reads the manifest and all files, and compares sizes and checksums. Goes on after a damage, and names
file, byte and tensors of each. A checkpoint of which files are missing is looked at too. A model of
Hugging Face has no checksums: headers, index and sizes are compared. Exit code 1 if anything is damaged,
or an incomplete checkpoint was passed over.)";

inline constexpr const char* kDiffFooter =
    R"(Compares the tensors of both, whatever the number of ranks, bit by bit. For each that is not equal:
how many elements differ, the greatest |a-b|, and the greatest |a-b| / max(|a|, |b|). A NaN against a
number counts as infinite. Tensors of other floating-point dtypes are compared by value. A tensor that
one side lacks, or has with another shape or dtype, is different. Exit code 1 if anything is.)";

inline constexpr const char* kReshardFooter =
    R"(Writes the same state as the files of N ranks: equal tensors, step, optimizers, plan and extra. It
is not needed to load at another number of ranks, which any checkpoint can; it is for other programs, for
copies of equal size, and for reading a checkpoint of one rank by safetensors. Memory is bounded.)";

inline constexpr const char* kExportFooter =
    R"(Writes the values as model.safetensors, or as several files with model.safetensors.index.json, for
transformers and others; config.json and the tokenizer are yours to copy. The f32 masters are the source
where there are any and another dtype than the params' own is asked for. Other files of DIR are left
alone. With --overwrite, DIR has the former model or the new one at every moment, never a mix.)";

inline constexpr const char* kPruneFooter =
    R"(Removes complete checkpoints, the oldest first, until N are left, and names them. Never removes the
newest complete one, the newest one of whole states, incomplete ones, and what is not Meron's.)";

}  // namespace meron::tools
