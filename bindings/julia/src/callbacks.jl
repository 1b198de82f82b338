# SPDX-License-Identifier: Apache-2.0
# The functions that the library calls while a context is open, on threads that are inside a call.
#
# Such a call may have declared its thread GC-safe (blocking.jl): the C functions below take that
# back before any object is touched, and keep no object themselves. No exception leaves them.

# A context's callbacks. Kept in `open_contexts` until the context is closed.
mutable struct Callbacks
    log::Any # nothing, or a function of (level::Symbol, message::String)
    should_stop::Any # nothing, or a function without arguments
    transport::Any # nothing, or a Transport of the caller's
end
Callbacks(log, should_stop) = Callbacks(log, should_stop, nothing)

const LEVELS = Dict(
    LibMeron.MERON_LOG_ERROR => :error,
    LibMeron.MERON_LOG_WARNING => :warning,
    LibMeron.MERON_LOG_INFO => :info,
)

function on_log(user::Ptr{Cvoid}, level::Int32, message::Ptr{UInt8}, length::Csize_t)
    state = ccall(:jl_gc_unsafe_enter, Int8, ())
    deliver_message(user, level, message, length)
    ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
    return nothing
end

function on_should_stop(user::Ptr{Cvoid})
    state = ccall(:jl_gc_unsafe_enter, Int8, ())
    stop = ask_to_stop(user)
    ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
    return stop
end

@noinline function deliver_message(user, level, message, length)::Nothing
    callbacks = unsafe_pointer_to_objref(user)::Callbacks
    staying_on_this_thread() do
        try
            words = unsafe_string(message, length)
            Base.invokelatest(callbacks.log, get(LEVELS, level, :info), words)
        catch error
            report_exception("log", error, catch_backtrace())
        end
    end
    return nothing
end

# 1 for a Ctrl-C, which is thrown when the call returns, and for a should_stop that wants it or fails.
@noinline function ask_to_stop(user)::Int32
    # Tasks of other threads may wait for timers and sockets that only this thread serves. Nothing of
    # theirs runs here: they are only woken.
    Base.process_events()
    is_interrupted() && return 1
    callbacks = unsafe_pointer_to_objref(user)::Callbacks
    callbacks.should_stop === nothing && return 0
    return staying_on_this_thread() do
        try
            Base.invokelatest(callbacks.should_stop)::Bool ? Int32(1) : Int32(0)
        catch error
            task_local_storage(:Meron_thrown, error)
            Int32(1)
        end
    end
end

# The call that waited rethrows the exception of should_stop.
function take_thrown()
    storage = task_local_storage()
    haskey(storage, :Meron_thrown) || return nothing
    return pop!(storage, :Meron_thrown)
end

function report_exception(what, error, backtrace)
    try
        @error "Meron: the $what function of a context failed" exception = (error, backtrace)
    catch
        # The logger itself fails, so this cannot be reported.
    end
    return
end

# Tasks may switch while a callback prints; the library's frames below it must stay on their thread.
function staying_on_this_thread(body)
    task = current_task()
    sticky = task.sticky
    task.sticky = true
    try
        return body()
    finally
        task.sticky = sticky
    end
end

# The runtime's flag for a deferred Ctrl-C; null if the runtime does not export it: then a Ctrl-C is
# noticed when the call ends.
const signal_flag = Ref{Ptr{Cint}}(C_NULL)

function find_signal_flag()
    signal_flag[] = ccall(:dlsym, Ptr{Cint}, (Ptr{Cvoid}, Cstring), C_NULL, "jl_signal_pending")
    return
end

# Ctrl-C goes to the first thread.
is_interrupted() =
    Threads.threadid() == 1 && signal_flag[] != C_NULL && unsafe_load(signal_flag[]) != 0
