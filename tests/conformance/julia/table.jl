# SPDX-License-Identifier: Apache-2.0
# The cases as data: cases.txt, parsed.

"The file does not say what ../README.md asks for."
struct Malformed <: Exception
    message::String
end
Base.showerror(io::IO, error::Malformed) = print(io, error.message)

# One operation: its name, the object it is about ("" for none), its arguments in order.
struct Statement
    line::Int
    operation::String
    name::String
    arguments::Vector{Pair{String,String}}
end

# The first argument of a name, or `otherwise`.
function Base.get(statement::Statement, key, otherwise)
    for (known, value) in statement.arguments
        known == key && return value
    end
    return otherwise
end
has(statement, key) = get(statement, key, nothing) !== nothing
function wanted(statement, key)
    has(statement, key) || throw(Malformed("$(statement.operation) lacks $key="))
    return get(statement, key, "")
end
parts(statement, key) = split(get(statement, key, ""), ','; keepempty = false)
number(statement, key, otherwise) =
    has(statement, key) ? parse(Float64, wanted(statement, key)) : otherwise
whole(statement, key, otherwise) =
    has(statement, key) ? parse(Int, wanted(statement, key)) : otherwise

mutable struct Case
    name::String
    ranks::Vector{String}
    plans::Vector{String}
    transports::Vector{String}
    needs::Vector{String}
    statements::Vector{Statement}
    Case(name) =
        new(name, ["1", "2", "3"], ["zero3"], ["self", "local", "shm", "custom"], [], [])
end

runs_on(case, transport, ranks) = transport in case.transports && string(ranks) in case.ranks

function read_cases(path)
    cases = Case[]
    for (number, line) in enumerate(eachline(path))
        tokens = String.(split(line))
        comment = findfirst(startswith('#'), tokens)
        comment === nothing || (tokens = tokens[1:comment-1])
        isempty(tokens) && continue
        word, rest = tokens[1], tokens[2:end]
        if word == "case"
            push!(cases, Case(only(rest)))
        elseif isempty(cases)
            throw(Malformed("$path:$number: no case yet"))
        elseif word in ("ranks", "plans", "transports", "needs")
            setfield!(last(cases), Symbol(word), rest)
        else
            push!(last(cases).statements, statement_of(number, word, rest))
        end
    end
    return cases
end

function statement_of(number, operation, words)
    names = filter(word -> !occursin('=', word), words)
    length(names) <= 1 || throw(Malformed("line $number: a second name, $(names[2])"))
    arguments = Pair{String,String}[]
    for word in words
        occursin('=', word) || continue
        key, value = split(word, '='; limit = 2)
        push!(arguments, key => value)
    end
    return Statement(number, operation, isempty(names) ? "" : names[1], arguments)
end
