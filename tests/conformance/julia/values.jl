# SPDX-License-Identifier: Apache-2.0
# The values that cases write and expect, as arrays, and how results are held against them.

"The library did what it should not."
struct CheckFailed <: Exception
    message::String
end
Base.showerror(io::IO, error::CheckFailed) = print(io, error.message)

check(good, what) = good ? nothing : throw(CheckFailed(what))
check_equal(what, found, expected) =
    check(isequal(found, expected), "$what is $(repr(found)), not $(repr(expected))")

squeezed(text) = replace(text, r"[\s_]" => "")
holds(text, part) = occursin(squeezed(part), squeezed(text))
function check_has(text, statement)
    for part in parts(statement, "has")
        check(holds(text, part), "$(repr(part)) is not in: $text")
    end
end

const DTYPES = Dict("f32" => Float32, "bf16" => BFloat16, "f16" => Float16,
    "f64" => Float64, "i64" => Int64)
const DTYPE_NAMES = Dict(type => name for (name, type) in DTYPES)

# C's shape is Julia's size reversed.
size_of(text) = text == "scalar" ? () : Tuple(reverse(parse.(Int, split(text, 'x'))))

pattern(i, seed) = (mod(7 * i + 13 * seed, 61) - 30) / 8

# A rank of a world, which some values depend on.
struct Place
    rank::Int
    world::Int
end

# Elements `offset` to `offset + count - 1` of the sum of terms that `text` is.
values_at(place, text, count, offset = 0) =
    sum(term_at(place, String(term), count, offset) for term in split(text, '+'))

function term_at(place, term, count, offset)
    kind, argument = split(term, ':'; limit = 2)
    argument, factor = (split(argument, '*')..., "1")[1:2]
    at(seed) = Float64[pattern(i, seed) for i in offset:offset+count-1]
    seed() = parse(Int, argument)
    all_ranks() = sum(at(seed() + rank) for rank in 0:place.world-1)
    found =
        kind == "fill" ? fill(parse(Float64, argument), count) :
        kind == "pattern" ? at(seed()) :
        kind == "rank" ? at(seed() + place.rank) :
        kind == "ranks" ? all_ranks() :
        kind == "mean" ? all_ranks() ./ place.world :
        throw(Malformed("unknown values $kind"))
    return found .* parse(Float64, factor)
end

# A full tensor of the values, which are exact in its type.
function tensor_of(place, text, type, size)
    values = values_at(place, text, prod(size))
    array = type.(values)
    all(isequal.(Float64.(array), values)) || throw(Malformed("$text is not exact in $type"))
    return reshape(array, size)
end

# Holds elements from `offset` on against `is`, `crc` and `crcN`.
function check_data(place, statement, array, offset = 0)
    if has(statement, "is")
        expected = values_at(place, wanted(statement, "is"), length(array), offset)
        within = parse(Float64, get(statement, "within", "0"))
        for (i, (found, value)) in enumerate(zip(array, expected))
            found == value || isnan(found) && isnan(value) || abs(found - value) <= within ||
                check_equal("element $(offset + i - 1)", Float64(found), value)
        end
    end
    for key in ("crc", "crc$(place.world)")
        has(statement, key) || continue
        check_equal("the CRC", string(crc_of(array); base = 16, pad = 8), wanted(statement, key))
    end
end

crc_of(array) = crc32(reinterpret(UInt8, vec(collect(array))))

# CRC-32 of IEEE 802.3, as in zlib.
function crc32(bytes)
    crc = ~UInt32(0)
    for byte in bytes
        crc = xor(crc, byte)
        for _ in 1:8
            crc = (crc >> 1) ⊻ (0xEDB88320 * (crc & 0x01))
        end
    end
    return ~crc
end
