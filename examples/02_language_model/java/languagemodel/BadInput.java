// SPDX-License-Identifier: Apache-2.0
package languagemodel;

/** What the user gave is wrong; the message says what, and what to do. */
final class BadInput extends Exception {
    private static final long serialVersionUID = 1;

    BadInput(String message) {
        super(message);
    }
}
