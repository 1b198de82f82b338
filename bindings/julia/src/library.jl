# SPDX-License-Identifier: Apache-2.0
# Finds libmeron.so, loads it, and checks that it fits generated.jl.

"""
The library was not found, could not be loaded, or is of another version. The message lists every
place that was tried, and what to do.
"""
struct LibraryError <: Exception
    message::String
end
Base.showerror(io::IO, error::LibraryError) = print(io, "Meron: ", error.message)

"""The file, or the loader's name, of the library in use."""
const library_path = Ref("")

const LIBRARY = "libmeron.so"

# A folder stands for the library in it.
in_folder(path) = isdir(path) ? joinpath(path, LIBRARY) : path

# Candidates for the library, the preferred one first: (path or name, reason). If the user names a
# library, it is the only candidate.
function candidates()
    chosen = get(ENV, "MERON_LIBRARY", "")
    isempty(chosen) || return [(in_folder(chosen), "the variable MERON_LIBRARY")]
    chosen, file = preference()
    isempty(chosen) || return [(in_folder(chosen), file)]
    package = dirname(@__DIR__)
    build = normpath(joinpath(package, "..", "..", "build", "release", "capi", LIBRARY))
    version = VersionNumber(LibMeron.VERSION_TEXT)
    soname = version.major == 0 ? "$LIBRARY.0.$(version.minor)" : "$LIBRARY.$(version.major)"
    return [
        (joinpath(package, "lib", LIBRARY), "in the package"),
        (build, "the build tree of a checkout"),
        (soname, "the system's loader"),
        (LIBRARY, "the system's loader"),
    ]
end

# The entry `library` of [Meron] in the LocalPreferences.toml beside the active project, and that
# file's name. The package Preferences writes such files; it is not needed to read them.
function preference()
    project = Base.active_project()
    project === nothing && return "", ""
    file = joinpath(dirname(project), "LocalPreferences.toml")
    isfile(file) || return "", ""
    settings = get(parse_toml(file), "Meron", Dict{String,Any}())
    library = get(settings, "library", "")
    library isa String || throw(LibraryError("$file: [Meron] library must be a string: a path"))
    return library, file
end

# Base reads TOML since Julia 1.6; before, only Pkg does, which is part of Julia too.
function parse_toml(file)
    isdefined(Base, :parsed_toml) && return Base.parsed_toml(file)
    pkg = Base.PkgId(Base.UUID("44cfe95a-1eb2-52ea-b672-e2afdf69b78f"), "Pkg")
    toml = Base.invokelatest(getproperty, Base.require(pkg), :TOML)
    return Base.invokelatest(toml.parsefile, file)
end

# RTLD_NODELETE: the process may end in finalizers and threads that are still inside.
const LOAD_FLAGS = Libdl.RTLD_NOW | Libdl.RTLD_LOCAL | Libdl.RTLD_NODELETE

function load_library()
    tried = String[]
    for (path, why) in candidates()
        library = Ptr{Cvoid}(C_NULL)
        try
            library = Libdl.dlopen(path, LOAD_FLAGS)
        catch error
            error isa ErrorException || rethrow()
            push!(tried, "  $path ($why): $(load_reason(path, error.msg))")
            continue
        end
        check_version(library, path)
        LibMeron.bind(name -> entry(library, path, name))
        library_path[] = path
        return
    end
    throw(LibraryError(
        "cannot load libmeron. Tried:\n" * join(tried, "\n") *
        "\nSet MERON_LIBRARY to the path of $LIBRARY, or build it in the source tree: " *
        "cmake --preset release && cmake --build --preset release",
    ))
end

# The loader's own words without the lines that Julia puts around them.
function load_reason(path, text)
    occursin('/', path) && !ispath(path) && return "no such file"
    return strip(last(split(strip(text), '\n')))
end

function entry(library, path, name)
    address = Libdl.dlsym(library, name; throw_error = false)
    address === nothing || return address
    throw(LibraryError("$path is no libmeron of a version that this package can use: it lacks $name"))
end

# The rule of meron_version: equal major (before 1.0 also minor) numbers, and not older.
function check_version(library, path)
    found = ccall(entry(library, path, :meron_version), UInt32, ())
    needed = UInt32(LibMeron.MERON_VERSION)
    shift = needed >> 16 == 0 ? 8 : 16
    found >> shift == needed >> shift && found >= needed && return
    text = unsafe_string(ccall(entry(library, path, :meron_version_string), Cstring, ()))
    throw(LibraryError(
        "$path is version $text, but this package needs $(LibMeron.VERSION_TEXT) or a later one " *
        "that is compatible with it: install the package and the library from one release",
    ))
end
