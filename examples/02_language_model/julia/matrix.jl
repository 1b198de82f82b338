# SPDX-License-Identifier: Apache-2.0
# The matrix product that the model is made of, blocked for cache and registers. Every sum is taken in
# the order of its index, as in ../c/matrix.c: equal bits everywhere.
#
# Matrices are described as in C, row-major: an array of size (width, rows) is a matrix of `rows` rows.

# A view of a matrix: strides in elements from one row, and from one column, to the next.
struct Strided{A<:AbstractArray{Float32}}
    data::A
    row::Int
    column::Int
end
rows_of(data, width) = Strided(data, width, 1)
transpose_of(data, width) = Strided(data, 1, width)

const TILE_ROWS = 4
const TILE_COLUMNS = 16 # as in plus_product

# A row of a tile. The compiler keeps these in vector registers; multiply and add are not fused.
const Lanes = NTuple{TILE_COLUMNS,VecElement{Float32}}
const NO_SUM = ntuple(_ -> VecElement(0.0f0), TILE_COLUMNS)

@inline plus_product(sum::Lanes, factor::Lanes, lanes::Lanes) = Base.llvmcall(
    """%4 = fmul <16 x float> %1, %2
       %5 = fadd <16 x float> %0, %4
       ret <16 x float> %5""",
    Lanes, Tuple{Lanes,Lanes,Lanes}, sum, factor, lanes)
@inline everywhere(factor::Float32) = ntuple(_ -> VecElement(factor), Val(TILE_COLUMNS))

"""
    add_product!(c, a, b, m, n, k, panel)

c[m][n] += a (m x k) times b (k x n); each sum is completed before it is added. `panel` is scratch of
at least k * TILE_COLUMNS elements.
"""
function add_product!(c, a::Strided, b::Strided, m, n, k, panel::Vector{Float32})
    # The kernel reads by pointers: the sizes are looked at here, once.
    @assert length(c) >= m * n && length(panel) >= k * TILE_COLUMNS
    @assert length(a.data) > (m - 1) * a.row + (k - 1) * a.column
    @assert length(b.data) > (k - 1) * b.row + (n - 1) * b.column
    for j in 0:TILE_COLUMNS:n-1
        columns = min(n - j, TILE_COLUMNS)
        pack!(panel, b, j, columns, k)
        for i in 0:TILE_ROWS:m-1
            add_tile!(c, a, panel, i, j, min(m - i, TILE_ROWS), columns, n, k)
        end
    end
end

# Columns of b, packed side by side, stay in the L1 cache while the rows of a pass by.
function pack!(panel, b, j, columns, k)
    data = b.data
    for p in 0:k-1
        from, to = p * b.row + j * b.column + 1, p * TILE_COLUMNS
        @inbounds for x in 0:columns-1
            panel[to+x+1] = data[from+x*b.column]
        end
        @inbounds for x in columns:TILE_COLUMNS-1
            panel[to+x+1] = 0.0f0
        end
    end
end

# One tile of c; the sums stay in registers. Past the last row: the last one again, result unused.
function add_tile!(c, a, panel, i, j, rows, columns, n, k)
    data, step = a.data, a.column
    at = ntuple(y -> (i + min(y, rows) - 1) * a.row + 1, Val(TILE_ROWS))
    s1 = s2 = s3 = s4 = NO_SUM
    GC.@preserve panel begin
        lanes_at = Ptr{Lanes}(pointer(panel))
        @inbounds for p in 0:k-1
            lanes = unsafe_load(lanes_at, p + 1)
            s1 = plus_product(s1, everywhere(data[at[1]+p*step]), lanes)
            s2 = plus_product(s2, everywhere(data[at[2]+p*step]), lanes)
            s3 = plus_product(s3, everywhere(data[at[3]+p*step]), lanes)
            s4 = plus_product(s4, everywhere(data[at[4]+p*step]), lanes)
        end
    end
    sums = (s1, s2, s3, s4)
    for y in 1:rows
        row, place = sums[y], (i + y - 1) * n + j
        @inbounds for x in 1:columns
            c[place+x] += row[x].value
        end
    end
end

const ONE = [1.0f0]

"""
    add_row_sums!(sums, b, n, k, panel)

sums[n] += the sum of the rows of the row-major b[k][n].
"""
add_row_sums!(sums, b, n, k, panel) =
    add_product!(sums, Strided(ONE, 0, 0), rows_of(b, n), 1, n, k, panel)
