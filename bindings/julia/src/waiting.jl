# SPDX-License-Identifier: Apache-2.0
# Waiting for operations.
#
# The library waits in C, where Julia's scheduler cannot run other tasks. So a wait first asks
# (`poll`: what is ready costs no more), and then alternates: `yield`, by which other tasks run and
# timers and sockets are served, and a wait in C that ends after a short while. When no other task
# wanted the thread the slices in C grow from 50 us to 1 ms; when one did, the wait only asks.
#
# The price: a task that becomes ready on this thread is served up to 1 ms late, and a thread that
# waits alone wakes about a thousand times a second. Threads that wait are GC-safe: the collector does
# not wait for them. Ctrl-C is thrown between slices.

const FIRST_SLICE = 50_000 # nanoseconds, as all of these
const LONGEST_SLICE = 1_000_000
const STOP_EVERY = 100_000_000
# A yield that takes longer has let another task run.
const ALONE_BELOW = 10_000

poll_operation(future::LibMeron.meron_future, error) = LibMeron.meron_future_poll(future, error)
poll_operation(units::Vector{LibMeron.meron_unit}, error) = wait_operation(units, 0, error)

wait_operation(future::LibMeron.meron_future, slice, error) =
    LibMeron.meron_future_wait(future, slice, error)
# The pending reductions of some units.
wait_operation(units::Vector{LibMeron.meron_unit}, slice, error) =
    LibMeron.meron_reduce_wait(units, length(units), slice, error)

# Waits until an operation has ended: true; or until `timeout` nanoseconds have passed: false. A
# negative timeout is the operation's own deadline.
@inline function await(operation, timeout::Int64)
    (@check poll_operation(operation)) == LibMeron.MERON_OK && return true
    return timeout == 0 ? false : await_in_slices(operation, timeout)
end

@noinline function await_in_slices(operation, timeout::Int64)
    begun = time_ns()
    due = timeout < 0 ? typemax(UInt64) : begun + timeout
    next_stop, slice = begun + STOP_EVERY, FIRST_SLICE
    while true
        before = time_ns()
        yield()
        now = time_ns()
        this_slice = 0
        if now - before < ALONE_BELOW
            this_slice = slice
            slice = min(2 * slice, LONGEST_SLICE)
        end
        if now >= next_stop
            next_stop = now + STOP_EVERY
            this_slice = max(this_slice, FIRST_SLICE) # within a wait the library asks should_stop
            sweep()
        end
        limit = due <= now ? 0 : min(this_slice, due - now)
        status = @check wait_operation(operation, limit % Int64)
        status == LibMeron.MERON_OK && return true
        time_ns() >= due && return false
    end
end
