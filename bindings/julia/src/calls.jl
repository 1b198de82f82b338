# SPDX-License-Identifier: Apache-2.0
# How the functions of the library are called.

"""
    @check LibMeron.meron_function(arguments...)

Calls a function with an error slot behind its arguments. The value is its status, 0 or
`MERON_IN_PROGRESS`; an error is thrown. Releases what the collector has found since the last call.
"""
macro check(call)
    error, status = gensym("error"), gensym("status")
    arguments = map(esc, call.args[2:end])
    return quote
        drain()
        local $error = Ref{Ptr{LibMeron.meron_error}}(C_NULL)
        local $status = $(esc(call.args[1]))($(arguments...), $error)
        $status < 0 && fail($status, $error[])
        $status
    end
end

# Throws the error that ended a call: the exception of a callback of this task, else the library's
# error.
@noinline function fail(status, error)
    if status == LibMeron.MERON_E_CANCELLED
        thrown = take_thrown()
        if thrown !== nothing
            LibMeron.meron_error_free(error)
            throw(thrown)
        end
    end
    throw_error(status, error)
end

# The value that a function stores through its first parameter.
function receive(::Type{T}, function_, arguments...) where {T}
    out = Ref{T}()
    @check function_(out, arguments...)
    return out[]
end

# The text that a function returns. The caller frees it.
function take_string(function_, arguments...)
    pointer = receive(Ptr{UInt8}, function_, arguments...)
    text = unsafe_string(pointer)
    LibMeron.meron_string_free(pointer)
    return text
end

# Text as the library takes it; ArgumentErrors are the caller's to avoid by good text.
function text(value, what)
    value isa AbstractString || throw(argument_error("$what must be a string, not $(typeof(value))"))
    string = String(value)
    isvalid(string) || throw(argument_error("$what is no valid UTF-8: $(repr(string))"))
    '\0' in string && throw(argument_error("$what holds a NUL character: $(repr(string))"))
    return string
end

# An options struct with the library's initial values.
function initial(::Type{T}, init, arguments...) where {T}
    options = Ref{T}()
    @check init(options, sizeof(T), arguments...)
    return options[]
end

# The same with other values for some fields.
function changed(options::T; changes...) where {T}
    fields = map(fieldnames(T)) do name
        haskey(changes, name) ? convert_field(fieldtype(T, name), changes[name], name) :
        getfield(options, name)
    end
    return T(fields...)
end

# The same for changes that are collected at run time: compiled once per struct.
function changed(options::T, changes::Dict{Symbol,Any}) where {T}
    target = Ref(options)
    GC.@preserve target for (name, value) in changes
        index = Base.fieldindex(T, name)
        type = fieldtype(T, index)
        field = Base.unsafe_convert(Ptr{T}, target) + fieldoffset(T, index)
        unsafe_store!(Ptr{type}(field), convert_field(type, value, name))
    end
    return target[]
end

function convert_field(::Type{T}, value, name) where {T}
    try
        return convert(T, value)
    catch error
        error isa Union{InexactError,MethodError} || rethrow()
        throw(argument_error("$name is out of range: $(repr(value))"))
    end
end

# The value of an enum by its name.
function choice(known::NamedTuple, name, what)
    haskey(known, name) || throw(argument_error(
        "unknown $what $(repr(name)): $(join(map(repr, keys(known)), ", ")) are known"))
    return known[name]
end

# A struct for the library to fill, with its struct_size set.
function filled(::Type{T}, function_, argument...) where {T}
    out = Ref{T}()
    GC.@preserve out begin
        pointer = Base.unsafe_convert(Ptr{T}, out)
        ccall(:memset, Ptr{Cvoid}, (Ptr{Cvoid}, Cint, Csize_t), pointer, 0, sizeof(T))
        unsafe_store!(Ptr{UInt32}(pointer), sizeof(T)) # the first field
    end
    @check function_(out, argument...)
    return out[]
end

# The fields that mean something, as integers and floats of Julia's.
function as_tuple(::Type{T}, value) where {T}
    names = Tuple(name for name in fieldnames(T) if !(name in (:struct_size, :reserved_0, :defaults_of)))
    return NamedTuple{names}(map(name -> plain(getfield(value, name)), names))
end
plain(value::Integer) = Int(value)
plain(value) = value

# A timeout for the library: `nothing` leaves the bound to the context's deadline.
function nanoseconds(seconds)
    seconds === nothing && return Int64(LibMeron.MERON_TIMEOUT_DEFAULT)
    0 <= seconds < 9e9 ||
        throw(argument_error("a timeout is a number of seconds, 0 or more, not $seconds"))
    return round(Int64, seconds * 1e9)
end

# ---- Objects with a handle -----------------------------------------------------------------------

# An object whose first field `id` is a handle. The library writes it there itself: no interrupt can
# come between the call and the assignment.
abstract type Owner end

# The address at which the library stores the handle of a new object. `owner` must be preserved
# meanwhile.
out_pointer(owner::Owner, ::Type{T}) where {T} = Ptr{T}(pointer_from_objref(owner))

# The handle of an object, which has none from now on: whichever of several threads releases it, one gets it.
@inline take_handle!(owner::Owner) =
    GC.@preserve owner exchange!(out_pointer(owner, UInt64), UInt64(0))

"""
    release(object)

Releases a gather, future, update, optimizer, param, unit, group, plan, checkpoint or DLPack
tensor; doing so twice is fine. Never blocks. The next call releases objects that have no references
any more.
"""
function release(owner::Owner)
    id = take_handle!(owner)
    id == 0 && return
    drain()
    release_handle(kind_of(owner), id)
    return
end

function enqueue_owner(owner::Owner)
    id = take_handle!(owner)
    id == 0 || enqueue(kind_of(owner), id)
    return
end

# A copy of a program's state refers to the same objects.
Base.deepcopy_internal(owner::Owner, ::IdDict) = owner
