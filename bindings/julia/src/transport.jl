# SPDX-License-Identifier: Apache-2.0
# A transport of the caller's own: how bytes move between ranks that share no memory.

"""
A transport of your own: a subtype with methods for the functions below is passed as `transport` to
`Meron.open`. A program only needs to send bytes from rank to rank (MPI.jl, sockets, a queue): Meron
builds its collectives, checks and failure handling on send and receive alone.

- `Meron.start_send(t, peer, tag, bytes)` and `Meron.start_receive(t, peer, tag, bytes)`: start to
  send or receive the `Vector{UInt8}` `bytes`, which stays in place until the request is done or
  cancelled, and is the library's memory. Return a number of your choosing for the request, or
  `nothing` when it cannot be taken now: the same will be asked again.
- `Meron.test(t, request)`: the size of the message when the request is done, else `nothing`. Also
  where the transport may make progress.
- `Meron.cancel(t, request)`: gives a request up; its memory is not touched afterwards.
- `Meron.idle(t, seconds)`: returns when something may have happened, or after so long. Optional.
- `Meron.alive(t, peer)`: `false` only if the rank is known to be gone. Optional.
- `Meron.closed(t)`: nothing is called any more. Optional.
- `Meron.transport_name(t)`: for messages, "custom" by default; `Meron.max_message(t)`: bytes that one
  message may have, at least 4096; 0, the default, is no limit.

include/meron/transport.h says what they must keep to: they never wait (but for `idle`), they never
call Meron, and messages of one tag arrive in the order in which they were sent; tags are below 2^28.
They are called on threads that are inside a call on the context, one at a time. An exception of one of them is reported
by `@error` and ends the use of that peer: its groups break with `MERON_E_PEER_DEAD`.
"""
abstract type Transport end

"Starts to send bytes to a rank: see `Meron.Transport`."
function start_send end
"Starts to receive bytes from a rank: see `Meron.Transport`."
function start_receive end
"Returns the size of the message of a request that is done, else `nothing`: see `Meron.Transport`."
function test end
"Gives a request up: see `Meron.Transport`."
function cancel end
"Returns when something may have happened, or after some seconds: see `Meron.Transport`."
idle(::Transport, seconds) = Libc.systemsleep(min(seconds, 1e-3))
"Returns `false` if a rank is known to be gone: see `Meron.Transport`."
alive(::Transport, peer) = true
"Ends the use of a transport: see `Meron.Transport`."
closed(::Transport) = nothing
"Returns the name of a transport for messages: see `Meron.Transport`."
transport_name(::Transport) = "custom"
"Returns the number of bytes that one message may have, or 0: see `Meron.Transport`."
max_message(::Transport) = 0

# Runs a method of the transport inside of a callback: `failed` is the answer when it throws.
@noinline function answer(body, user, what, failed)
    transport = (unsafe_pointer_to_objref(user)::Callbacks).transport
    return staying_on_this_thread() do
        try
            body(transport)
        catch error
            report_exception(what, error, catch_backtrace())
            failed
        end
    end
end

# A callback's body, in which objects may be touched: see callbacks.jl.
macro callback(body)
    return quote
        local state = ccall(:jl_gc_unsafe_enter, Int8, ())
        local result = $(esc(body))
        ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
        result
    end
end

on_send(user, request, peer, tag, data, bytes) =
    @callback start_request(start_send, user, request, peer, tag, data, bytes)
on_receive(user, request, peer, tag, data, bytes) =
    @callback start_request(start_receive, user, request, peer, tag, data, bytes)
on_test(user, request, bytes) = @callback test_request(user, request, bytes)
on_cancel(user, request) = @callback cancel_request(user, request)
on_idle(user, timeout) = @callback idle_for(user, timeout)
on_alive(user, peer) = @callback is_alive(user, peer)
on_closed(user) = @callback tell_closed(user)

@noinline function start_request(start, user, request, peer, tag, data, bytes)::Int32
    return answer(user, start === start_send ? "send" : "receive", LibMeron.MERON_E_IO) do transport
        array = unsafe_wrap(Array, Ptr{UInt8}(data), Int(bytes))
        number = Base.invokelatest(start, transport, Int(peer), tag, array)
        number === nothing && return LibMeron.MERON_IN_PROGRESS
        unsafe_store!(request, UInt64(number))
        return LibMeron.MERON_OK
    end
end

@noinline function test_request(user, request, bytes)::Int32
    return answer(user, "test", LibMeron.MERON_E_IO) do transport
        size_ = Base.invokelatest(test, transport, request)
        size_ === nothing && return LibMeron.MERON_IN_PROGRESS
        unsafe_store!(bytes, UInt64(size_))
        return LibMeron.MERON_OK
    end
end

@noinline cancel_request(user, request)::Nothing =
    answer(t -> (Base.invokelatest(cancel, t, request); nothing), user, "cancel", nothing)
@noinline idle_for(user, timeout)::Nothing =
    answer(t -> (Base.invokelatest(idle, t, timeout / 1e9); nothing), user, "idle", nothing)
@noinline is_alive(user, peer)::Int32 =
    answer(t -> Int32(Base.invokelatest(alive, t, Int(peer))::Bool), user, "alive", Int32(0))
@noinline tell_closed(user)::Nothing =
    answer(t -> (Base.invokelatest(closed, t); nothing), user, "closed", nothing)

# The table of C; `name` and `callbacks` must outlive its use.
function transport_table(transport::Transport, name, callbacks)
    init = initial(LibMeron.meron_transport, LibMeron.meron_transport_init)
    return changed(
        init;
        name = pointer(name),
        user = pointer_from_objref(callbacks),
        max_message = max_message(transport),
        send = @cfunction(
            on_send, Int32, (Ptr{Cvoid}, Ptr{UInt64}, Int32, UInt64, Ptr{Cvoid}, UInt64)),
        receive = @cfunction(
            on_receive, Int32, (Ptr{Cvoid}, Ptr{UInt64}, Int32, UInt64, Ptr{Cvoid}, UInt64)),
        test = @cfunction(on_test, Int32, (Ptr{Cvoid}, UInt64, Ptr{UInt64})),
        cancel = @cfunction(on_cancel, Cvoid, (Ptr{Cvoid}, UInt64)),
        idle = @cfunction(on_idle, Cvoid, (Ptr{Cvoid}, Int64)),
        alive = @cfunction(on_alive, Int32, (Ptr{Cvoid}, Int32)),
        closed = @cfunction(on_closed, Cvoid, (Ptr{Cvoid},)),
    )
end
