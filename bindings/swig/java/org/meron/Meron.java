// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;

/** The library itself. */
public final class Meron {
    private Meron() {}

    /** The library's version, for example "0.2.0". */
    public static String version() {
        return Abi.meron_version_string();
    }

    /** Describes this host and this build, as JSON. */
    public static String systemInfo() {
        return Abi.meron_system_info();
    }
}
