# SPDX-License-Identifier: Apache-2.0
# A transport between threads: messages lie in a mailbox that all ranks share.

const Key = Tuple{Int,Int,UInt64} # from, to, tag

struct Mailbox
    lock::Threads.SpinLock # callbacks never wait for long, and must not switch tasks
    messages::Dict{Key,Vector{Vector{UInt8}}}
    Mailbox() = new(Threads.SpinLock(), Dict())
end

mutable struct MailboxTransport <: Meron.Transport
    rank::Int
    mailbox::Mailbox
    last_request::UInt64
    sent::Dict{UInt64,Int}
    wanted::Dict{UInt64,Tuple{Key,Vector{UInt8}}}
    queues::Dict{Key,Vector{UInt64}} # receives of a key, in the order in which they were started
    fails::Symbol # the function that throws from now on
    closed::Bool
    max_message::Int
    name::String
    MailboxTransport(rank, mailbox; max_message = 0, name = "mailbox") =
        new(rank, mailbox, 0, Dict(), Dict(), Dict(), :none, false, max_message, name)
end

fail_if(t, name) = t.fails === name && error("out of order")

function Meron.start_send(t::MailboxTransport, peer, tag, bytes)
    fail_if(t, :start_send)
    message = copy(bytes)
    lock(t.mailbox.lock)
    push!(get!(Vector, t.mailbox.messages, (t.rank, peer, tag)), message)
    unlock(t.mailbox.lock)
    t.sent[t.last_request += 1] = length(bytes)
    return t.last_request
end

function Meron.start_receive(t::MailboxTransport, peer, tag, bytes)
    fail_if(t, :start_receive)
    key = (peer, t.rank, tag)
    t.wanted[t.last_request += 1] = (key, bytes)
    push!(get!(Vector, t.queues, key), t.last_request)
    return t.last_request
end

# The oldest message of a key, or nothing.
function take_message(mailbox, key)
    lock(mailbox.lock)
    messages = get(mailbox.messages, key, nothing)
    message = messages === nothing || isempty(messages) ? nothing : popfirst!(messages)
    unlock(mailbox.lock)
    return message
end

function Meron.test(t::MailboxTransport, request)
    fail_if(t, :test)
    haskey(t.sent, request) && return pop!(t.sent, request)
    key, bytes = t.wanted[request]
    first(t.queues[key]) == request || return nothing
    message = take_message(t.mailbox, key)
    message === nothing && return nothing
    copyto!(bytes, message)
    popfirst!(t.queues[key])
    delete!(t.wanted, request)
    return length(message)
end

function Meron.cancel(t::MailboxTransport, request)
    delete!(t.sent, request)
    haskey(t.wanted, request) || return
    key, _ = pop!(t.wanted, request)
    filter!(!=(request), t.queues[key])
    return
end

Meron.closed(t::MailboxTransport) = t.closed = true
Meron.transport_name(t::MailboxTransport) = t.name
Meron.max_message(t::MailboxTransport) = t.max_message
