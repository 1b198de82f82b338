// SPDX-License-Identifier: Apache-2.0
package languagemodel;

/** The user's input is invalid. The message names the problem and the remedy. */
final class BadInput extends Exception {
    private static final long serialVersionUID = 1;

    BadInput(String message) {
        super(message);
    }
}
