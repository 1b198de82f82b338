# SPDX-License-Identifier: Apache-2.0
# The operations on files. A file of a case goes with its session.

function file_of(session, statement)
    name = "meron-$(getpid())-$(session.case)-$(session.setup.rank)-$(wanted(statement, "file"))"
    path = joinpath(tempdir(), name)
    if !(path in session.files)
        rm(path; force = true)
        push!(session.files, path)
    end
    return path
end

# The memory of a transfer: of a read zeros.
function memory_of(session, statement, write)
    type, count = DTYPES[wanted(statement, "dtype")], whole(statement, "count", 0)
    text = write ? wanted(statement, "with") : "fill:0"
    array = count == 0 ? type[] : tensor_of(session.place, text, type, (count,))
    has(statement, "buffer") || return array
    bytes = Meron.bytes(find(session, Meron.IoBuffer, wanted(statement, "buffer")))
    pinned = unsafe_wrap(Array, Ptr{type}(pointer(bytes)), count)
    copyto!(pinned, array)
    return pinned
end

offset_of(statement) = whole(statement, "offset", 0)

operation("io") do session, statement
    names = ("block" => :block_bytes, "depth" => :depth, "threads" => :threads)
    options = [own => whole(statement, key, 0) for (key, own) in names if has(statement, key)]
    backend = Symbol(get(statement, "backend", "auto"))
    keep!(session, statement.name, Io(; backend = backend, options...))
end

operation("io_is") do session, statement
    io = find(session, Io, statement.name)
    known = Meron.info(io)
    for (key, field) in ("block" => :block_bytes, (String(f) => f for f in keys(known))...)
        has(statement, key) && check_equal(key, known[field], whole(statement, key, 0))
    end
    check_has(Meron.describe(io), statement)
end

operation("io_write") do session, statement
    array = memory_of(session, statement, true)
    path = file_of(session, statement)
    write(find(session, Io, statement.name), path, array; offset = offset_of(statement))
end

operation("io_read") do session, statement
    array = memory_of(session, statement, false)
    path = file_of(session, statement)
    read!(find(session, Io, statement.name), path, array; offset = offset_of(statement))
    isempty(array) || check_data(session.place, statement, array)
end

function begin_(begin_transfer, session, statement, write)
    array = memory_of(session, statement, write)
    io = find(session, Io, wanted(statement, "io"))
    request = begin_transfer(
        io, file_of(session, statement), array; offset = offset_of(statement))
    keep!(session, statement.name, request)
    session.memories[statement.name] = array
end

operation("io_write_begin") do session, statement
    begin_(write_begin, session, statement, true)
end

operation("io_read_begin") do session, statement
    begin_(read_begin!, session, statement, false)
end

operation("io_data") do session, statement
    check_data(session.place, statement, session.memories[statement.name])
end

operation("io_wait") do session, statement
    check(wait(find(session, Io, statement.name)), "it has not ended")
end

operation("io_request_wait") do session, statement
    check(wait(find(session, Meron.IoRequest, statement.name)), "it has not ended")
end

operation("io_buffer") do session, statement
    count = whole(statement, "bytes", 0)
    buffer = Meron.pinned(find(session, Io, wanted(statement, "io")), count)
    keep!(session, statement.name, buffer)
    bytes = Meron.bytes(buffer)
    check_equal("the buffer's bytes", length(bytes), count)
    check_equal("its place in a page", UInt(pointer(bytes)) % 4096, UInt(0))
    check(all(iszero, bytes), "the buffer is not 0")
end
