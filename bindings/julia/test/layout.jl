# SPDX-License-Identifier: Apache-2.0
# A C compiler as witness: structs have C's sizes and offsets, constants C's values.

const INCLUDE = normpath(joinpath(@__DIR__, "..", "..", "..", "include"))
const COMPILER = something(Sys.which("cc"), Sys.which("gcc"), Sys.which("clang"), "")

constants() = [
    name for name in names(LibMeron; all = true) if
    startswith(string(name), "MERON_") && getfield(LibMeron, name) isa Integer
]

function c_facts()
    program = IOBuffer()
    println(program, "#include <meron/meron.h>\n#include <stdio.h>\nint main(void) {")
    for T in LibMeron.structs
        struct_ = nameof(T)
        println(program, "printf(\"$struct_ %zu\\n\", sizeof($struct_));")
        for field in fieldnames(T)
            c = rstrip(string(field), '_') # `begin_` is C's `begin`
            println(program, "printf(\"$struct_.$field %zu\\n\", offsetof($struct_, $c));")
        end
    end
    for name in constants()
        println(program, "printf(\"$name %lld\\n\", (long long)$name);")
    end
    println(program, "return 0; }")
    return mktempdir() do folder
        source, output = joinpath(folder, "facts.c"), joinpath(folder, "facts")
        write(source, take!(program))
        run(`$COMPILER -std=c11 -I $INCLUDE $source -o $output`)
        Dict(split(line)[1] => parse(Int, split(line)[2]) for line in eachline(`$output`))
    end
end

if !isdir(INCLUDE) || isempty(COMPILER)
    @info "layout: skipped, the headers or a C compiler are missing"
else
    facts = c_facts()
    for T in LibMeron.structs
        @test facts[string(nameof(T))] == sizeof(T)
        for (i, field) in enumerate(fieldnames(T))
            @test facts["$(nameof(T)).$field"] == fieldoffset(T, i)
        end
    end
    for name in constants()
        @test facts[string(name)] == getfield(LibMeron, name)
    end
    @test length(LibMeron.structs) >= 20
    @test length(constants()) >= 40
end
