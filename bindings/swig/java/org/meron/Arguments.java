// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Checks arguments. An error names the parameter. */
final class Arguments {
    private Arguments() {}

    /** The value. Throws NullPointerException for null. */
    static <T> T required(T value, String name) {
        if (value == null) throw new NullPointerException(name + " must not be null");
        return value;
    }

    /** The array. Throws NullPointerException for null, and for an element that is null. */
    static <T> T[] all(T[] values, String name) {
        required(values, name);
        for (int i = 0; i < values.length; ++i) {
            if (values[i] == null) {
                throw new NullPointerException(name + "[" + i + "] must not be null");
            }
        }
        return values;
    }
}
