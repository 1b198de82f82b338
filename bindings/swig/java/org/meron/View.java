// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.ShortBuffer;
import org.meron.abi.meron_view;

/**
 * A range of a tensor in place, without a copy. Every method throws STALE after the view's source has
 * ended: a gather that was closed, an update that was published or closed, a gradient that is being
 * reduced, an optimizer's state when the optimizer steps or a checkpoint is saved. After Context.close()
 * every method throws CLOSED.
 *
 * <p>The buffers of {@link #floats}, {@link #shorts} and {@link #bytes} keep their source from the
 * collector while they are reachable; a MemorySegment made of one does not. On Java 22 and later they end
 * with the view: an access then throws IllegalStateException. Before Java 22 nothing ends a buffer. After an
 * explicit close it shows whatever the memory has by then, and <b>after Context.close() an access ends the
 * process</b>. {@link #get} and {@link #put} check on every call, under every version.
 *
 * <p>On Java 22 and later the end of buffers takes some tens of microseconds, once for all of them, because
 * every thread of the process takes part. {@link #get} and {@link #put} need no buffers, and are the faster
 * way to many small tensors.
 *
 * <p>Any thread may use it. Nothing here blocks.
 */
public final class View {
    private final Context context;
    private final Object keep;
    private final Loan loan;
    private final meron_view view; // of views that one buffer cannot show
    private final long count;
    private final long offset;
    private final Dtype dtype;
    private final boolean writable;
    private final long address;
    private final boolean reachable;
    private final ByteBuffer whole; // if one buffer can show it
    private final FloatBuffer floats; // the same, of F32
    private volatile ByteBuffer lent; // the same as users have it: all of their buffers refer to it

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
        if (reachable && bytesIn(count) > Integer.MAX_VALUE) {
            this.view = view;
            whole = null;
            final meron_view held = view;
            Handle.CLEANER.register(this, held::delete);
        } else {
            this.view = null;
            whole = reachable ? view.memory(0, bytesIn(count)) : null;
            view.delete();
        }
        floats = whole != null && dtype == Dtype.F32 ? whole.asFloatBuffer() : null;
    }

    View(Context context, Object keep, Loan loan, meron_view view) {
        this(context, keep, loan, view, true);
    }

    /** Number of elements. */
    public long count() {
        return count;
    }

    /** Index of the first element in the full tensor, row-major. */
    public long offset() {
        return offset;
    }

    /** Type of the elements. */
    public Dtype dtype() {
        return dtype;
    }

    /** True if it may be written. */
    public boolean writable() {
        return writable;
    }

    /**
     * Address of the first element, for native code; in the device's memory if the view is there. Valid
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
        if (lent == null) lent = lend(0, (int) bytesIn(count));
        return lent.duplicate().order(lent.order());
    }

    /** Some bytes in native order. Throws ARGUMENT beyond the view's end. */
    public ByteBuffer bytes(long first, int length) {
        require();
        if (first < 0 || length < 0 || first > bytesIn(count) - length) {
            throw new MeronException(Status.ARGUMENT, "bytes " + first + " to " + (first + length)
                    + " are not in the view, which has " + bytesIn(count));
        }
        if (whole == null) return lend(first, length);
        final ByteBuffer part = bytes();
        part.position((int) first).limit((int) first + length);
        return part.slice().order(part.order());
    }

    /** One element. F32 only. */
    public float get(long index) {
        require(Dtype.F32);
        if (index < 0 || index >= count) throw outside(index, 1);
        try {
            return floats != null ? floats.get((int) index) : part(index, 1).get(0);
        } finally {
            Reference.reachabilityFence(keep);
        }
    }

    /**
     * Copies all elements. F32 only. Throws ARGUMENT if the array has another number of elements: for some
     * of them use the other one.
     */
    public void get(float[] to) {
        requireAll(Arguments.required(to, "to").length, "to", "get(first, to, at, length)");
        get(0, to, 0, to.length);
    }

    /** Copies elements from `first` on to `length` places of an array from `at` on. F32 only. */
    public void get(long first, float[] to, int at, int length) {
        Arguments.required(to, "to");
        requireSpan(first, length);
        try {
            span(first, length).get(to, at, length);
        } finally {
            Reference.reachabilityFence(keep);
        }
    }

    /** Sets one element. F32 only; throws STATE if the view is read-only. */
    public void put(long index, float value) {
        requireWritable();
        if (index < 0 || index >= count) throw outside(index, 1);
        loan.write(() -> {
            require(Dtype.F32);
            if (floats != null) floats.put((int) index, value);
            else part(index, 1).put(0, value);
        });
        Reference.reachabilityFence(keep);
    }

    /**
     * Sets all elements. F32 only. Throws ARGUMENT if the array has another number of elements, which for
     * a gradient would leave the last one's in the rest: for some of them use the other one.
     */
    public void put(float[] from) {
        requireAll(Arguments.required(from, "from").length, "from", "put(first, from, at, length)");
        put(0, from, 0, from.length);
    }

    /** Sets elements from `first` on by `length` of an array from `at` on. F32 only. */
    public void put(long first, float[] from, int at, int length) {
        Arguments.required(from, "from");
        requireWritable();
        loan.write(() -> {
            requireSpan(first, length);
            span(first, length).put(from, at, length);
        });
        Reference.reachabilityFence(keep);
    }

    /** Floats to copy from or to. */
    private FloatBuffer span(long first, int length) {
        if (floats == null) return part(first, length);
        final FloatBuffer out = floats.duplicate();
        out.position((int) first);
        return out;
    }

    /** Floats of a view that one buffer cannot show. */
    private FloatBuffer part(long first, int length) {
        return view.memory(bytesIn(first), bytesIn(length)).asFloatBuffer();
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

    private void requireSpan(long first, int length) {
        require(Dtype.F32);
        if (first < 0 || length < 0 || first > count - length) throw outside(first, length);
    }

    private void requireAll(int length, String name, String instead) {
        require(Dtype.F32);
        if (length != count) {
            throw new MeronException(Status.ARGUMENT, name + " has " + length
                    + " elements, and the view has " + count + ": for some of them use " + instead);
        }
    }

    private void requireWritable() {
        requireCurrent();
        if (!writable) {
            throw new MeronException(Status.STATE,
                    "the view is read-only: other ranks read the same memory. Write through an update");
        }
    }

    private MeronException outside(long first, long length) {
        return new MeronException(Status.ARGUMENT,
                "elements " + first + " to " + (first + length) + " are not in the view, which has "
                        + count);
    }

    private MeronException wrong(String instead) {
        return new MeronException(
                Status.ARGUMENT, "the view's elements are " + dtype + ": use " + instead);
    }

    /**
     * Keeps `keep` reachable as long as a buffer, or one made from it, is: all of those refer to the
     * first one, and the Cleaner's list refers to what it is to run.
     */
    private ByteBuffer lend(long first, int length) {
        final Lifetime lifetime = context == null ? null : context.lifetime();
        ByteBuffer memory = loan.lend(lifetime, address + first, length);
        if (memory == null) memory = whole == null ? view.memory(first, length) : whole;
        final Object kept = keep;
        Handle.CLEANER.register(memory, () -> Reference.reachabilityFence(kept));
        return (writable ? memory : memory.asReadOnlyBuffer()).order(ByteOrder.nativeOrder());
    }
}
