/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes DLPack tensors to Java in DlpackTest: a native library in the same process, independent of
 * Meron. Elements are bytes 0, 1, 2, ...
 */
#include <jni.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_DIMS = 8, ELEMENTS = 64 };

typedef struct managed {
  uint32_t major, minor;
  void* manager;
  void (*deleter)(struct managed*);
  uint64_t flags;
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} managed;

typedef struct {
  managed tensor;
  int64_t shape[MAX_DIMS], strides[MAX_DIMS];
  _Alignas(8) uint8_t data[8 * ELEMENTS];
} owner;

static atomic_int deleted;

static void delete_tensor(managed* tensor) {
  atomic_fetch_add(&deleted, 1);
  free(tensor->manager);
}

JNIEXPORT jint JNICALL Java_DlpackTest_deleted(JNIEnv* env, jclass type) {
  (void)env, (void)type;
  return atomic_load(&deleted);
}

/* numbers: major, device type, type code, bits, lanes, flags, byte offset. No strides: null. */
JNIEXPORT jlong JNICALL Java_DlpackTest_foreign(JNIEnv* env, jclass type, jlongArray numbers,
                                                jlongArray shape, jlongArray strides) {
  owner* made = calloc(1, sizeof *made);
  jlong given[7];
  (void)type;
  if (!made) return 0;
  (*env)->GetLongArrayRegion(env, numbers, 0, 7, given);
  for (int i = 0; i < 8 * ELEMENTS; ++i) made->data[i] = (uint8_t)i;
  made->tensor.major = (uint32_t)given[0];
  made->tensor.manager = made;
  made->tensor.deleter = delete_tensor;
  made->tensor.flags = (uint64_t)given[5];
  made->tensor.data = made->data;
  made->tensor.device_type = (int32_t)given[1];
  made->tensor.ndim = (*env)->GetArrayLength(env, shape);
  made->tensor.code = (uint8_t)given[2];
  made->tensor.bits = (uint8_t)given[3];
  made->tensor.lanes = (uint16_t)given[4];
  made->tensor.byte_offset = (uint64_t)given[6];
  (*env)->GetLongArrayRegion(env, shape, 0, made->tensor.ndim, (jlong*)made->shape);
  made->tensor.shape = made->shape;
  if (strides) {
    (*env)->GetLongArrayRegion(env, strides, 0, made->tensor.ndim, (jlong*)made->strides);
    made->tensor.strides = made->strides;
  }
  return (jlong)(intptr_t)made;
}
