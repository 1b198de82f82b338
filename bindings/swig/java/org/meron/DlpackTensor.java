// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.dlpack_tensor;

/**
 * A DLPack 1.x tensor that this object owns: CPU memory, row-major. Its deleter is called once, by
 * {@link #close} or by a Cleaner, on any thread; after {@link #handOver} by whoever took it.
 *
 * <p>One of {@link Gather#dlpack} is for native libraries of this process, by its {@link #address}. It
 * has a lease of its own, and its memory stays readable until it is closed, also after the gather and
 * the context were. One of {@link #take} shows another library's tensor to Java.
 */
public final class DlpackTensor extends Handle {
    private final Loan loan = new Loan();
    private final Dtype dtype;
    private final long[] shape;

    private DlpackTensor(long address) {
        super(new Release(address, Abi::dlpack_delete));
        dlpack_tensor tensor = null;
        try {
            tensor = new dlpack_tensor(address);
            dtype = Dtype.of(tensor.dtype());
            shape = new long[tensor.ndim()];
            for (int i = 0; i < shape.length; ++i) shape[i] = tensor.size(i);
        } catch (RuntimeException | Error error) {
            super.close();
            throw error;
        } finally {
            if (tensor != null) tensor.delete();
        }
    }

    /**
     * Takes ownership of a tensor from a native library of this process.
     *
     * @param address of a valid DLManagedTensorVersioned that no other code deletes. This cannot be
     * checked: any other number crashes the process. Until the deleter is called, no other code may write
     * the memory.
     * @throws MeronException ARGUMENT for 0 or a shape that cannot be, UNSUPPORTED for another version
     *     than 1, another device than the CPU, other elements than f32, bf16 and f16, and strides that
     *     are not row-major. The tensor's deleter has been called then.
     */
    public static DlpackTensor take(long address) {
        if (address == 0) {
            throw new MeronException(
                    Status.ARGUMENT, "the DLPack tensor is null: pass the address of one");
        }
        return new DlpackTensor(address);
    }

    /** Of the DLManagedTensorVersioned, which stays this object's: keep this object meanwhile. */
    public long address() {
        return handle();
    }

    /** The address for a library that calls the deleter itself. This object is closed then. */
    public long handOver() {
        final long address = take();
        if (address == 0) throw stale();
        loan.end("the DLPack tensor was handed over: it is its receiver's");
        return address;
    }

    /** Of the elements. */
    public Dtype dtype() {
        return dtype;
    }

    /** Sizes, row-major; none for a scalar. */
    public long[] shape() {
        return shape.clone();
    }

    /** Steps between neighbours in each dimension, in elements. */
    public long[] strides() {
        final long[] out = new long[shape.length];
        long step = 1;
        for (int i = shape.length; i-- > 0; ) {
            out[i] = step;
            step *= shape[i];
        }
        return out;
    }

    /**
     * The elements. The view throws STALE after close; buffers cannot: they keep this object alive, and
     * must not be touched after an explicit close.
     */
    public View view() {
        return call(address -> {
            final dlpack_tensor tensor = new dlpack_tensor(address);
            try {
                return new View(null, this, loan, tensor.view());
            } finally {
                tensor.delete();
            }
        });
    }

    /** Calls the tensor's deleter. Never blocks on peers. */
    @Override
    public void close() {
        loan.end("the DLPack tensor was closed: read it before");
        super.close();
    }
}
