# SPDX-License-Identifier: Apache-2.0
# Files read and written past the page cache, as DeepSpeed's DeepNVMe does it.

"""
    Io(; options...)
    Io(body; options...)

A queue to the kernel, and the threads that serve it. Needs no context, and knows no ranks. With a
`body` it is closed after that.

    Io() do io
        write(io, "weights.bin", weights)
        request = read_begin!(io, "weights.bin", other)   # beside what follows
        wait(request)
    end

Options:

- `backend` = :auto (io_uring where the host allows it, else threads), :io_uring, :threads.
- `block_bytes` = 1 << 20: of one call of the kernel, a multiple of 4096.
- `depth` = 32: calls under way at a time, of io_uring; `threads` = 1: of the backend of threads.
- `single_submit` = false: whether each call is handed to the kernel alone; `overlap_events` = true:
  false lets the next calls begin when the last have ended.
- `timeout` = nothing: seconds; a wait ends when nothing has moved for so long. `nothing`: 600.

Memory is a dense array of plain elements, which is kept until the drive has released it, and must not
be used or resized meanwhile. Offsets are in bytes; offset, length and memory need no alignment, though
multiples of the page are the fastest.

Throws `MERON_E_ARGUMENT`, `MERON_E_UNSUPPORTED` (`:io_uring` where the host forbids it).
"""
mutable struct Io <: Owner
    id::UInt64
    Io(::Nothing) = finalizer(enqueue_owner, new(0))
end

const IO_BACKENDS = (
    auto = LibMeron.MERON_IO_BACKEND_AUTO, io_uring = LibMeron.MERON_IO_BACKEND_URING,
    threads = LibMeron.MERON_IO_BACKEND_THREADS)

function Io(; backend = :auto, timeout = nothing, options...)
    haskey(IO_BACKENDS, backend) || throw(argument_error(
        "there is no backend $(repr(backend)), but $(join(keys(IO_BACKENDS), ", "))"))
    for name in keys(options)
        name in fieldnames(LibMeron.meron_io_options) && name != :struct_size ||
            throw(argument_error("an Io has no option $name"))
    end
    nanoseconds_ = timeout === nothing ? 0 : max(nanoseconds(timeout), 1)
    chosen = Ref(changed(
        initial(LibMeron.meron_io_options, LibMeron.meron_io_options_init);
        backend = IO_BACKENDS[backend], timeout_ns = nanoseconds_, options...))
    io = Io(nothing)
    GC.@preserve io @check LibMeron.meron_io_open(out_pointer(io, LibMeron.meron_io), chosen)
    return io
end

function Io(body::Function; options...)
    io = Io(; options...)
    try
        return body(io)
    finally
        close(io)
    end
end

kind_of(::Io) = io_kind

function raw(io::Io)
    io.id == 0 && throw(own_error(
        LibMeron.MERON_E_STALE, "this Io was closed"; advice = "Open another one"))
    return LibMeron.meron_io(io.id)
end

"""
    close(io)

Ends what is under way, for at most about five seconds; doing so twice is fine.

Throws the first error of requests that no call has waited for; it is closed even then.
"""
function Base.close(io::Io)
    id = take_handle!(io)
    id == 0 && return
    @check close_io(id)
    sweep()
    tell(id)
    return
end

release(io::Io) = close(io)

# Memory that a drive has not released stays alive, because the drive may still write to it.
function close_io(id, error)
    status = LibMeron.meron_io_close(LibMeron.meron_io(id), error)
    status in (LibMeron.MERON_E_CLOSED, LibMeron.MERON_E_TIMEOUT) || forget_context(id)
    return status
end

"""
A read or write that was begun. `wait(request)` waits, `isready(request)` asks. Releasing it does
not stop it: `wait(io)` or `close(io)` tells how it ended.
"""
mutable struct IoRequest <: Owner
    id::UInt64
    ended::Bool
    IoRequest() = finalizer(enqueue_owner, new(0, false))
end

kind_of(::IoRequest) = io_request_kind

function raw(request::IoRequest)
    request.id == 0 && throw_released("request")
    return LibMeron.meron_future(request.id)
end

# Where an array's bytes are, and how many.
function bytes_of(array::DenseArray{T}) where {T}
    isbitstype(T) || throw(argument_error("elements of type $T are not plain"))
    return Ptr{Cvoid}(pointer(array)), UInt64(length(array) * sizeof(T))
end
bytes_of(view::ReadOnlyView) = address(view, "the view"), UInt64(length(view) * sizeof(eltype(view)))
bytes_of(other) = throw(argument_error("a dense array is needed, not a $(typeof(other))"))

function begin_transfer(function_, io::Io, path, array, offset)
    offset >= 0 || throw(argument_error("the offset is $offset: give 0 or more"))
    operation, name = raw(io), text(path, "the path")
    request = IoRequest()
    Base.sigatomic_begin() # as for every operation that uses memory (future.jl)
    try
        GC.@preserve request array begin
            data, bytes = bytes_of(array)
            @check function_(
                out_pointer(request, LibMeron.meron_future), operation, name, data, bytes, offset)
        end
        begin_flight(request.id, operation.id, array)
    finally
        Base.sigatomic_end()
    end
    return request
end

"""
    read_begin!(io, path, array; offset = 0)

Begins to fill an array from byte `offset` of a file on. The file is opened here.

Throws the errors of `read!`; the wait throws those of the drive.
"""
function read_begin!(io::Io, path, array; offset = 0)
    array isa ReadOnlyView && (require_valid(array); throw_read_only())
    return begin_transfer(LibMeron.meron_io_read_begin, io, path, array, offset)
end

"""
    write_begin(io, path, array; offset = 0)

Begins to write an array to byte `offset` of a file and on. The file is made, and grows, here.

Throws the errors of `write`; the wait throws those of the drive.
"""
write_begin(io::Io, path, array; offset = 0) =
    begin_transfer(LibMeron.meron_io_write_begin, io, path, array, offset)

"""
    read!(io::Io, path, array; offset = 0)

Fills an array from byte `offset` of a file on, and waits for it; the array.

Other tasks of the thread run meanwhile. Throws `MERON_E_NOT_FOUND`; `MERON_E_IO` if the file is too
short, or for an error of the drive; `MERON_E_ARGUMENT` if it is no file; `MERON_E_TIMEOUT` if no
transfer progresses.
"""
function Base.read!(io::Io, path, array; offset = 0)
    finish_request(read_begin!(io, path, array; offset = offset))
    return array
end

"""
    write(io::Io, path, array; offset = 0)

Writes an array to a file from byte `offset` on, and waits for the kernel. Returns the number of bytes.
Creates the file if it does not exist; its other content stays. Data that must survive a loss of power
needs a sync.

Throws what `read!` throws, and `MERON_E_NO_SPACE`.
"""
function Base.write(io::Io, path, array; offset = 0)
    finish_request(write_begin(io, path, array; offset = offset))
    return length(array) * sizeof(eltype(array))
end

function finish_request(request)
    try
        wait(request)
    finally
        release(request)
    end
    return
end

poll_operation(operation::LibMeron.meron_io, error) = wait_operation(operation, 0, error)
wait_operation(operation::LibMeron.meron_io, slice, error) =
    LibMeron.meron_io_wait(operation, slice, error)

"""
    wait(request::IoRequest; timeout = nothing)
    wait(io::Io; timeout = nothing)

Waits until it has ended, or for an `Io` until all requests that no call has waited for have ended,
and returns `true`. Returns `false` after `timeout` seconds; requests continue. `nothing` waits as
long as transfers progress.

Other tasks of the thread run meanwhile. Ctrl-C ends the wait, not the request. Throws `MERON_E_IO`,
`MERON_E_NO_SPACE`; of an `Io` the first error of them when all have ended; `MERON_E_TIMEOUT` when
nothing moves.
"""
function Base.wait(request::IoRequest; timeout = nothing)
    operation = raw(request)
    request.ended && return true
    try
        request.ended = await(operation, nanoseconds(timeout))
    catch error
        # After these errors it has ended, and nothing uses the memory any more.
        error isa MeronError && error.status in IO_ENDED && end_flight(operation.id)
        rethrow()
    end
    request.ended && end_flight(operation.id)
    return request.ended
end
function Base.wait(io::Io; timeout = nothing)
    operation = raw(io)
    await(operation, nanoseconds(timeout)) || return false
    sweep()
    tell(operation.id)
    return true
end

const IO_ENDED = (
    LibMeron.MERON_E_IO, LibMeron.MERON_E_NO_SPACE, LibMeron.MERON_E_NOT_FOUND,
    LibMeron.MERON_E_ARGUMENT)

"""
    isready(request::IoRequest)

Whether it has ended well; never waits. Throws the error if it failed.
"""
Base.isready(request::IoRequest) = wait(request; timeout = 0)

"""
Pinned, page-aligned memory, made by `Meron.pinned`. `Meron.bytes(buffer)` is an array of it.
"""
mutable struct IoBuffer <: Owner
    id::UInt64
    lent::Bool # to an array, which may outlive a call of release
    released::Bool
    IoBuffer() = finalizer(enqueue_owner, new(0, false, false))
end

kind_of(::IoBuffer) = io_buffer_kind

function raw(buffer::IoBuffer)
    buffer.released || buffer.id == 0 ? throw_released("buffer") :
    LibMeron.meron_io_buffer(buffer.id)
end

# The memory of an array is released when the collector has found the array.
function release(buffer::IoBuffer)
    buffer.released = true
    buffer.lent || invoke(release, Tuple{Owner}, buffer)
    return
end

"""
    Meron.pinned(io, count)

Pinned memory of `count` bytes, which are 0: the fastest to read into and write from. It may outlive
its `Io`.

Throws `MERON_E_ARGUMENT` (no bytes), `MERON_E_NO_MEMORY`.
"""
function pinned(io::Io, count)
    buffer = IoBuffer()
    bytes_ = convert_field(UInt64, count, :count)
    GC.@preserve buffer @check LibMeron.meron_io_buffer_create(
        out_pointer(buffer, LibMeron.meron_io_buffer), raw(io), bytes_)
    return buffer
end

"""
    Meron.bytes(buffer)

The memory of a buffer, as a `Vector{UInt8}`, without a copy. The memory stays as long as the array, also
after `release(buffer)`.
"""
function bytes(buffer::IoBuffer)
    known = filled(
        LibMeron.meron_io_buffer_info, LibMeron.meron_io_buffer_get_info, raw(buffer))
    buffer.lent = true
    array = unsafe_wrap(Array, Ptr{UInt8}(known.data), Int(known.bytes))
    return finalizer(_ -> keep(buffer), array)
end
keep(_) = nothing

"""
    info(io::Io)

The options, and the counters so far: `bytes_read`, `bytes_written`, `calls` of the kernel, and
`direct_calls` of these past the page cache; `requests` that were begun, and `pending` ones, which have
not ended or were not waited for; `buffer_bytes`. `backend` is 1 for io_uring, 2 for threads. Never
blocks.
"""
info(io::Io) = as_tuple(
    LibMeron.meron_io_info, filled(LibMeron.meron_io_info, LibMeron.meron_io_get_info, raw(io)))

Base.show(io::IO, shown::Io) = print(io, "Meron.Io(", shown.id == 0 ? "closed" : "open", ")")
Base.show(io::IO, buffer::IoBuffer) =
    print(io, "Meron.IoBuffer(", buffer.released ? "released" : "open", ")")
Base.show(io::IO, request::IoRequest) = print(
    io, "Meron.IoRequest(",
    request.ended ? "ended" : request.id == 0 ? "released" : "under way", ")")
