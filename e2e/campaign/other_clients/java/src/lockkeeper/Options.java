package lockkeeper;

import java.util.HashMap;
import java.util.Map;

/** Command line of the form {@code --name value …}; every option must be known and given at most once. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
        for (int i = 0; i < arguments.length; i += 2) {
            if (!arguments[i].startsWith("--") || i + 1 == arguments.length) {
                throw new IllegalArgumentException(
                        "expected \"--name value\" at argument " + (i + 1) + ", found \"" + arguments[i] + "\"");
            }
            if (values.put(arguments[i].substring(2), arguments[i + 1]) != null) {
                throw new IllegalArgumentException(arguments[i] + " is given twice");
            }
        }
    }

    String text(String name) {
        String value = values.remove(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    long number(String name) {
        String value = text(name);
        try {
            return Long.parseLong(value);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException("--" + name + " must be a whole number, not \"" + value + "\"");
        }
    }

    /** To be called last: what nobody has asked for is a typing error. */
    void end() {
        if (!values.isEmpty()) {
            throw new IllegalArgumentException("unknown option --" + values.keySet().iterator().next());
        }
    }
}
