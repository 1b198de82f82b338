// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** cases.txt, parsed. */
final class Table {
    /** The file, or the runner, is wrong: not the library. */
    static final class Malformed extends RuntimeException {
        private static final long serialVersionUID = 1;

        Malformed(String message) {
            super(message);
        }
    }

    /** One operation: its name, the object it is about ("" for none), its arguments in order. */
    static final class Statement {
        final int line;
        final String operation;
        final String name;
        final List<String[]> arguments = new ArrayList<>();

        Statement(int line, List<String> tokens) {
            this.line = line;
            operation = tokens.get(0);
            String object = "";
            for (String token : tokens.subList(1, tokens.size())) {
                final int equals = token.indexOf('=');
                if (equals >= 0) {
                    arguments.add(
                            new String[] {token.substring(0, equals), token.substring(equals + 1)});
                } else if (object.isEmpty()) {
                    object = token;
                } else {
                    throw new Malformed("line " + line + ": a second name, " + token);
                }
            }
            name = object;
        }

        /** The first argument of this name, or null. */
        String get(String key) {
            for (String[] argument : arguments) {
                if (argument[0].equals(key)) return argument[1];
            }
            return null;
        }

        String get(String key, String otherwise) {
            final String found = get(key);
            return found == null ? otherwise : found;
        }

        String wanted(String key) {
            final String found = get(key);
            if (found == null) throw new Malformed(operation + " lacks " + key + "=");
            return found;
        }

        double number(String key, double otherwise) {
            final String found = get(key);
            return found == null ? otherwise : decimal(found);
        }

        /** The argument's parts; none where it is missing. */
        List<String> list(String key) {
            final String found = get(key);
            return found == null || found.isEmpty() ? List.of() : Arrays.asList(found.split(","));
        }
    }

    static final class Case {
        final String name;
        List<String> ranks = List.of("1", "2", "3");
        List<String> plans = List.of("zero3");
        List<String> transports = List.of("self", "local", "shm", "custom");
        List<String> needs = List.of();
        final List<Statement> statements = new ArrayList<>();

        Case(String name) {
            this.name = name;
        }
    }

    private Table() {}

    /** A decimal number, nan, inf or -inf. */
    static double decimal(String text) {
        if (text.equals("nan")) return Double.NaN;
        if (text.equals("inf")) return Double.POSITIVE_INFINITY;
        if (text.equals("-inf")) return Double.NEGATIVE_INFINITY;
        return Double.parseDouble(text);
    }

    static List<Case> read(Path path) throws IOException {
        final List<Case> cases = new ArrayList<>();
        int line = 0;
        for (String text : Files.readAllLines(path)) {
            ++line;
            final List<String> tokens = new ArrayList<>();
            for (String token : text.trim().split("\\s+")) {
                if (token.startsWith("#")) break;
                if (!token.isEmpty()) tokens.add(token);
            }
            if (!tokens.isEmpty()) take(cases, line, tokens);
        }
        return cases;
    }

    private static void take(List<Case> cases, int line, List<String> tokens) {
        final String word = tokens.get(0);
        final List<String> rest = tokens.subList(1, tokens.size());
        if (word.equals("case")) {
            cases.add(new Case(rest.get(0)));
            return;
        }
        if (cases.isEmpty()) throw new Malformed("line " + line + ": no case yet");
        final Case current = cases.get(cases.size() - 1);
        switch (word) {
            case "ranks": current.ranks = rest; break;
            case "plans": current.plans = rest; break;
            case "transports": current.transports = rest; break;
            case "needs": current.needs = rest; break;
            default: current.statements.add(new Statement(line, tokens)); break;
        }
    }
}
