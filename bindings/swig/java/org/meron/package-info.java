// SPDX-License-Identifier: Apache-2.0
/**
 * ZeRO for programs in Java: parameters, gradients and optimizer states that are sharded over ranks.
 * {@link org.meron.Context} is the start.
 *
 * <ul>
 *   <li>A method whose name ends in {@code Begin} begins an operation and returns it: an
 *       {@link org.meron.Operation} or a {@link org.meron.Gather}. The name without {@code Begin} waits.
 *   <li>Collective calls are made by every rank of the group, in the same order.
 *   <li>Errors of the library are a {@link org.meron.MeronException}, which is unchecked. Null is refused by a
 *       NullPointerException that names the parameter, unless the parameter's text says what null means.
 *   <li>After {@link org.meron.Context#close} everything made from the context throws CLOSED. After its own
 *       close an object throws STALE.
 *   <li>All objects are AutoCloseable, and closing one twice is fine. A Cleaner releases one that was dropped.
 *   <li>Any thread may call any method, unless its class says otherwise.
 *   <li>Buffers are direct, in native order, and are used from position to limit, which stay as they are.
 * </ul>
 */
package org.meron;
