// SPDX-License-Identifier: Apache-2.0
package org.meron.abi;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import org.meron.MeronException;
import org.meron.Status;

/** Strings as the library takes them: UTF-8, NUL-terminated. */
final class Text {
    private Text() {}

    /** The bytes of a string and a NUL. Refuses what C's strings cannot hold; null is null. */
    static byte[] encode(String text) {
        if (text == null) return null;
        final int nul = text.indexOf('\0');
        if (nul >= 0) {
            throw new MeronException(Status.ARGUMENT, "a text holds a NUL character at index " + nul);
        }
        final ByteBuffer bytes;
        try {
            bytes = StandardCharsets.UTF_8.newEncoder()
                    .onMalformedInput(CodingErrorAction.REPORT)
                    .encode(CharBuffer.wrap(text));
        } catch (CharacterCodingException error) {
            throw new MeronException(
                    Status.ARGUMENT, "a text is no valid Unicode: it holds half of a surrogate pair");
        }
        final byte[] out = new byte[bytes.remaining() + 1];
        bytes.get(out, 0, out.length - 1);
        return out;
    }

    /** The string of the library's bytes, without a NUL; null is null. */
    static String decode(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
