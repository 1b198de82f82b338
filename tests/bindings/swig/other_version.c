/* SPDX-License-Identifier: Apache-2.0 */
/* As much of a libmeron 0.9.9 as a loader looks at. */
#include <meron/base.h>

uint32_t meron_version(void) {
  return (0 << 16) | (9 << 8) | 9;
}

const char* meron_version_string(void) {
  return "0.9.9";
}
