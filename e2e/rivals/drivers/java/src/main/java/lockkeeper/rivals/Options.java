package lockkeeper.rivals;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The options that all drivers have, and the parts of a system's name:
 * {@code BASE[-checked][-keepalive][-defaults][@postgres|@mariadb]}.
 *
 * <ul>
 *   <li>{@code -checked}: the driver asks the library three times in a lease whether it still holds, for those
 *       libraries that can be asked but never tell;
 *   <li>{@code -keepalive}: the server asks a silent connection whether its client is alive, so that it notices within
 *       the lease that a machine has gone;
 *   <li>{@code -defaults}: the library's own times instead of {@code --lease-ms}.
 * </ul>
 */
final class Options {
    private static final Pattern SYSTEM = Pattern.compile(
            "(?<base>.*?)(?<checked>-checked)?(?<keepalive>-keepalive)?(?<defaults>-defaults)?(@(?<database>postgres|mariadb))?");

    private final Map<String, String> values = new HashMap<>();
    private final Matcher system;

    /** What to run while the lock is held. */
    final List<String> command = new ArrayList<>();

    /** The options of a driver. */
    Options(String[] arguments) {
        this(arguments, List.of("system", "servers", "lock", "name"));
    }

    private Options(String[] arguments, List<String> needed) {
        int i = 0;
        for (; i < arguments.length && !arguments[i].equals("--"); i += 2) {
            if (!arguments[i].startsWith("--") || i + 1 == arguments.length) {
                throw new IllegalArgumentException("expected --option VALUE, found " + arguments[i]);
            }
            values.put(arguments[i].substring(2), arguments[i + 1]);
        }
        for (i++; i < arguments.length; i++) {
            command.add(arguments[i]);
        }
        needed.forEach(this::text);
        system = SYSTEM.matcher(text("system", ""));
        system.matches();
    }

    private Options(Map<String, String> values, Matcher system) {
        this.values.putAll(values);
        this.system = system;
    }

    /** The options of a program that is no driver: none is needed. */
    static Options plain(String[] arguments) {
        return new Options(arguments, List.of());
    }

    /** The same for another contender. */
    Options named(String name) {
        Options other = new Options(values, system);
        other.values.put("name", name);
        return other;
    }

    String system() {
        return system.group("base");
    }

    boolean checked() {
        return system.group("checked") != null;
    }

    boolean keepalive() {
        return system.group("keepalive") != null;
    }

    boolean mariadb() {
        return "mariadb".equals(system.group("database"));
    }

    String servers() {
        return text("servers");
    }

    String lock() {
        return text("lock");
    }

    String name() {
        return text("name");
    }

    /** The lease in milliseconds, or the library's own where the system's name ends with {@code -defaults}. */
    long leaseMs(long libraryDefault) {
        return system.group("defaults") != null ? libraryDefault : number("lease-ms", 15_000);
    }

    String text(String option) {
        String value = values.get(option);
        if (value == null) {
            throw new IllegalArgumentException("--" + option + " is missing");
        }
        return value;
    }

    String text(String option, String otherwise) {
        return values.getOrDefault(option, otherwise);
    }

    long number(String option, long otherwise) {
        String value = values.get(option);
        return value == null ? otherwise : Long.parseLong(value);
    }
}
