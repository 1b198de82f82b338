/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "text.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Appends a file. 0, or an errno. */
static int append(struct text* text, const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) return errno;
  int error = 0;
  size_t capacity = text->length, got;
  do {
    if (text->length == capacity) {
      capacity = capacity ? 2 * capacity : 1 << 16;
      uint8_t* bytes = realloc(text->bytes, capacity);
      if (!bytes) {
        error = ENOMEM;
        break;
      }
      text->bytes = bytes;
    }
    errno = 0;
    got = fread(text->bytes + text->length, 1, capacity - text->length, file);
    text->length += got;
    if (ferror(file)) error = errno ? errno : EIO;
  } while (got && !error);
  fclose(file);
  ++text->files;
  return error;
}

/* The regular files of the default folder in the order of their names; a file that has a second
 * name by a link counts once. */
static void append_default_folder(struct text* text) {
  enum { kMost = 256 };
  struct stat seen[kMost];
  size_t count = 0;
  glob_t found = {0};
  if (glob(TEXT_DEFAULT_FOLDER "/*", 0, NULL, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc && count < kMost; ++i) {
      struct stat* info = &seen[count];
      if (stat(found.gl_pathv[i], info) || !S_ISREG(info->st_mode)) continue;
      size_t same = 0;
      while (same < count &&
             (seen[same].st_ino != info->st_ino || seen[same].st_dev != info->st_dev))
        ++same;
      if (same == count && append(text, found.gl_pathv[i]) == 0) ++count;
    }
  globfree(&found);
}

int text_load(struct text* text, const char* const* paths, size_t count, char* problem,
              size_t problem_size) {
  *text = (struct text){0};
  for (size_t i = 0; i < count; ++i) {
    const size_t before = text->length;
    const int error = append(text, paths[i]);
    if (!error && text->length > before) continue;
    if (error)
      snprintf(problem, problem_size, "cannot read %s: %s", paths[i], strerror(error));
    else
      snprintf(problem, problem_size, "%s is empty", paths[i]);
    text_free(text);
    return -1;
  }
  if (count == 0) append_default_folder(text);
  if (text->length) return 0;
  snprintf(problem, problem_size, "this machine has no texts in %s", TEXT_DEFAULT_FOLDER);
  return -1;
}

void text_free(struct text* text) {
  free(text->bytes);
  *text = (struct text){0};
}
