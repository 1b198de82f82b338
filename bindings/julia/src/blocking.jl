# SPDX-License-Identifier: Apache-2.0
# How functions of the library that may wait are called.

"""
    @blocking_ccall(pointer, ReturnType, (ArgumentTypes...,), arguments...)

`ccall` for a function that may wait for other ranks. While it runs

- the garbage collector does not wait for this thread (its state is "GC-safe"), so that threads
  which must allocate before they can let this call end do not stand still with it;
- Ctrl-C is put off: an InterruptException must not fly through the library's frames. It is thrown
  when the call returns; `on_should_stop` (callbacks.jl) makes a waiting call return.

Arguments are converted before and kept alive until after the call, as `ccall` does.
"""
macro blocking_ccall(pointer, return_type, argument_types, arguments...)
    entry, state, result = gensym("entry"), gensym("state"), gensym("result")
    roots = [gensym("root") for _ in arguments]
    values = [gensym("value") for _ in arguments]
    types = argument_types.args
    converted = Any[]
    unwrapped = Any[]
    for (root, value, type, argument) in zip(roots, values, types, arguments)
        push!(converted, :(local $root = Base.cconvert($type, $argument)))
        push!(unwrapped, :(local $value = Base.unsafe_convert($type, $root)))
    end
    call = Expr(:call, :ccall, entry, return_type, argument_types, values...)
    return esc(quote
        local $entry = $pointer
        $(converted...)
        GC.@preserve $(roots...) begin
            $(unwrapped...)
            ccall(:jl_sigatomic_begin, Cvoid, ())
            local $state = ccall(:jl_gc_safe_enter, Int8, ())
            local $result = $call
            ccall(:jl_gc_safe_leave, Cvoid, (Int8,), $state)
            ccall(:jl_sigatomic_end, Cvoid, ())
            $result
        end
    end)
end
