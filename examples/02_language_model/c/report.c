/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

long steps_per_report(long steps) {
  return steps < 50 ? 1 : steps / 50;
}

float first_loss(const struct summary* summary) {
  return summary->losses[0];
}

float last_loss(const struct summary* summary) {
  const long steps = summary->steps, count = steps < 20 ? 1 : steps / 20;
  double sum = 0.0;
  for (long step = steps - count; step < steps; ++step) sum += summary->losses[step];
  return (float)(sum / (double)count);
}

/* --- Text -------------------------------------------------------------------------------------*/

/* 1234567 as "1,234,567". */
struct grouped {
  char text[32];
};
static struct grouped grouped(uint64_t value) {
  struct grouped out;
  char* at = out.text + sizeof out.text;
  *--at = '\0';
  for (int digits = 0; digits == 0 || value; value /= 10) {
    if (digits && digits % 3 == 0) *--at = ',';
    *--at = (char)('0' + value % 10);
    ++digits;
  }
  for (char* to = out.text; (*to++ = *at++);) continue;
  return out;
}

void report_begin(const struct summary* summary) {
  printf(
      "%s parameters (%s) in %s units over %d rank%s, plan %s, transport %s; %s bytes of text; "
      "matrix products by %s\n",
      grouped(summary->parameters).text, dtype_name(summary->options->dtype),
      grouped(summary->units).text, (int)summary->ranks, summary->ranks == 1 ? "" : "s",
      summary->options->plan, summary->transport, grouped(summary->text_bytes).text,
      summary->options->product == kProductBlas ? blas_name() : "plain C");
  fflush(stdout);
}

/* --- Progress ---------------------------------------------------------------------------------*/

void report_progress(long first, long step, long steps, float loss, double seconds) {
  enum { kBar = 30 };
  const double rate = (double)(step - first) / seconds;
  const long percent = 100 * step / steps;
  char text[128];
  snprintf(text, sizeof text, "step %ld/%ld  loss %.3f  %.1f steps/s  %.0f s left", step, steps,
           (double)loss, rate, (double)(steps - step) / rate);

  if (isatty(STDERR_FILENO)) {
    char bar[kBar + 1];
    for (int i = 0; i < kBar; ++i) bar[i] = i * steps < kBar * step ? '#' : '.';
    bar[kBar] = '\0';
    fprintf(stderr, "\r%s %3ld %%  %s \033[K%s", bar, percent, text, step == steps ? "\n" : "");
    return;
  }
  static long shown; /* a log gets a line every tenth of the way */
  if (percent / 10 > shown || step == steps) {
    shown = percent / 10;
    fprintf(stderr, "%3ld %%  %s\n", percent, text);
  }
}

/* --- Summary ----------------------------------------------------------------------------------*/

static bool bytes_as_planned(const struct figures* f, long steps) {
  const uint64_t count = (uint64_t)steps;
  return f->mapped == count * f->planned_mapped && f->copied == count * f->planned_copied &&
         f->reduced == count * f->planned_reduced;
}

static double memory_difference(const struct figures* f) {
  return f->planned_peak ? (double)f->peak / (double)f->planned_peak - 1.0 : 0.0;
}

/* Between nodes, messages in flight are not part of the plan's memory. */
bool figures_as_planned(const struct figures* figures, long steps) {
  const double difference = memory_difference(figures);
  return bytes_as_planned(figures, steps) && difference >= -0.05 &&
         (difference <= 0.05 || figures->between_nodes);
}

static void print_row(const char* rank, const char* what, uint64_t mapped, uint64_t copied,
                      uint64_t reduced, uint64_t peak) {
  printf("  %-5s%-9s%18s%18s%18s%18s\n", rank, what, grouped(mapped).text, grouped(copied).text,
         grouped(reduced).text, grouped(peak).text);
}

static const char* verdict(uint64_t counted, uint64_t planned) {
  return counted == planned ? "equal" : "DIFFERS";
}

void report_summary(const struct summary* summary) {
  const struct options* options = summary->options;
  const uint64_t steps = (uint64_t)summary->steps;
  const double rate = (double)summary->steps / summary->seconds;
  const float first = first_loss(summary), last = last_loss(summary);

  printf("\nloss    %.3f at first, %.3f at last: %.1f %% of its start\n", (double)first,
         (double)last, 100.0 * (double)(last / first));
  printf("speed   %.1f steps/s, %.0f examples/s, %.1f s in all\n", rate,
         rate * (double)(options->batch * options->accumulate * summary->ranks), summary->seconds);

  printf("\n  %-14s%18s%18s%18s%18s\n", "", "gathered", "gathered", "reduced", "peak memory");
  printf("  %-14s%18s%18s%18s%18s\n", "rank", "in place, B/step", "copied, B/step", "B/step", "B");
  for (int32_t r = 0; r < summary->ranks; ++r) {
    const struct figures* f = &summary->figures[r];
    char name[16], memory[16];
    snprintf(name, sizeof name, "%d", (int)r);
    snprintf(memory, sizeof memory, "%+.1f %%", 100.0 * memory_difference(f));
    print_row(name, "counted", f->mapped / steps, f->copied / steps, f->reduced / steps, f->peak);
    print_row("", "plan", f->planned_mapped, f->planned_copied, f->planned_reduced,
              f->planned_peak);
    printf("  %-14s%18s%18s%18s%18s\n", "", verdict(f->mapped, steps * f->planned_mapped),
           verdict(f->copied, steps * f->planned_copied),
           verdict(f->reduced, steps * f->planned_reduced), memory);
  }
}

/* --- JSON -------------------------------------------------------------------------------------*/

static void write_rank(FILE* file, const struct figures* f, int32_t rank) {
  fprintf(file,
          "    {\"rank\": %d,\n"
          "     \"gather_mapped_bytes\": {\"counted\": %" PRIu64 ", \"plan_per_step\": %" PRIu64
          "},\n"
          "     \"gather_copied_bytes\": {\"counted\": %" PRIu64 ", \"plan_per_step\": %" PRIu64
          "},\n"
          "     \"reduce_bytes\": {\"counted\": %" PRIu64 ", \"plan_per_step\": %" PRIu64
          "},\n"
          "     \"peak_bytes\": {\"counted\": %" PRIu64 ", \"plan\": %" PRIu64
          "},\n"
          "     \"arena_pages_bytes\": %" PRIu64 "}",
          (int)rank, f->mapped, f->planned_mapped, f->copied, f->planned_copied, f->reduced,
          f->planned_reduced, f->peak, f->planned_peak, f->arena_pages);
}

int report_json(const struct summary* summary, const char* path) {
  const struct options* options = summary->options;
  FILE* file = fopen(path, "w");
  if (!file) return errno;

  bool equal = true;
  for (int32_t r = 0; r < summary->ranks; ++r)
    equal = equal && bytes_as_planned(&summary->figures[r], summary->steps);

  fprintf(file,
          "{\n  \"example\": \"02_language_model\",\n  \"language\": \"c\",\n"
          "  \"ranks\": %d,\n  \"transport\": \"%s\",\n  \"plan\": %s,\n"
          "  \"parameters\": %" PRIu64 ",\n  \"units\": %" PRIu64
          ",\n  \"dtype\": \"%s\",\n"
          "  \"text_bytes\": %" PRIu64
          ",\n  \"steps\": %ld,\n  \"batch\": %ld,\n"
          "  \"accumulate\": %ld,\n  \"width\": %ld,\n  \"layers\": %ld,\n  \"context\": %ld,\n"
          "  \"learning_rate\": %.17g,\n  \"seed\": %ld,\n",
          (int)summary->ranks, summary->transport, summary->plan, summary->parameters,
          summary->units, dtype_name(options->dtype), summary->text_bytes, summary->steps,
          options->batch, options->accumulate, options->width, options->layers, options->context,
          options->learning_rate, options->seed);
  fprintf(file,
          "  \"seconds\": %.3f,\n  \"steps_per_second\": %.3f,\n  \"loss_first\": %.9g,\n"
          "  \"loss_last\": %.9g,\n  \"bytes_equal\": %s,\n  \"per_rank\": [\n",
          summary->seconds, (double)summary->steps / summary->seconds, (double)first_loss(summary),
          (double)last_loss(summary), equal ? "true" : "false");
  for (int32_t r = 0; r < summary->ranks; ++r) {
    write_rank(file, &summary->figures[r], r);
    fputs(r + 1 < summary->ranks ? ",\n" : "\n", file);
  }
  fputs("  ],\n  \"losses\": [", file);
  for (long step = 0; step < summary->steps; ++step)
    fprintf(file, "%s%.9g", step ? ", " : "", (double)summary->losses[step]);
  fputs("]\n}\n", file);

  const int failed = ferror(file);
  if (fclose(file) || failed) return errno ? errno : EIO;
  return 0;
}
