// SPDX-License-Identifier: Apache-2.0
package org.meron.abi;

import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.security.CodeSource;
import java.util.ArrayList;
import java.util.List;

/**
 * Finds and loads the two libraries: libmeron_java.so, which SWIG made, and with its help libmeron.so.
 *
 * <p>libmeron_java.so is looked for in the system property {@code meron.jni} (a file or a folder),
 * beside the jar, and in {@code java.library.path}. libmeron.so is looked for in the system property
 * {@code meron.library}, else in the environment variable {@code MERON_LIBRARY} (a file or a folder;
 * whoever names one wants that one and no other), then beside libmeron_java.so and in the folder above
 * (where both are installed), in the build tree of a checkout, and by the system's loader.
 *
 * <p>Runs inside AbiJNI's static initializer, so it uses AbiJNI alone: a thread that initializes
 * another generated class at the same time waits for this one.
 */
final class Loader {
    private static final String JNI = "libmeron_java.so";
    private static final String LIBRARY = "libmeron.so";
    /** From where CMake puts the jar in a build tree to where it puts the library. */
    private static final String BUILD_TREE = "../../../capi";

    private final List<String> tried = new ArrayList<>();

    private Loader() {}

    /** Loads both. Throws an UnsatisfiedLinkError that lists all places that were tried, and why not. */
    static void load() {
        final Loader loader = new Loader();
        final Path beside = loader.loadJni();
        loader.loadLibrary(beside);
    }

    /** The folder that libmeron_java.so came from; null when java.library.path had it. */
    private Path loadJni() {
        final String chosen = System.getProperty("meron.jni");
        if (chosen != null) {
            final Path file = in(chosen, JNI);
            if (tryJni(file, "system property meron.jni")) return file.toAbsolutePath().getParent();
        } else {
            final Path jar = folderOfJar();
            if (jar != null && tryJni(jar.resolve(JNI), "beside the jar")) return jar;
            try {
                System.loadLibrary("meron_java");
                return null;
            } catch (UnsatisfiedLinkError error) {
                tried.add("  " + JNI + " (java.library.path): " + error.getMessage());
            }
        }
        throw failure(JNI, "Set the system property meron.jni to the path of " + JNI
                + ", which is built with the library when swig and a JDK are there");
    }

    private boolean tryJni(Path file, String why) {
        if (!Files.exists(file)) {
            tried.add("  " + file + " (" + why + "): no such file");
            return false;
        }
        try {
            System.load(file.toAbsolutePath().toString());
            return true;
        } catch (UnsatisfiedLinkError error) {
            tried.add("  " + file + " (" + why + "): " + error.getMessage());
            return false;
        }
    }

    private void loadLibrary(Path beside) {
        tried.clear();
        final String property = System.getProperty("meron.library");
        final String variable = System.getenv("MERON_LIBRARY");
        if (property != null && !property.isEmpty()) {
            if (tryLibrary(in(property, LIBRARY).toString(), "system property meron.library")) return;
        } else if (variable != null && !variable.isEmpty()) {
            if (tryLibrary(in(variable, LIBRARY).toString(), "MERON_LIBRARY")) return;
        } else {
            if (beside != null) {
                if (tryLibrary(beside.resolve(LIBRARY).toString(), "beside " + JNI)) return;
                final Path above = beside.resolve("..").resolve(LIBRARY).normalize();
                if (tryLibrary(above.toString(), "installed")) return;
                final Path built = beside.resolve(BUILD_TREE).resolve(LIBRARY).normalize();
                if (tryLibrary(built.toString(), "the build tree")) return;
            }
            final int major = AbiJNI.MERON_VERSION_MAJOR_get();
            final String soname =
                    LIBRARY + "." + (major == 0 ? "0." + AbiJNI.MERON_VERSION_MINOR_get() : "" + major);
            if (tryLibrary(soname, "the system's loader")) return;
            if (tryLibrary(LIBRARY, "the system's loader")) return;
        }
        throw failure(LIBRARY, "Set the environment variable MERON_LIBRARY, or the system property "
                + "meron.library, to the path of " + LIBRARY);
    }

    private boolean tryLibrary(String path, String why) {
        if (path.contains("/") && !Files.exists(Path.of(path))) {
            tried.add("  " + path + " (" + why + "): no such file");
            return false;
        }
        if (AbiJNI.load_library(Text.encode(path))) return true;
        tried.add("  " + path + " (" + why + "): "
                + Text.decode(AbiJNI.library_problem()));
        return false;
    }

    private UnsatisfiedLinkError failure(String what, String advice) {
        return new UnsatisfiedLinkError(
                "cannot load " + what + ". Tried:\n" + String.join("\n", tried) + "\n" + advice);
    }

    /** A file as it is named, or the one of that name in a folder. */
    private static Path in(String chosen, String name) {
        try {
            final Path path = Path.of(chosen);
            return Files.isDirectory(path) ? path.resolve(name) : path;
        } catch (InvalidPathException error) {
            throw new UnsatisfiedLinkError(chosen + " is no path: " + error.getMessage());
        }
    }

    private static Path folderOfJar() {
        final CodeSource source = Loader.class.getProtectionDomain().getCodeSource();
        if (source == null || !"file".equals(source.getLocation().getProtocol())) return null;
        try {
            return Path.of(source.getLocation().toURI()).getParent();
        } catch (java.net.URISyntaxException error) {
            return null;
        }
    }
}
