// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.util.ArrayDeque;
import java.util.Iterator;
import org.meron.abi.Abi;

/** The library's side of a context, and what must live as long as that does. */
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

    Lifetime(long context, Hooks hooks, Wire wire) {
        super(context, Abi::meron_context_close);
        this.hooks = hooks;
        this.wire = wire;
    }

    @Override
    void end(long last) {
        try {
            super.end(last);
        } finally {
            hooks.delete();
            if (wire != null) wire.delete();
            synchronized (abandoned) {
                abandoned.clear();
            }
        }
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
