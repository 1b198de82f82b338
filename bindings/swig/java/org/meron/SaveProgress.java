// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.meron_checkpoint_progress;

/** How far a save is, in bytes of this rank. */
public final class SaveProgress {
    /** Whether it is under way. */
    public final boolean saving;
    /** To be written; 0: not known yet, or no save. */
    public final long total;
    /** Of them, copied out of the units. */
    public final long copied;
    /** Of them, in files. */
    public final long written;

    SaveProgress(meron_checkpoint_progress raw) {
        saving = raw.getSaving() != 0;
        total = raw.getTotal();
        copied = raw.getCopied();
        written = raw.getWritten();
        raw.delete();
    }
}
