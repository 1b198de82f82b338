# SPDX-License-Identifier: Apache-2.0
# The custom transport of this runner: that of the package's tests, threads which put messages into a
# mailbox.

include(joinpath(ROOT, "bindings", "julia", "test", "mailbox.jl"))

# Of each job that ranks are still joining: its mailbox, and who has joined. Ranks that differ in what
# they open do not meet twice under one job, so an entry that stays is of a case that failed.
const posts = Dict{String,Tuple{Mailbox,Set{Int}}}()
const joining = ReentrantLock()

# This rank's end of a job's mailbox.
function join_post(job, rank, world)
    mailbox = lock(joining) do
        mailbox, ranks = get!(() -> (Mailbox(), Set{Int}()), posts, job)
        push!(ranks, rank)
        length(ranks) == world && delete!(posts, job)
        mailbox
    end
    return MailboxTransport(rank, mailbox; name = "custom")
end
