/* SPDX-License-Identifier: Apache-2.0 */
#include <meron/meron.h>
#include <stdio.h>

int main(void) {
  puts(meron_version_string());
  return meron_version() == MERON_VERSION ? 0 : 1;
}
