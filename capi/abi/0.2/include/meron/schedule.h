/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/schedule.h: the order in which a trainer uses its units, recorded and replayed.
 *
 * The trainer says when it enters and leaves a unit. A pass (the forward, and backward if there is
 * one, of a micro-batch) records the order of the uses; the next pass of its kind follows that
 * order: gathers are begun ahead, and units that are used again soon stay full. A pass that goes
 * another way loses what was begun ahead where it differs, and is the order of the next one.
 *
 * What is gathered when follows from the calls and the options alone, so ranks that make the same
 * calls post the same gathers in the same order. All calls count, also those that are local: what
 * is left makes room for what is begun ahead. Calls that change a schedule are therefore made one
 * after the other, in the same order on all ranks.
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

/* The kinds of passes: each has a recorded order of its own. */
#define MERON_SCHEDULE_KINDS 16

/* How far a schedule looks ahead and what it keeps, in elements; and where units are full. */
typedef struct {
  uint32_t struct_size;        /* sizeof(meron_schedule_options) */
  uint32_t reserved_0;         /* must be 0 */
  uint64_t prefetch_elements;  /* gathers are begun ahead for the uses that come within this many
                                  elements of uses; default 5e7; 0: nothing is begun ahead */
  uint64_t max_live_elements;  /* limits what is begun ahead or kept, never what is needed now;
                                  default 1e9 */
  uint64_t max_reuse_elements; /* a unit whose next recorded use comes within this many elements
                                  of other units' uses is kept full; default 1e9 */
  uint64_t persist_elements;   /* a unit of at most this many elements stays full from its first
                                  use until meron_schedule_drop; default 1e5 */
  uint64_t persist_total_elements; /* of all such units together, in the order given; default
                                      UINT64_MAX */
  meron_gather_place place; /* where views are: default MERON_PLACE_HOST; MERON_PLACE_DEVICE: in the
                               memory of the context's device, where it has one */
  uint32_t reserved_1;      /* must be 0 */
  void *stream; /* on a device: the trainer's, which waits for a unit that is entered, and behind
                   whose work so far its memory goes back; NULL: the device's default one */
} meron_schedule_options;

/* Initial value of a meron_schedule_options. */
#define MERON_SCHEDULE_OPTIONS_INIT                                                        \
  {                                                                                        \
    (uint32_t)sizeof(meron_schedule_options), 0, 50000000, 1000000000, 1000000000, 100000, \
        18446744073709551615u, MERON_PLACE_HOST, 0, NULL                                   \
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
 * Makes a schedule of some units, which are used by their index from then on. Collective over the
 * units' group: units and options are equal on all ranks.
 * @param out      receives the schedule.
 * @param units    `count` units of one group, at least one.
 * @param options  NULL for the defaults.
 * Ownership: the caller releases *out; a stream that is given lives as long as the schedule.
 * Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT (also a stream of another device), MERON_E_DUPLICATE (a unit twice),
 * MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_create(meron_schedule *out,
                                                             const meron_unit *units, size_t count,
                                                             const meron_schedule_options *options,
                                                             meron_error **err);

/**
 * Begins a pass. The uses of the pass before become the recorded order of its kind, unless there
 * were none. What was begun ahead and not used is given back, as is what was kept for a use that
 * the new pass is not known to have soon. Local.
 * @param kind  below MERON_SCHEDULE_KINDS; for example 0 for training and 1 for evaluation.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE (names the units that are
 * entered), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_begin(meron_schedule schedule, uint32_t kind,
                                                            meron_error **err);

/**
 * Enters a unit, which is full from then on until it was left as often as it was entered: begins
 * its gather, or takes the one that was begun ahead, begins what the recorded order has next, and
 * waits: for peers only, where views are on the device; the schedule's stream waits for the rest.
 * Collective over the units' group where the unit is not full already. Before the first
 * meron_schedule_begin, and after meron_schedule_reset, uses are not recorded and nothing is begun
 * ahead.
 * @param index       of the unit in meron_schedule_create.
 * @param timeout_ns  as meron_future_wait. After MERON_IN_PROGRESS or an error the unit is not
 *                    entered; its gather goes on, and entering it next goes on with the same use.
 * Blocks: on peers, at most the deadline from the first call for this use, unless the unit is full.
 * Threads: any, one at a time.
 * Errors: MERON_E_ARGUMENT, MERON_E_STATE (the unit, or one that is to be begun ahead, is being
 * updated here; or another thread has reset or released the schedule meanwhile), MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED; and as meron_future_wait, also from a gather that was begun ahead.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_enter(meron_schedule schedule, size_t index,
                                                            int64_t timeout_ns, meron_error **err);

/**
 * Leaves a unit once. When it was left as often as it was entered it is given back, unless it stays
 * full by the options; its views are invalid then either way. Local, but in the same place among
 * the enters on all ranks. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE (it
 * is not entered), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_leave(meron_schedule schedule, size_t index,
                                                            meron_error **err);

/**
 * The whole tensor of a param whose unit is entered; on the device for work of the schedule's
 * stream, if views are there.
 * Ownership: borrowed until the unit is left; read-only: other ranks read the same memory.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (the schedule does not have its unit),
 * MERON_E_STATE (the unit is not entered), MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_view(meron_view *out, meron_schedule schedule,
                                                           meron_param param, meron_error **err);

/**
 * Gives back everything that stays full or was begun ahead: before an update or an optimizer step,
 * which need all leases back. The pass and the recorded orders stay. Local.
 * Blocks: never. Threads: any. Errors: MERON_E_STATE (names the units that are entered),
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_drop(meron_schedule schedule,
                                                           meron_error **err);

/**
 * Forgets all uses and the pass, and gives everything back: after an exception in the trainer. The
 * recorded orders stay. Local.
 * Blocks: never. Threads: any. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_reset(meron_schedule schedule,
                                                            meron_error **err);

/* What is known about a schedule. */
typedef struct {
  uint32_t struct_size;        /* sizeof(meron_schedule_info), set by the caller */
  uint32_t entered;            /* units that are entered now */
  uint64_t units;              /* that it was made of */
  uint64_t passes;             /* begun so far */
  uint64_t uses;               /* units entered so far */
  uint64_t ready;              /* uses whose unit was full already */
  uint64_t ahead;              /* uses met by a gather that was begun ahead */
  uint64_t deviations;         /* uses that the recorded order did not have next */
  uint64_t live_elements;      /* of the units that are full or on their way now */
  uint64_t peak_live_elements; /* the most there were */
  uint64_t wait_ns;            /* nanoseconds that uses have waited */
} meron_schedule_info;

/**
 * Reads what is known about a schedule.
 * @param out  struct_size set by the caller.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
MERON_API MERON_NODISCARD meron_status meron_schedule_get_info(meron_schedule_info *out,
                                                               meron_schedule schedule,
                                                               meron_error **err);

/**
 * Releases the schedule and gives everything back that it holds; views of it become invalid.
 * Blocks: never. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE.
 */
MERON_API meron_status meron_schedule_release(meron_schedule schedule, meron_error **err);

MERON_END_DECLS

#endif /* MERON_SCHEDULE_H */
