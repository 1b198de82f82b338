// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The training text: some files, one after the other. */
final class Text {
    /** Debian's folder of common licences, the default text. */
    static final String DEFAULT_FOLDER = "/usr/share/common-licenses";

    private Text() {}

    /** Reads some files, or those of the default folder when none is named. */
    static byte[] load(List<String> files) throws BadInput {
        final ByteArrayOutputStream text = new ByteArrayOutputStream();
        for (String file : files) {
            final byte[] bytes = read(file);
            if (bytes.length == 0) throw new BadInput(file + " is empty");
            text.writeBytes(bytes);
        }
        if (files.isEmpty()) appendDefaultFolder(text);
        if (text.size() == 0) throw new BadInput("this machine has no texts in " + DEFAULT_FOLDER);
        return text.toByteArray();
    }

    /** A file's bytes. */
    static byte[] read(String file) throws BadInput {
        try {
            return Files.readAllBytes(Path.of(file));
        } catch (NoSuchFileException error) {
            throw new BadInput("cannot read " + file + ": No such file or directory");
        } catch (IOException | RuntimeException error) {
            throw new BadInput("cannot read " + file + ": " + error.getMessage());
        }
    }

    /** Regular files in the order of their names; one with a second name by a link counts once. */
    private static void appendDefaultFolder(ByteArrayOutputStream text) {
        final List<Path> files = new ArrayList<>();
        try (DirectoryStream<Path> found = Files.newDirectoryStream(Path.of(DEFAULT_FOLDER))) {
            for (Path file : found) {
                if (!file.getFileName().toString().startsWith(".")) files.add(file);
            }
        } catch (IOException error) {
            return; // the caller says that there is no text
        }
        Collections.sort(files);
        final Set<Object> seen = new HashSet<>();
        for (Path file : files) {
            try {
                final BasicFileAttributes info =
                        Files.readAttributes(file, BasicFileAttributes.class);
                if (info.isRegularFile() && seen.add(info.fileKey())) {
                    text.writeBytes(Files.readAllBytes(file));
                }
            } catch (IOException unreadable) {
                continue; // as if it were not there
            }
        }
    }
}
