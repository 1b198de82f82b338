/* SPDX-License-Identifier: Apache-2.0 */
/* For the generator's parser only: the names that the public headers take from <stdint.h>. */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
