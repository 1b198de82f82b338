// SPDX-License-Identifier: Apache-2.0
// What `meron plan --help` says below its options.
#pragma once

namespace meron::tools {

inline constexpr const char* kPlanFooter =
    R"(Describe the model by its size, by a safetensors file (only the header is read), by the
model.safetensors.index.json of several, or by a JSON file: the config.json of a Hugging Face model
(llama, mistral, mixtral, qwen2, qwen3, gpt2, gpt_neox),
{"parameters": N, "layers": L, "dtype": "bf16"} or
{"units": [{"name": "layer.0",
            "tensors": [{"name": "layer.0.w", "shape": [64, 64], "dtype": "f32"}]}]}.
Dtypes are f32, bf16 and f16, or PyTorch's names (float32, bfloat16, float16; fp16).

Plans: zero0 replicates everything; zero1 shards the optimizer states over the ranks, zero2 also the
gradients, zero3 also the parameters. For several nodes, with the number of ranks in a group: mics(8)
is zero3 within groups of 8 ranks; hpz(8) is zero3 with a secondary partition of the parameters in
each group; zeropp(8) adds int8 parameters and int4 gradients between groups. Without a number, a
group is a node. docs/plan.md lists all plans; each name that --cluster prints is a plan too.
With --ranks-per-node the output also shows the bytes received from other nodes, and --compare adds
mics, hpz and zeropp of that size.

--cluster compares all known plans on the machines that a JSON file describes:
{"nodes": 128, "devices_per_node": 8,
 "between_nodes": {"rate": "400 Gb/s", "latency": "10 us"},
 "inside_node": {"rate": "375 GB/s", "latency": "5 us", "in_place": false},
 "device": {"memory": "80 GiB", "reserved": "20 GiB", "memory_rate": "2.8 TB/s",
            "flops": "400 TFLOP/s"}}
Bytes between nodes are those of all ranks of a node over the node's one link, in both directions at
the same time. Bytes inside a node are those of a device over its own link, and 0 for parameters if
in_place. Each unit, phase and kind of link adds one latency. Bytes received from peers are written
and read once more at memory_rate. An update moves 28 bytes per element, or 30 for 16-bit parameters.
With perfect overlap, a step takes the longest of computation, both links and copies, plus the update;
without overlap, it takes their sum. Plans are ranked by the mean of the two; plans that do not fit
are last. Computation takes --compute-seconds, or 6 * parameters * --tokens / flops, per micro-batch.
All figures are predicted, none is measured. --plot uses the python3 that has matplotlib: of
VIRTUAL_ENV, or of the PATH.

Examples:
  meron plan --parameters 7B --layers 32 -n 8
  meron plan --parameters 7B --layers 32 -n 8 --memory 128GiB
  meron plan --parameters 350M --layers 24 --dtype f32 -n 4 --compare
  meron plan --parameters 7B --layers 32 -n 32 --ranks-per-node 8 --compare
  meron plan --parameters 7B --layers 32 -n 32 --ranks-per-node 8 --plan 'hpz(8)'
  meron plan --safetensors model.safetensors --plan zero2 -n 2 --micro-batches 4
  meron plan --safetensors model.safetensors.index.json -n 8
  meron plan --model config.json -n 8 --compare
  meron plan --model model.json --plan plan.json -n 2 --json
  meron plan --parameters 7B --layers 32 -n 2 --nvme /local/meron-nvme.json
  meron plan --parameters 70B --layers 80 --cluster cluster.json --tokens 4096 --plot plans.png)";

}  // namespace meron::tools
