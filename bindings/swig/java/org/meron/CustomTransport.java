// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;

/**
 * How bytes move between ranks that share no memory (sockets, MPI, a queue), written by the trainer;
 * everything else Meron makes from {@link #send} and {@link #receive}. Given to
 * {@link ContextOptions#custom}; one object serves one context.
 *
 * <ul>
 *   <li>No method blocks, but {@link #idle}, and none calls this package.
 *   <li>Methods are called by threads that are inside a call on the context, one at a time.
 *   <li>Tags are at least 0 and below 2^28.
 *   <li>A message is received by the receive of the same tag that its destination started for this
 *       rank; several of one tag in the order in which they were started.
 *   <li>Sends and receives may be started in any order on both sides: a message whose receive has
 *       not been started yet waits, and must not keep those of other tags from arriving.
 * </ul>
 *
 * <p>The buffers are the library's memory, not copies, from position 0 to their limit and in native
 * order. They must not be touched any more once {@link #test} has said that the request is done, or
 * {@link #cancel} has returned.
 *
 * <p>What a method throws ends the use of that peer: the groups that it is in break with PEER_DEAD. On
 * the thread on which it was thrown, that error's message has its text, and getCause has it whole.
 */
public interface CustomTransport {
    /** Result of send, receive and test if the operation is not complete yet. */
    long NOT_YET = -1;

    /** For messages, and Context.transport. */
    default String name() {
        return "custom";
    }

    /** Bytes that one message may have, at least 4096. The same on all ranks. */
    default int maxMessage() {
        return 1 << 30;
    }

    /**
     * Starts to send what is in `message`, a read-only buffer, to rank `peer`. It stays as it is until
     * the request is done or cancelled.
     *
     * @return a number of 0 or more by which the request is meant from then on, another one than those
     *     of all requests under way; NOT_YET when the message cannot be taken now: then the same is
     *     asked again
     */
    long send(int peer, long tag, ByteBuffer message) throws Exception;

    /** Starts to receive a message of at most the bytes of `place` from rank `peer`. Else as send. */
    long receive(int peer, long tag, ByteBuffer place) throws Exception;

    /**
     * The bytes of the request's message when it is done, else NOT_YET. A request that is done is not
     * asked about again. This is also where progress may be made.
     */
    long test(long request) throws Exception;

    /** Gives a request up. Its memory must not be touched once this returns. */
    void cancel(long request) throws Exception;

    /**
     * Returns when something may have happened, or after `timeout`: at most that long may this method
     * block. An interrupt may end it by an InterruptedException; the flag is set again then.
     */
    default void idle(Duration timeout) throws Exception {
        LockSupport.parkNanos(Math.min(timeout.toNanos(), 1_000_000));
    }

    /** Returns false only if rank `peer` is known to be dead. */
    default boolean alive(int peer) throws Exception {
        return true;
    }

    /** No method is called any more: the context was closed. */
    default void closed() throws Exception {}
}
