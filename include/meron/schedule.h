/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/schedule.h: the order in which a trainer uses its units, recorded and replayed.
 *
 * The trainer reports when it enters and leaves a unit. A pass (the forward, and backward if there
 * is one, of a micro-batch) records the order of the uses; the next pass of its kind follows that
 * order: gathers are prefetched, and units that are used again soon stay full. A pass that differs
 * from that order loses the prefetched gathers at the difference, and becomes the recorded order.
 *
 * The calls and the options alone determine the gathers, so ranks that make the same calls post the
 * same gathers in the same order. All calls count, also local ones: a unit that is left makes space
 * for prefetched gathers. Make calls that change a schedule one after the other, in the same order
 * on all ranks.
 */
#ifndef MERON_SCHEDULE_H
#define MERON_SCHEDULE_H

#include "meron/base.h"
#include "meron/context.h"
#include "meron/gather.h"
#include "meron/param.h"

MERON_BEGIN_DECLS

/* Units, the recorded orders of their uses, and the leases that follow from these. A value; 0 is
 * null. */
typedef struct {
  uint64_t id;
} meron_schedule;

/* The number of kinds of passes. Each has its own recorded order. */
#define MERON_SCHEDULE_KINDS 16

/* Options of a schedule: limits in elements, and the memory of views. Start from
 * MERON_SCHEDULE_OPTIONS_INIT: limits that are all 0 would prefetch nothing. */
typedef struct {
  uint32_t struct_size;       /* sizeof(meron_schedule_options) */
  uint32_t initialized;       /* 1; set by the INIT macro and function, not by the caller */
  uint64_t prefetch_elements; /* gathers are prefetched for the next uses within this many elements;
                                 default 5e7; 0: no prefetch */
  uint64_t max_live_elements; /* limit of prefetched and kept units, never of the unit in use;
                                 default 1e9 */
  uint64_t max_reuse_elements;     /* a unit stays full if its next recorded use is within this many
                                      elements of other units' uses; default 1e9 */
  uint64_t persist_elements;       /* a unit of at most this many elements stays full from its first
                                      use until meron_schedule_drop; default 1e5 */
  uint64_t persist_total_elements; /* limit for all such units together, in the order of
                                      meron_schedule_create; default UINT64_MAX */
  meron_tier tier;     /* memory of views: default MERON_TIER_HOST, unlike that of a gather;
                          MERON_TIER_DEVICE: the context's device, if it has one */
  uint32_t reserved_1; /* must be 0 */
  void *stream; /* on a device: the trainer's stream. It waits for an entered unit, and the unit's
                   memory is released after the stream's queued work; NULL: the device's default
                   stream */
} meron_schedule_options;

/* Initial value of a meron_schedule_options. */
#define MERON_SCHEDULE_OPTIONS_INIT                                                        \
  {                                                                                        \
    MERON_SIZEOF_U32(meron_schedule_options), 1, 50000000, 1000000000, 1000000000, 100000, \
        18446744073709551615u, MERON_TIER_HOST, 0, NULL                                    \
  }

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_options_init(meron_schedule_options *options,
                                                                   size_t struct_size,
                                                                   meron_error **err);

/**
 * Creates a schedule of some units. Later calls use a unit by its index. Collective over the units'
 * group: units and options are equal on all ranks.
 * @param out      receives the schedule.
 * @param units    `count` units of one group, at least one.
 * @param options  NULL for the defaults.
 * Ownership: the caller releases *out; a stream in the options must live as long as the schedule.
 * Blocks: as meron_barrier_begin. Threads: any. Errors: MERON_E_ARGUMENT (also options that were
 * not initialized, and a stream of another device), MERON_E_DUPLICATE (a unit twice),
 * MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_create(meron_schedule *out,
                                                             const meron_unit *units, size_t count,
                                                             const meron_schedule_options *options,
                                                             meron_error **err);

/**
 * Starts a pass. The uses of the previous pass become the recorded order of its kind, unless there
 * were none. Releases prefetched units that were not used, and units that were kept for a use that
 * the new pass does not have soon. Local: it begins no gather.
 * @param kind  below MERON_SCHEDULE_KINDS; for example 0 for training and 1 for evaluation.
 * Blocks: only while another thread of this rank begins an operation. Threads: any. Errors:
 * MERON_E_ARGUMENT, MERON_E_STATE (names the units that are entered), MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_start_pass(meron_schedule schedule,
                                                                 uint32_t kind, meron_error **err);

/**
 * Enters a unit. It stays full until it is left as often as it was entered. Begins its gather, or
 * uses the prefetched one, prefetches the next units of the recorded order, and waits: if views are
 * on the device, for peers only, and the schedule's stream waits for the rest. Collective over the
 * units' group if the unit is not full already. Before the first meron_schedule_start_pass, and
 * after meron_schedule_reset, uses are not recorded and no gather is prefetched.
 * @param index       of the unit in meron_schedule_create.
 * @param timeout_ns  as meron_future_wait. After MERON_IN_PROGRESS or an error the unit is not
 *                    entered; its gather continues, and the next enter of the unit continues the
 *                    same use.
 * Blocks: on peers if the unit is not full, at most the deadline from the first call for this use.
 * Threads: any, one at a time. Errors: MERON_E_ARGUMENT, MERON_E_STATE (this rank updates the unit,
 * or one to prefetch; or another thread has reset or released the schedule meanwhile),
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED; and as meron_future_wait, also from a prefetched
 * gather.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_enter(meron_schedule schedule, size_t index,
                                                            int64_t timeout_ns, meron_error **err);

/**
 * Leaves a unit once. After as many leaves as enters its views are invalid, and the unit is
 * released, unless the options keep it full. Local, but in the same position among the enters on
 * all ranks: it begins no gather; the next enter does. Blocks: only while another thread of this
 * rank begins an operation. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE
 * (it is not entered), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_leave(meron_schedule schedule, size_t index,
                                                            meron_error **err);

/**
 * The full tensor of a param of an entered unit. If views are on the device, it is for work of the
 * schedule's stream. Ownership: borrowed until the unit is left; read-only, as of
 * meron_gather_view. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (the schedule does not
 * have its unit), MERON_E_STATE (the unit is not entered), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_view(meron_view *out, meron_schedule schedule,
                                                           meron_param param, meron_error **err);

/**
 * Releases all units that stay full or were prefetched. Call it before an update, an optimizer
 * step, a save or a load, which need all leases released. The pass and the recorded orders stay.
 * Local. Blocks: only while another thread of this rank begins an operation. Threads: any. Errors:
 * MERON_E_STATE (names the units that are entered), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_drop(meron_schedule schedule,
                                                           meron_error **err);

/**
 * Drops all uses and the pass, and releases all units. Call it after an exception in the trainer.
 * The recorded orders stay. Local. Blocks: only while another thread of this rank begins an
 * operation. Threads: any. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_reset(meron_schedule schedule,
                                                            meron_error **err);

/* Information about a schedule. */
typedef struct {
  uint32_t struct_size;        /* sizeof(meron_schedule_info), as the INIT macro sets it */
  uint32_t entered;            /* units that are entered now */
  uint64_t units;              /* of the schedule */
  uint64_t passes;             /* started so far */
  uint64_t uses;               /* units entered so far */
  uint64_t ready;              /* uses whose unit was full already */
  uint64_t ahead;              /* uses with a prefetched gather */
  uint64_t deviations;         /* uses that differ from the recorded order */
  uint64_t live_elements;      /* of the units that are full or gathering now */
  uint64_t peak_live_elements; /* maximum of live_elements */
  uint64_t wait_ns;            /* nanoseconds that uses have waited */
} meron_schedule_info;

/* A meron_schedule_info for the library to fill. */
#define MERON_SCHEDULE_INFO_INIT \
  { MERON_SIZEOF_U32(meron_schedule_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Reads the information about a schedule.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_get_info(meron_schedule_info *out,
                                                               meron_schedule schedule,
                                                               meron_error **err);

/**
 * Releases the schedule and all units that it holds; its views become invalid. Blocks: never.
 * Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API meron_status meron_schedule_release(meron_schedule schedule, meron_error **err);

MERON_END_DECLS

#endif /* MERON_SCHEDULE_H */
