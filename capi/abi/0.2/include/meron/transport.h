/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meron/transport.h: a transport of the caller's own: how bytes move between ranks that share no
 * memory. Whoever can send bytes from rank to rank (MPI, torch.distributed, sockets, a queue) fills
 * a meron_transport, passes it as meron_context_options::custom, and gets everything else: Meron
 * makes its collectives, its checks and its failure handling from send and receive alone.
 *
 * What the functions must keep to:
 *
 *   - They never block, and they never call Meron with the context that they serve.
 *   - They are called by threads that are inside a call on the context, one at a time, and never
 *     while a lock of Meron is held.
 *   - Tags are at least 0 and below 2^28.
 *   - A message is received by the receive of the same tag that its destination started for this
 *     rank; several of one tag in the order in which they were started.
 *   - Sends and receives may be started in any order on both sides: a message whose receive has not
 *     been started yet waits, and must not keep those of other tags from arriving.
 *   - Exceptions of the language they are written in must not leave them: they return a status.
 *
 * A function that returns a negative status ends the use of that peer: the groups that it is in
 * break with MERON_E_PEER_DEAD, and the message carries the status' name.
 */
#ifndef MERON_TRANSPORT_H
#define MERON_TRANSPORT_H

#include "meron/base.h"

MERON_BEGIN_DECLS

/*
 * Starts to send `bytes` bytes at `data` to rank `peer`. They stay in place and unchanged until the
 * request is done or cancelled. Stores a number of the transport's choosing in *request, by which
 * the request is meant from then on, and returns MERON_OK; or returns MERON_IN_PROGRESS when it
 * cannot take the message now: the same will be asked again. `bytes` may be 0.
 */
typedef meron_status (*meron_send_fn)(void *user, uint64_t *request, int32_t peer, uint64_t tag,
                                      const void *data, uint64_t bytes);

/*
 * Starts to receive a message of at most `bytes` bytes from rank `peer` into `data`. Otherwise as
 * meron_send_fn.
 */
typedef meron_status (*meron_receive_fn)(void *user, uint64_t *request, int32_t peer, uint64_t tag,
                                         void *data, uint64_t bytes);

/*
 * Whether a request is done: MERON_OK, with the size of the message in *bytes, or
 * MERON_IN_PROGRESS. A request that is done, or failed, is not asked about again. This is also
 * where the transport may make progress.
 */
typedef meron_status (*meron_test_fn)(void *user, uint64_t request, uint64_t *bytes);

/* Gives a request up. Its memory is not touched once this returns. */
typedef void (*meron_cancel_fn)(void *user, uint64_t request);

/*
 * Returns when something may have happened, or after `timeout_ns` nanoseconds: at most that long
 * may this function, and only this one, block.
 */
typedef void (*meron_idle_fn)(void *user, int64_t timeout_ns);

/* Whether rank `peer` is still there: 0 only if it is known to be gone. */
typedef int32_t (*meron_alive_fn)(void *user, int32_t peer);

/* No function of the table is called any more. Called once, by the call that closes the context. */
typedef void (*meron_closed_fn)(void *user);

/* A transport of the caller's. Read when the context is opened; `user` must outlive the context. */
typedef struct {
  uint32_t struct_size; /* sizeof(meron_transport) */
  uint32_t reserved_0;  /* must be 0 */
  const char *name;     /* for messages; NULL: "custom" */
  void *user;           /* passed to every function */
  uint64_t max_message; /* bytes that one message may have, at least 4096; 0: no limit */
  meron_send_fn send;
  meron_receive_fn receive;
  meron_test_fn test;
  meron_cancel_fn cancel;
  meron_idle_fn idle;     /* NULL: Meron sleeps for up to a millisecond between tests */
  meron_alive_fn alive;   /* NULL: a peer is gone when send, receive or test says so */
  meron_closed_fn closed; /* NULL: nobody needs to know */
} meron_transport;

/* Initial value of a meron_transport. */
#define MERON_TRANSPORT_INIT \
  { (uint32_t)sizeof(meron_transport), 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/**
 * Fills the first `struct_size` bytes of *transport with zeros and its size (for languages without
 * macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
MERON_API MERON_NODISCARD meron_status meron_transport_init(meron_transport *transport,
                                                            size_t struct_size, meron_error **err);

MERON_END_DECLS

#endif /* MERON_TRANSPORT_H */
