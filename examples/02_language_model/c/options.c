/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char options_help[] =
    "Trains a language model on the bytes of a text, partitioned over the ranks.\n"
    "\n"
    "usage: meron run -n RANKS -- language_model [options]\n"
    "\n"
    "  --data FILE...    text to train on (default: the licences in /usr/share/common-licenses)\n"
    "  --plan PLAN       zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file (default: "
    "zero3)\n"
    "  --steps N         optimizer steps (default: 400)\n"
    "  --batch N         examples per micro-batch and rank (default: 64)\n"
    "  --accumulate N    micro-batches per step and rank (default: 1)\n"
    "  --width N         values that flow from layer to layer (default: 512)\n"
    "  --layers N        residual blocks of two matrices each (default: 4)\n"
    "  --context N       bytes that the model sees; must divide the width (default: 16)\n"
    "  --lr RATE         peak learning rate (default: 0.002)\n"
    "  --dtype DTYPE     of the parameters: f32, bf16 or f16 (default: f32)\n"
    "  --seed N          of the initial values and the choice of examples (default: 1)\n"
    "  --product NAME    matrix products by blas, or in plain C: the same bits on every CPU\n"
    "                    (default: blas if the build found one)\n"
    "  --save DIR        save checkpoints there, in the background, and keep the newest two\n"
    "  --save-every N    after every N steps too (default: at the end)\n"
    "  --resume DIR      resume the newest checkpoint there, by any number of ranks and plan\n"
    "  --from DIR        start from the weights of a model there, in Hugging Face's layout\n"
    "  --export DIR      publish the model there at the end, in that layout; replaces another\n"
    "  --json FILE       write all figures and the loss curve there\n"
    "  --quiet           print nothing but errors\n"
    "  --help            this text\n";

const char* dtype_name(meron_dtype dtype) {
  return dtype == MERON_BF16 ? "bf16" : dtype == MERON_F16 ? "f16" : "f32";
}

/* One option: how its value is read, and where it goes. */
enum kind { kFlag, kText, kFiles, kWhole, kRate, kDtype, kProduct };
struct option {
  const char* name;
  enum kind kind;
  void* value;
  long least, most; /* kWhole */
};

/* Reads a value; when it is not one, false and what it should have been. */
static bool read_value(const struct option* option, const char* text, char* wanted, size_t size) {
  char* end = NULL;
  switch (option->kind) {
    case kWhole: {
      long* value = option->value;
      errno = 0;
      *value = strtol(text, &end, 10);
      const bool whole = end != text && *end == '\0' && errno == 0;
      if (whole && *value >= option->least && *value <= option->most) return true;
      snprintf(wanted, size, "a whole number from %ld to %ld", option->least, option->most);
      return false;
    }
    case kRate: {
      double* value = option->value;
      *value = strtod(text, &end);
      if (end != text && *end == '\0' && isfinite(*value) && *value > 0.0) return true;
      snprintf(wanted, size, "a number above 0");
      return false;
    }
    case kDtype:
      for (meron_dtype dtype = MERON_F32; dtype <= MERON_F16; ++dtype)
        if (strcmp(text, dtype_name(dtype)) == 0) {
          *(meron_dtype*)option->value = dtype;
          return true;
        }
      snprintf(wanted, size, "f32, bf16 or f16");
      return false;
    case kProduct: {
      const bool blas = strcmp(text, "blas") == 0;
      *(enum product*)option->value = blas ? kProductBlas : kProductPlain;
      if (blas ? blas_name() != NULL : strcmp(text, "plain") == 0) return true;
      snprintf(
          wanted, size,
          blas ? "plain: this build found no BLAS (tools/setup brings OpenBLAS)" : "blas or plain");
      return false;
    }
    default:
      *(const char**)option->value = text;
      return true;
  }
}

int options_parse(struct options* options, int argc, char* argv[], char* problem,
                  size_t problem_size) {
  *options = (struct options){.plan = "zero3",
                              .steps = 400,
                              .batch = 64,
                              .accumulate = 1,
                              .width = 512,
                              .layers = 4,
                              .context = 16,
                              .learning_rate = 2e-3,
                              .dtype = MERON_F32,
                              .seed = 1,
                              .product = blas_name() ? kProductBlas : kProductPlain};
  const struct option known[] = {
      {"data", kFiles, NULL, 0, 0},
      {"plan", kText, &options->plan, 0, 0},
      {"steps", kWhole, &options->steps, 1, 100000000},
      {"batch", kWhole, &options->batch, 1, 65536},
      {"accumulate", kWhole, &options->accumulate, 1, 65536},
      {"width", kWhole, &options->width, 1, 65536},
      {"layers", kWhole, &options->layers, 0, 1000},
      {"context", kWhole, &options->context, 1, 65536},
      {"lr", kRate, &options->learning_rate, 0, 0},
      {"dtype", kDtype, &options->dtype, 0, 0},
      {"seed", kWhole, &options->seed, 0, 1000000000},
      {"product", kProduct, &options->product, 0, 0},
      {"save", kText, &options->save, 0, 0},
      {"save-every", kWhole, &options->save_every, 1, 100000000},
      {"resume", kText, &options->resume, 0, 0},
      {"from", kText, &options->from, 0, 0},
      {"export", kText, &options->export, 0, 0},
      {"json", kText, &options->json, 0, 0},
      {"quiet", kFlag, &options->quiet, 0, 0},
      {"help", kFlag, &options->help, 0, 0},
  };
  options->data = calloc((size_t)argc, sizeof *options->data);
  if (!options->data) {
    snprintf(problem, problem_size, "no memory for the command line");
    return -1;
  }

  for (int next = 1; next < argc;) {
    const char* argument = argv[next++];
    const struct option* option = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
      if (strncmp(argument, "--", 2) == 0 && strcmp(argument + 2, known[i].name) == 0)
        option = &known[i];
    if (!option) {
      snprintf(problem, problem_size, "%s is no option: --help lists them", argument);
      return -1;
    }
    if (option->kind == kFlag) {
      *(bool*)option->value = true;
      continue;
    }
    if (next == argc || strncmp(argv[next], "--", 2) == 0) {
      snprintf(problem, problem_size, "%s needs a value: --help says which", argument);
      return -1;
    }
    if (option->kind == kFiles) {
      while (next < argc && strncmp(argv[next], "--", 2) != 0)
        options->data[options->data_count++] = argv[next++];
      continue;
    }
    const char* text = argv[next++];
    char wanted[96];
    if (!read_value(option, text, wanted, sizeof wanted)) {
      snprintf(problem, problem_size, "%s %s: must be %s", argument, text, wanted);
      return -1;
    }
  }

  if (options->save_every && !options->save) {
    snprintf(problem, problem_size, "--save-every needs --save DIR: where to");
    return -1;
  }
  if (options->from && options->resume) {
    snprintf(problem, problem_size,
             "--from and --resume exclude each other: start from published weights, or resume "
             "a checkpoint");
    return -1;
  }
  if (options->width % options->context != 0) {
    snprintf(problem, problem_size,
             "--width %ld is no multiple of --context %ld: take %ld, for example", options->width,
             options->context, (options->width / options->context + 1) * options->context);
    return -1;
  }
  return 0;
}

void options_free(struct options* options) {
  free(options->data);
  options->data = NULL;
}
