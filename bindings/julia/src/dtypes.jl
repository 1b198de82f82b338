# SPDX-License-Identifier: Apache-2.0
# Element types, and arrays of the caller's.

# True for this package's bfloat16, Core's and that of the package BFloat16s: all of them have its bits.
is_bfloat16(type) = type === BFloat16 || type isa DataType && nameof(type) === :BFloat16 &&
                    isprimitivetype(type) && sizeof(type) == 2 && type <: AbstractFloat

code_of(::Type{Float32}) = LibMeron.MERON_F32
code_of(::Type{Float16}) = LibMeron.MERON_F16
code_of(::Type{BFloat16}) = LibMeron.MERON_BF16
function code_of(type)
    is_bfloat16(type) && return LibMeron.MERON_BF16
    throw(argument_error("unknown dtype $type: Float32, BFloat16 and Float16 are known"))
end
is_element(type) = type === Float32 || type === Float16 || is_bfloat16(type)
same_dtype(one, other) = one === other || is_bfloat16(one) && is_bfloat16(other)

# The element type of what the library has in a dtype. For bf16 the one that the program has chosen for
# the param concerned, if that is a bfloat16.
function type_of(code, chosen = BFloat16)
    code == LibMeron.MERON_F32 && return Float32
    code == LibMeron.MERON_F16 && return Float16
    code == LibMeron.MERON_BF16 && return is_bfloat16(chosen) ? chosen : BFloat16
    throw(own_error(LibMeron.MERON_E_INTERNAL, "the library has a dtype $code that is not known here"))
end

# ---- Arrays of the caller's ----------------------------------------------------------------------

# True if the elements are side by side, in the order of linear indices.
function is_contiguous(array)
    array isa ReadOnlyView && return true
    array isa StridedArray || return false
    step = 1
    for d in 1:ndims(array)
        size(array, d) == 1 || stride(array, d) == step || isempty(array) || return false
        step *= size(array, d)
    end
    return true
end

# The address of the elements. The caller preserves the array.
function address(array, what)
    pointer_ = pointer(array)
    pointer_ isa Ptr && return Ptr{Cvoid}(pointer_)
    throw(argument_error("$what is not in the memory of this host: it is a $(typeof(array))"))
end

# MeronError unless the library may write there in order.
function require_writable(array, what)
    array isa AbstractArray || throw(argument_error("$what must be an array, not a $(typeof(array))"))
    isbitstype(eltype(array)) ||
        throw(argument_error("$what holds elements of type $(eltype(array)), which are not plain bits"))
    is_contiguous(array) || throw(argument_error(
        "$what is not contiguous in memory: it is a $(typeof(array))"; advice = "Pass a copy of it"))
    writable(array) || throw(argument_error("$what is read-only"; advice = "Pass a copy of it"))
    return array
end
writable(array) = true
writable(array::SubArray) = writable(parent(array))

# Values as a contiguous array that the library can read, of the tensor's size. Float32, BFloat16 and
# Float16 pass as they are; other real numbers are converted to Float32.
function as_source(values, size_, name)
    values isa AbstractArray || throw(argument_error(
        "$name: an array is needed, not a $(typeof(values))"; subject = name))
    size(values) == size_ || throw(argument_error(
        "$name has size $size_, the array has $(size(values))";
        subject = name, advice = "Sizes are in column order: C's shape reversed"))
    eltype(values) <: Real || throw(argument_error(
        "$name: an array of $(eltype(values)) holds no real numbers"; subject = name))
    is_element(eltype(values)) || return Array{Float32}(values)
    return is_contiguous(values) ? values : Array(values)
end
