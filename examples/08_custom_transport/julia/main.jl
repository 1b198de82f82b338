# SPDX-License-Identifier: Apache-2.0
# Ranks that share no memory train one tensor; their bytes move as files in a folder.
#
#     meron run -n 3 -- julia --project=bindings/julia main.jl FOLDER
#
# FOLDER is empty at first. Exit code 0 when every rank saw what it should.

include("folder.jl")

function main(folder)
    rank, ranks = parse.(Int, (ENV["MERON_RANK"], ENV["MERON_WORLD_SIZE"]))
    options = (rank = rank, world_size = ranks, timeout = 60, transport = Folder(folder, rank))
    Meron.open(; options...) do ctx
        # From here on nothing depends on the transport. Every value is to become its rank's mean.
        weight = Param(ctx, "weight", (10, 100))
        layer = Unit(ctx, "layer", [weight])
        optimizer = adamw(layer; learning_rate = 0.1, weight_decay = 0.0)
        for _ in 1:50
            gradient = gather(full -> full[weight] .- Float32(rank), layer)
            reduce!(layer, weight => gradient)
            step!(optimizer)
        end
        mean = (ranks - 1) / 2
        furthest = gather(full -> maximum(abs.(full[weight] .- mean)), layer)
        known = allreduce!(Float32[furthest], ctx.world; op = :mean)[1]
        rank == 0 && println("transport $(ctx.transport): at most $furthest from the mean $mean")
        barrier(ctx.world)
        return furthest < 0.3 && known == Float32(furthest) ? 0 : 1
    end
end

length(ARGS) == 1 || (println(stderr, "usage: main.jl FOLDER"); exit(2))
exit(main(ARGS[1]))
