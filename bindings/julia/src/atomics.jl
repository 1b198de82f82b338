# SPDX-License-Identifier: Apache-2.0

# Replaces the number at an address, and returns the former one, as one step for all threads. Julia has
# functions for this since 1.7.
@static if isdefined(Core.Intrinsics, :atomic_pointerswap)
    @inline exchange!(address::Ptr{UInt64}, value::UInt64) =
        Core.Intrinsics.atomic_pointerswap(address, value, :acquire_release)
else
    @inline exchange!(address::Ptr{UInt64}, value::UInt64) = Base.llvmcall(
        """%3 = inttoptr i64 %0 to i64*
           %4 = atomicrmw xchg i64* %3, i64 %1 acq_rel
           ret i64 %4""",
        UInt64, Tuple{UInt64,UInt64}, UInt64(UInt(address)), value)
end
