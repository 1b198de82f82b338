/* SPDX-License-Identifier: Apache-2.0 */
/* For the generator's parser only: the names that the public headers take from <stddef.h>. */
typedef unsigned long size_t;
#define NULL ((void*)0)
