# SPDX-License-Identifier: Apache-2.0
# The training text: some files, one after the other.

# Debian's folder of common licences, the default text.
const DEFAULT_FOLDER = "/usr/share/common-licenses"

"Reads files, or those of DEFAULT_FOLDER; throws a BadInput without any text."
function load_text(paths)
    bytes = UInt8[]
    for path in paths
        more = read_file(path)
        isempty(more) && throw(BadInput("$path is empty"))
        append!(bytes, more)
    end
    isempty(paths) && foreach(path -> append!(bytes, read_file(path)), default_files())
    isempty(bytes) && throw(BadInput("this machine has no texts in $DEFAULT_FOLDER"))
    return bytes
end

# The regular files in the order of their names; a file that has a second name by a link counts once.
function default_files()
    isdir(DEFAULT_FOLDER) || return String[]
    seen, files = Set{Tuple{UInt64,UInt64}}(), String[]
    for name in sort(readdir(DEFAULT_FOLDER))
        path = joinpath(DEFAULT_FOLDER, name)
        startswith(name, '.') && continue
        isfile(path) || continue
        known = stat(path)
        (known.device, known.inode) in seen && continue
        push!(seen, (known.device, known.inode))
        push!(files, path)
    end
    return files
end

function read_file(path)
    try
        return read(path)
    catch error
        error isa SystemError || error isa Base.IOError || rethrow()
        throw(BadInput("cannot read $path: $(reason_of(error))"))
    end
end

reason_of(error::SystemError) = Libc.strerror(error.errnum)
reason_of(error) = sprint(showerror, error)
