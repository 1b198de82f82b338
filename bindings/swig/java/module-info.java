// SPDX-License-Identifier: Apache-2.0
/** ZeRO for programs in Java: Meron's layer over libmeron.so. */
module org.meron {
    exports org.meron;
}
