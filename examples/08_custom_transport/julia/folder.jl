# SPDX-License-Identifier: Apache-2.0
# Messages as files in a folder that all ranks see: slow, and all that a transport must do.
using Meron

# A message is the file `from.to.tag.number`, and appears complete, by a rename.
struct Started
    sends::Bool
    file::String
    bytes::Vector{UInt8} # the library's memory
end

mutable struct Folder <: Meron.Transport
    path::String
    rank::Int
    requests::Dict{UInt64,Started}
    last_request::UInt64
    numbers::Dict{Tuple{Bool,Int,UInt64},Int} # of messages, by direction, peer and tag
    Folder(path, rank) = new(path, rank, Dict(), 0, Dict())
end

function start!(t, sends, peer, tag, bytes)
    key = (sends, peer, tag)
    number = t.numbers[key] = get(t.numbers, key, 0) + 1
    from, to = sends ? (t.rank, peer) : (peer, t.rank)
    t.last_request += 1
    t.requests[t.last_request] =
        Started(sends, joinpath(t.path, "$from.$to.$tag.$number"), bytes)
    return t.last_request
end

# A file takes every message at once.
function Meron.start_send(t::Folder, peer, tag, bytes)
    request = start!(t, true, peer, tag, bytes)
    file = t.requests[request].file
    write("$file.part", bytes)
    mv("$file.part", file)
    return request
end

Meron.start_receive(t::Folder, peer, tag, bytes) = start!(t, false, peer, tag, bytes)

function Meron.test(t::Folder, request)
    started = t.requests[request]
    if started.sends
        delete!(t.requests, request)
        return length(started.bytes)
    end
    isfile(started.file) || return nothing
    message = read(started.file)
    length(message) <= length(started.bytes) || error("a message is longer than its place")
    copyto!(started.bytes, message)
    rm(started.file)
    delete!(t.requests, request)
    return length(message)
end

Meron.cancel(t::Folder, request) = delete!(t.requests, request)
Meron.transport_name(::Folder) = "folder"
