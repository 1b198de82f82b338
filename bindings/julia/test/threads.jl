# SPDX-License-Identifier: Apache-2.0
# Ranks as threads, and tasks on several threads. Julia fixes its threads at the start: a process of
# its own runs threads_body.jl.

@test success(pipeline(
    julia_command(joinpath(@__DIR__, "threads_body.jl"); threads = 3); stdout = stdout, stderr = stderr))
