# SPDX-License-Identifier: Apache-2.0
# Finding the library.

# Output of `using Meron` in a fresh process. It fails, and the test checks the message.
function loading(; variables...)
    output = IOBuffer()
    command = julia_command("-e", "using Meron; print(Meron.library_path[])"; variables...)
    passed = success(pipeline(command; stdout = output, stderr = output))
    return passed, String(take!(output))
end

@test Meron.version() >= v"0.2"
@test isfile(Meron.library_path[])

@testset "not found" begin
    passed, words = loading(MERON_LIBRARY = "/nowhere/libmeron.so")
    @test !passed
    @test occursin("/nowhere/libmeron.so (the variable MERON_LIBRARY): no such file", words)
    @test occursin("Set MERON_LIBRARY", words)
end

@testset "wrong version, and no libmeron at all" begin
    compiler = something(Sys.which("cc"), Sys.which("gcc"), "")
    isempty(compiler) || mktempdir() do folder
        library = joinpath(folder, "libmeron.so")
        source = joinpath(folder, "old.c")
        write(source, """
            unsigned meron_version(void) { return 9 << 8; }
            const char *meron_version_string(void) { return "0.9.0"; }
            """)
        run(`$compiler -shared -fPIC $source -o $library`)
        # A folder stands for the library in it.
        passed, words = loading(MERON_LIBRARY = folder)
        @test !passed
        @test occursin("is version 0.9.0, but this package needs $(LibMeron.VERSION_TEXT)", words)

        write(source, "int nothing;")
        run(`$compiler -shared -fPIC $source -o $library`)
        @test occursin("it lacks meron_version", loading(MERON_LIBRARY = library)[2])
    end
end

@testset "LocalPreferences.toml" begin
    mktempdir() do folder
        file = joinpath(folder, "LocalPreferences.toml")
        write(joinpath(folder, "Project.toml"), "")
        write(file, "[Meron]\nlibrary = \"/nowhere/at/all.so\"\n")
        withenv("MERON_LIBRARY" => nothing) do
            before = Base.ACTIVE_PROJECT[]
            Base.ACTIVE_PROJECT[] = joinpath(folder, "Project.toml")
            try
                @test Meron.candidates() == [("/nowhere/at/all.so", file)]
                write(file, "[Meron]\nlibrary = 3\n")
                @test_throws Meron.LibraryError Meron.candidates()
                rm(file)
                @test length(Meron.candidates()) >= 4
            finally
                Base.ACTIVE_PROJECT[] = before
            end
        end
    end
end
