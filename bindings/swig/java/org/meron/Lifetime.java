// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Reference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.meron.abi.Abi;

/** The library's side of a context, and the objects that must live as long as it does. */
final class Lifetime extends Handle.Release {
    /** An abandoned operation, and the memory that it still uses. */
    private static final class Abandoned {
        final long future;
        final Object memory;

        Abandoned(long future, Object memory) {
            this.future = future;
            this.memory = memory;
        }
    }

    private final Hooks hooks;
    private final Wire wire; // null for a transport of the library's
    private final ArrayDeque<Abandoned> abandoned = new ArrayDeque<>();
    private final Set<Operation.Ending> operations = ConcurrentHashMap.newKeySet();
    /** Loans with buffers that end with them. */
    private final Set<Loan> loans = Collections.newSetFromMap(new WeakHashMap<>());

    Lifetime(long context, Hooks hooks, Wire wire) {
        super(context, Abi::meron_context_close);
        this.hooks = hooks;
        this.wire = wire;
    }

    /** An operation that the context's close releases, if nothing has done so before. */
    void add(Operation.Ending operation) {
        operations.add(operation);
    }

    void remove(Operation.Ending operation) {
        operations.remove(operation);
    }

    /** A loan that ends with the context. Throws CLOSED if the context was closed. */
    void add(Loan loan) {
        synchronized (loans) {
            if (get() == 0) throw Context.wasClosed();
            loans.add(loan);
        }
    }

    @Override
    void end(long last) {
        endLoans();
        final List<Operation.Ending> begun = new ArrayList<>(operations);
        for (Operation.Ending operation : begun) operation.endWithContext();
        try {
            super.end(last);
        } finally {
            operations.clear();
            hooks.delete();
            if (wire != null) wire.delete();
            synchronized (abandoned) {
                abandoned.clear();
            }
            Reference.reachabilityFence(begun); // their memory was in use until the close
        }
    }

    private void endLoans() {
        final List<Loan> last;
        synchronized (loans) {
            last = new ArrayList<>(loans);
            loans.clear();
        }
        for (Loan loan : last) loan.end("the context was closed: read its tensors before");
    }

    /** Releases a future; keeps its memory until the operation has ended. */
    void release(long future, Object memory) {
        synchronized (abandoned) {
            abandoned.add(new Abandoned(future, memory));
        }
        sweep();
    }

    /** Releases those abandoned futures whose operations have ended. */
    void sweep() {
        synchronized (abandoned) {
            for (Iterator<Abandoned> each = abandoned.iterator(); each.hasNext(); ) {
                final long future = each.next().future;
                if (get() != 0 && !Abi.abandoned_future_ended(future)) continue;
                each.remove();
                new Handle.Release(future, Abi::meron_future_release).run();
            }
        }
    }
}
