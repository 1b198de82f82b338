// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.ShortBuffer;
import org.meron.abi.meron_view;

/**
 * A range of a tensor in place, without a copy. Every method throws STALE after the view's source has
 * ended: a gather or context that was closed, an update that was published, a gradient that is being
 * reduced, an optimizer's state when the optimizer steps or a checkpoint is saved.
 *
 * <p>Java cannot take a buffer back. Those of {@link #floats}, {@link #shorts} and {@link #bytes} keep
 * what they show alive as long as they are reachable, but after an explicit close they show whatever
 * the memory holds by then, and <b>after Context.close() they must not be touched: the memory is
 * gone</b>. {@link #get} and {@link #put} check on every call.
 */
public final class View {
    private final Context context;
    private final Object keep;
    private final Loan loan;
    private final meron_view view;
    private final long count;
    private final long offset;
    private final Dtype dtype;
    private final boolean writable;
    private final long address;
    private final boolean reachable;
    private ByteBuffer whole;

    /**
     * Takes `view` over. `keep` is what must not be released while buffers of this are reachable. The
     * context is null where the memory outlives it. `reachable`: the host can read it.
     */
    View(Context context, Object keep, Loan loan, meron_view view, boolean reachable) {
        this.context = context;
        this.keep = keep;
        this.loan = loan;
        this.count = view.getCount();
        this.offset = view.getOffset();
        this.dtype = Dtype.of(view.getDtype());
        this.writable = view.getWritable() != 0;
        this.address = view.address();
        this.reachable = reachable;
        this.view = view;
        if (!reachable) {
            view.delete();
        } else if (bytesIn(count) <= Integer.MAX_VALUE) {
            whole = lend(view.memory(0, bytesIn(count)));
            view.delete();
        } else {
            final meron_view held = view;
            Handle.CLEANER.register(this, held::delete);
        }
    }

    View(Context context, Object keep, Loan loan, meron_view view) {
        this(context, keep, loan, view, true);
    }

    /** Elements. */
    public long count() {
        return count;
    }

    /** The index of the first element in the whole tensor, row-major. */
    public long offset() {
        return offset;
    }

    /** Of the elements. */
    public Dtype dtype() {
        return dtype;
    }

    /** Whether it may be written. */
    public boolean writable() {
        return writable;
    }

    /**
     * Where the first element is, for native code; of the device's memory where the view is in it. Valid
     * as long as the view is.
     */
    public long address() {
        requireCurrent();
        return address;
    }

    /** All elements as floats, read-only unless {@link #writable}. Throws ARGUMENT for 16 bits. */
    public FloatBuffer floats() {
        require(Dtype.F32);
        return bytes().asFloatBuffer();
    }

    /** All elements of 16 bits as they are. Throws ARGUMENT for F32. */
    public ShortBuffer shorts() {
        require();
        if (dtype == Dtype.F32) throw wrong("floats()");
        return bytes().asShortBuffer();
    }

    /** All bytes in native order, read-only unless writable. UNSUPPORTED beyond 2 GiB. */
    public ByteBuffer bytes() {
        require();
        if (whole == null) {
            throw new MeronException(Status.UNSUPPORTED, "a view of " + bytesIn(count)
                    + " bytes is more than one Java buffer can show: use bytes(first, length)");
        }
        return whole.duplicate().order(whole.order());
    }

    /** Some bytes in native order. Throws ARGUMENT beyond the view's end. */
    public ByteBuffer bytes(long first, int length) {
        require();
        if (first < 0 || length < 0 || first > bytesIn(count) - length) {
            throw new MeronException(Status.ARGUMENT, "bytes " + first + " to " + (first + length)
                    + " of a view of " + bytesIn(count));
        }
        if (whole == null) return lend(view.memory(first, length));
        final ByteBuffer part = whole.duplicate();
        part.position((int) first).limit((int) first + length);
        return part.slice().order(whole.order());
    }

    /** One element. F32 only. */
    public float get(long index) {
        return span(index, 1).get(0);
    }

    /** Copies the first to.length elements. F32 only. */
    public void get(float[] to) {
        get(0, to, 0, to.length);
    }

    /** Copies elements from `first` on to some of an array. F32 only. */
    public void get(long first, float[] to, int at, int length) {
        span(first, length).get(to, at, length);
    }

    /** Sets one element. F32 only; throws STATE when the view is read-only. */
    public void put(long index, float value) {
        requireWritable();
        loan.write(() -> span(index, 1).put(0, value));
    }

    /** Sets the first from.length elements. F32 only. */
    public void put(float[] from) {
        put(0, from, 0, from.length);
    }

    /** Sets elements from `first` on. F32 only. */
    public void put(long first, float[] from, int at, int length) {
        requireWritable();
        loan.write(() -> span(first, length).put(from, at, length));
    }

    private FloatBuffer span(long first, int length) {
        require(Dtype.F32);
        if (first < 0 || length < 0 || first > count - length) {
            throw new MeronException(Status.ARGUMENT,
                    "elements " + first + " to " + (first + length) + " of a view of " + count);
        }
        return bytes(bytesIn(first), (int) bytesIn(length)).asFloatBuffer();
    }

    private long bytesIn(long elements) {
        return elements * dtype.bytes();
    }

    private void require() {
        requireCurrent();
        if (!reachable) {
            throw new MeronException(Status.UNSUPPORTED, "the view is in a device's memory, which the "
                    + "host cannot read: gather it with Tier.HOST");
        }
    }

    private void requireCurrent() {
        if (context != null) context.requireOpen();
        loan.require();
    }

    private void require(Dtype wanted) {
        require();
        if (dtype != wanted) throw wrong("shorts()");
    }

    private void requireWritable() {
        if (!writable) {
            throw new MeronException(Status.STATE,
                    "the view is read-only: other ranks read the same memory. Write through an update");
        }
    }

    private MeronException wrong(String instead) {
        return new MeronException(
                Status.ARGUMENT, "the view's elements are " + dtype + ": use " + instead);
    }

    /**
     * Keeps `keep` reachable as long as a buffer, or one made from it, is: all of those refer to the
     * first one, and the Cleaner's list refers to what it is to run.
     */
    private ByteBuffer lend(ByteBuffer memory) {
        final Object kept = keep;
        Handle.CLEANER.register(memory, () -> java.lang.ref.Reference.reachabilityFence(kept));
        return (writable ? memory : memory.asReadOnlyBuffer()).order(memory.order());
    }
}
