/* SPDX-License-Identifier: Apache-2.0 */
/* The training text: some files, one after the other. */
#ifndef LANGUAGE_MODEL_TEXT_H
#define LANGUAGE_MODEL_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
  uint8_t* bytes;
  size_t length;
  size_t files;
};

/* Debian's folder of common licences, the default text. */
#define TEXT_DEFAULT_FOLDER "/usr/share/common-licenses"

/*
 * Reads `count` files, or those of TEXT_DEFAULT_FOLDER when count is 0. Without any text it returns
 * -1 and writes the reason to `problem`.
 */
int text_load(struct text* text, const char* const* paths, size_t count, char* problem,
              size_t problem_size);
void text_free(struct text* text);

#endif
