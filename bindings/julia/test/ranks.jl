# SPDX-License-Identifier: Apache-2.0
# Ranks that are threads of this process.

# Results of `body` on each rank, or its errors. `transport` is a function of the rank.
function run_ranks(body, count; transport = rank -> "local", options...)
    results = Vector{Any}(undef, count)
    job = randstring(12)
    Threads.@threads for rank in 0:count-1
        results[rank+1] = try
            Meron.open(body; rank = rank, world_size = count, transport = transport(rank),
                job = job, timeout = 20, options...)
        catch error
            error
        end
    end
    return results
end
