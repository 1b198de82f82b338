// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.meron.abi.Abi;
import org.meron.abi.checkpoint_tensors;
import org.meron.abi.meron_checkpoint_info;

/**
 * A checkpoint, or a model as Hugging Face publishes it, that was opened, or loaded by Context.load.
 * Closing it closes its files; what was loaded stays. Any thread may use it.
 */
public final class Checkpoint extends CheckpointMethods {
    Checkpoint(long handle) {
        super(new Release(handle, Abi::meron_checkpoint_release));
    }

    /** Opens the newest complete checkpoint of a folder. See the other one. */
    public static Checkpoint open(Path folder) {
        return open(folder, null);
    }

    /**
     * Opens a checkpoint to look at it and to read tensors, without a context. Blocks on the drive.
     * Throws NOT_FOUND, CORRUPT, PARSE, VERSION (of a newer one), ARGUMENT, AUTH (a link), IO.
     *
     * @param folder of checkpoints, or one of them; or a model as Hugging Face publishes it, a directory
     *               or one file
     * @param name   null for the newest complete one
     */
    public static Checkpoint open(Path folder, String name) {
        return new Checkpoint(Abi.meron_checkpoint_open(
                Arguments.required(folder, "folder").toString(), name));
    }

    /**
     * The complete checkpoints in a folder, newest first: the text of a JSON array of objects with
     * "name", "step", "world" (ranks that saved it), "bytes" (of its files), "created" and "whole"
     * (false if params, states or units were left out). Blocks on the drive. Throws NOT_FOUND (no such
     * folder), IO.
     */
    public static String list(Path folder) {
        return Abi.meron_checkpoint_list(Arguments.required(folder, "folder").toString());
    }

    /**
     * Removes a checkpoint, complete or not, with all that is in its directory. It loses its name first:
     * if the process is killed, it is there as before or gone. Any one process may call it. Blocks on
     * the drive. Throws ARGUMENT (it is no checkpoint, and stays), NOT_FOUND, AUTH (a link), STATE (a
     * save of that name is pending, or a process has it open), IO.
     */
    public static void remove(Path folder, String name) {
        Abi.meron_checkpoint_remove(Arguments.required(folder, "folder").toString(),
                Arguments.required(name, "name"));
    }

    /**
     * Writes tensors as a checkpoint of one rank, without a context. Buffers are read once and in order.
     * Blocks on the drive. Throws ARGUMENT, DUPLICATE (the name is taken), STATE, NO_SPACE, IO.
     */
    public static void write(
            Path folder, String name, WriteOptions options, CheckpointTensor... tensors) {
        Arguments.required(folder, "folder");
        Arguments.required(name, "name");
        Arguments.required(options, "options");
        Arguments.all(tensors, "tensors");
        final checkpoint_tensors table = CheckpointTensor.table(tensors);
        try {
            Abi.meron_checkpoint_write(folder.toString(), name, options.overwrite ? 1 : 0,
                    options.step, options.extra, options.optimizers, table);
        } finally {
            table.delete();
            java.lang.ref.Reference.reachabilityFence(tensors);
        }
    }

    /** As it was given to the save. This and what follows stay after the context was closed. */
    public long step() {
        return info(meron_checkpoint_info::getStep);
    }

    /** The ranks that saved it. */
    public int world() {
        return (int) info(meron_checkpoint_info::getWorld);
    }

    /** Of its files. */
    public long bytes() {
        return info(meron_checkpoint_info::getBytes);
    }

    /** Number of tensors. */
    public long tensors() {
        return info(meron_checkpoint_info::getTensors);
    }

    /** Bytes of its files that this rank has read until now. */
    public long bytesRead() {
        return info(meron_checkpoint_info::getBytes_read);
    }

    /** Of its directory, or of its one file. */
    public Path path() {
        return Path.of(text(Abi.MERON_CHECKPOINT_TEXT_PATH));
    }

    /** The program's own state, as it was given to the save: the text of a JSON object. */
    public String extra() {
        return text(Abi.MERON_CHECKPOINT_TEXT_EXTRA);
    }

    /** The states that it lacks, and that stayed as they were when it was loaded. */
    public List<String> missing() {
        return text(Abi.MERON_CHECKPOINT_TEXT_MISSING).lines().collect(Collectors.toList());
    }

    /** Its tensors that no unit has. */
    public List<String> unexpected() {
        return text(Abi.MERON_CHECKPOINT_TEXT_UNEXPECTED).lines().collect(Collectors.toList());
    }

    /** All of its manifest, the text of a JSON object: docs/checkpoint-format.md. */
    public String manifest() {
        return text(Abi.MERON_CHECKPOINT_TEXT_MANIFEST);
    }

    /**
     * Reads elements of a tensor as the files have them, after their checksums were compared, into a
     * direct buffer in native order, from its position to its limit. Local: no other rank takes part.
     * Blocks on the drive. Throws NOT_FOUND (no such tensor, a file is gone), ARGUMENT (outside of the
     * tensor, a buffer of another size), CORRUPT, IO.
     *
     * @param kind  "values", "exp_avg", "extra", ...: docs/checkpoint-format.md
     * @param begin the first element, row-major
     * @param count how many, which the buffer has room for exactly
     */
    public void read(String kind, String name, long begin, long count, Buffer into) {
        Arguments.required(kind, "kind");
        Arguments.required(name, "name");
        Buffers.nativeOrder(into, "into");
        Buffers.writable(into, "into");
        try {
            call(handle -> Abi.meron_checkpoint_read(into, handle, kind, name, begin, count));
        } finally {
            java.lang.ref.Reference.reachabilityFence(into);
        }
    }

    @Override
    public String toString() {
        return closed() ? "Checkpoint[closed]" : "Checkpoint[" + path() + ", step " + step() + "]";
    }

    private String text(int kind) {
        return call(handle -> Abi.meron_checkpoint_text(handle, kind));
    }

    private long info(Function<meron_checkpoint_info, ? extends Number> field) {
        final meron_checkpoint_info info = call(handle -> Abi.meron_checkpoint_get_info(handle));
        try {
            return field.apply(info).longValue();
        } finally {
            info.delete();
        }
    }
}
