# SPDX-License-Identifier: Apache-2.0
# A transport of the caller's own between ranks that are threads, in a process with several of them.

@test success(pipeline(
    julia_command(joinpath(@__DIR__, "transports_body.jl"); threads = 2);
    stdout = stdout, stderr = stderr))
