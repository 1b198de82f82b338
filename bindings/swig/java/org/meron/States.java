// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.function.Supplier;

/**
 * The optimizers of a context, whose states a save, an export or a load uses. Its monitor is held by each
 * of these, and by writes to views of states.
 */
final class States {
    private final Set<Optimizer> optimizers = Collections.newSetFromMap(new WeakHashMap<>());

    synchronized void add(Optimizer optimizer) {
        optimizers.add(optimizer);
    }

    /** Ends the writable views of states, and runs a call that reads them. Writes wait for it. */
    synchronized <T> T read(String call, Supplier<T> body) {
        end(call, false);
        return body.get();
    }

    /** Runs a call that writes states. Ends all views of them. */
    synchronized <T> T write(String call, Supplier<T> body) {
        end(call, true);
        return body.get();
    }

    private void end(String call, boolean all) {
        final String reason = call + " has ended this view of a state: take a new one";
        for (Optimizer each : optimizers) each.endStates(reason, all);
    }
}
