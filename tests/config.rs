//! The configurations that ship, and what a broken one is told.

use tidegate::config::{Config, Mode};

#[path = "config/documented.rs"]
mod documented;

const SHIPPED: &str = include_str!("../config/tidegate.toml");
const MINIMAL: &str = include_str!("../config/minimal.toml");

fn described(config: &Config) -> String {
    let Config { gateway, clock, broker, upstream, store, status, log, .. } = config;
    format!(
        "{gateway:?} {clock:?} {broker:?} {upstream:?} {store:?} {status:?} {log:?} {:?}",
        config.settings(Mode::Run)
    )
}

#[test]
fn what_ships_is_without_mistakes() {
    for toml in [SHIPPED, MINIMAL] {
        let config = Config::from_toml(toml).unwrap_or_else(|errors| panic!("{errors}"));
        config.check(Mode::Run).unwrap_or_else(|errors| panic!("{errors}"));
    }
}

#[test]
fn the_defaults_that_the_shipped_file_states_are_the_defaults() {
    let is_default = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let stated: Vec<&str> = SHIPPED.lines().filter(|line| is_default(line)).collect();
    assert!(stated.len() > 20, "only {} defaults are stated", stated.len());
    let uncomment = |line: &'static str| if is_default(line) { &line[1..] } else { line };
    let spelled_out: String =
        SHIPPED.lines().map(uncomment).flat_map(|line| [line, "\n"]).collect();
    let of = |toml: &str| Config::from_toml(toml).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(described(&of(&spelled_out)), described(&of(SHIPPED)));
}

#[test]
fn the_examples_that_the_shipped_file_has_as_comments_are_without_mistakes() {
    let mut examples = 0;
    let mut inside = false;
    let mut written_out = String::new();
    for line in SHIPPED.lines() {
        let begins = line.starts_with("# [[");
        examples += usize::from(begins);
        inside = begins || inside && line.starts_with("# ");
        written_out += if inside { &line[2..] } else { line };
        written_out += "\n";
    }
    assert_eq!(examples, 5, "a status, local time with a status, an uptime, devices");
    let config = Config::from_toml(&written_out).unwrap_or_else(|errors| panic!("{errors}"));
    config.check(Mode::Run).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(warnings_of(&written_out), warnings_of(SHIPPED));
}

/// Configurations (or a variable of the environment, after `$`), each with what is told of it, after `>`: place, value
/// and remedy. What ends with `: …` is told in the words of the TOML parser.
const MISTAKES: &str = include_str!("config/mistakes.txt");

#[test]
fn a_mistake_is_told_with_its_line_and_what_would_be_right() {
    let cases: Vec<&str> = MISTAKES.trim_end().split("\n\n").collect();
    assert!(cases.len() > 100, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let (expected, written): (Vec<_>, Vec<_>) =
            case.lines().partition(|line| line.starts_with("> "));
        let errors = match written[0].strip_prefix("$ ").and_then(|set| set.split_once('=')) {
            Some((name, value)) => mistakes_with(name, value),
            None => mistakes_of(&written.join("\n")),
        };
        let told: Vec<_> = errors.lines().collect();
        if told.len() != expected.len() {
            wrong.push(format!("{case}\n  gave {errors}"));
        }
        for (told, expected) in told.iter().zip(expected) {
            let told = told.trim_start_matches("configuration:");
            let told = told.trim_start_matches("environment variable ");
            let expected = &expected[2..];
            let alike = match expected.strip_suffix('…') {
                Some(beginning) => told.len() > beginning.len() && told.starts_with(beginning),
                None => told == expected,
            };
            if !alike {
                wrong.push(format!("{case}\n  gave {told}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A configuration that deserves a warning, where it is told, and what it says.
const UNWISE: &[(&str, &str, &str)] = &[
    ("gateway.id = \"localhost\"", ":1:9: gateway.id", "cannot be told apart"),
    ("gateway.id = \"raspberrypi\"", ":1:9: gateway.id", "every machine of the same image"),
    ("gateway.id = \"a\"", ": clock.servers", "three or more"),
    ("clock.servers = [\"a\"]", ":1:7: clock.servers", "right or wrong"),
    ("clock.servers = [\"a\", \"b\"]", ":1:7: clock.servers", "nobody is believed"),
    (
        "[defaults]\nidle-timeout = \"5m\"\ninterval = \"1m\"\noffline-after = \"90s\"",
        ":4:1: defaults.offline-after",
        "one lost report is an offline device",
    ),
    ("[broker]\nversion = \"3.1.1\"", ":1:2: broker.in-flight", "max_inflight_messages"),
    ("[upstream]\nhost = \"a\"\nuser = \"u\"", ":3:1: upstream.user", "in the clear"),
    (
        "[upstream]\nca-file = \"/dev/null\"",
        ":2:1: upstream.ca-file",
        "holds no certificate in PEM; mend the file",
    ),
    (
        "[broker]\nuser = \"u\"\npassword-file = \"credential:broker\"",
        ":3:1: broker.password-file",
        "cannot be looked at from here",
    ),
    ("", ": upstream.host", "right only where it forwards them"),
    ("[defaults]\nlateness = \"0s\"", ":2:1: defaults.lateness", "P99 of the measured delay"),
    ("[[region]]\nname = \"n\"\nlateness = \"0s\"", ":3:1: region[0].lateness", "is late"),
    ("[defaults]\nidle-timeout = \"10m\"", ":2:1: defaults.idle-timeout", "1 to 5 minutes"),
    ("[[devices]]\npattern = \"a\"\nidle-timeout = \"59s\"", ":3:1: devices[0].idle", "1 to 5"),
    ("[defaults]\nallowed-lateness = \"0s\"", ":2:1: defaults.allowed", "side output"),
    ("[defaults]\nallowed-lateness = \"31d\"", ":2:1: defaults.allowed", "past-limit (30d)"),
    ("[defaults]\npast-limit = \"1h\"", ":2:1: defaults.past-limit", "allowed-lateness (2h)"),
    ("[defaults]\ninterval = \"5m\"", ":2:1: defaults.interval", "between any two messages"),
    (
        "[[region]]\nname = \"a\"\n[[region]]\nname = \"b\"\n",
        ":1:1: region[0].lateness",
        "measure each for 24 h",
    ),
    ("[[window]]\nname = \"w\"\nsize = \"1h\"", ":2:1: window[0].name", "no source names"),
    (
        "[defaults]\nlateness = \"61m\"\nmax-hold = \"2h\"",
        ":2:1: defaults.lateness",
        "lags by more than ten minutes is critical",
    ),
    ("[broker]\nin-flight = 99", ":2:1: broker.in-flight", "every 49 messages"),
    ("[broker]\nkeep-alive = \"301s\"", ":2:1: broker.keep-alive", "a dead link"),
    ("[upstream]\nkeep-alive = \"1h\"", ":2:1: upstream.keep-alive", "a dead link"),
    ("[broker]\nsession-expiry = \"23h\"", ":2:1: broker.session-expiry", "is lost"),
    (
        "[broker]\nsession-expiry = \"31d\"",
        ":2:1: broker.session-expiry",
        "past-limit (30d): what the broker kept",
    ),
    ("[store]\npath = \"/tmp/tidegate\"", ":2:1: store.path", "emptied when the machine restarts"),
    ("store.path = \"/run/tidegate\"", ":1:7: store.path", "/var/lib/tidegate"),
    (
        "[store]\ncommit-interval = \"999ms\"",
        ":2:1: store.commit-interval",
        "which wears flash; events",
    ),
    ("[watermarks]\npublish-interval = \"301s\"", ":2:1: watermarks.publish-interval", "critical"),
    ("[[source]]\nname = \"a\"\ntopic = \"a/{device}\"", ":1:1: source[0].time", "billing"),
    ("[[source]]\nname = \"a\"\ntopic = \"a/{device}\"", ":1:1: source[0].metric", "no metric"),
    (
        "[[source]]\nname = \"a\"\ntopic = \"a/{device}\"\n[[source]]\nname = \"b\"\n\
         topic = \"a/{device}\"",
        ":6:1: source[1].topic",
        "never read",
    ),
    (
        "defaults.allowed-lateness = \"29d\"\nlimits.max-open-windows = 100\n\
         [[source]]\nname = \"a\"\ntopic = \"a/{device}\"\nwindow = \"hour\"",
        ":6:1: source[0].window",
        "limits.max-open-windows is 100",
    ),
];

#[test]
fn what_practice_advises_against_is_told_once_and_not_of_what_ships() {
    let shipped = [SHIPPED, MINIMAL].map(warnings_of);
    assert_eq!(shipped, [Vec::<String>::new(), Vec::new()], "what ships deserves none");
    let mut wrong = Vec::new();
    for (toml, place, says) in UNWISE {
        let all = warnings_of(toml);
        let of_it = |told: &&String| told.contains(says);
        let found: Vec<_> = all.iter().filter(of_it).collect();
        let there = |told: &String| told.starts_with(&format!("configuration{place}"));
        if found.len() != 1 || !there(found[0]) {
            wrong.push(format!("{toml}\n  gave {all:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_is_just_within_practice_deserves_no_warning() {
    let toml = "[defaults]\nlateness = \"60m\"\nmax-hold = \"2h\"\n[broker]\nin-flight = 100\nkeep-alive = \"5m\"\n\
                session-expiry = \"1d\"\n[upstream]\nhost = \"a\"\n[store]\npath = \"/tmpfs/x\"\n\
                commit-interval = \"1s\"\n[watermarks]\npublish-interval = \"5m\"\n[clock]\n\
                servers = [\"a\", \"b\", \"c\"]\n[gateway]\nid = \"gw-17\"\n";
    assert_eq!(warnings_of(toml), Vec::<String>::new());
}

#[test]
fn what_decides_about_time_is_shown_as_it_was_understood() {
    let toml = format!(
        "clock = {{ servers = [\"a\", \"[::1]:1123\"], sync-timeout = \"90s\", hold-quota = \"2 MiB\" }}\n\
         store = {{ path = \"/s\", outbox-quota = \"3 MiB\" }}\n{SOURCE}lateness = \"7m\"\n\
         time = {{ from = \"/t\", as = \"local\", zone = \"europe/amsterdam\" }}\n\
         [[source]]\nname = \"b\"\ntopic = \"b/{{device}}\"\n"
    );
    let shown = |toml: &str| {
        Config::from_toml(toml).unwrap_or_else(|errors| panic!("{errors}")).understood().join("\n")
    };
    let all = shown(&toml);
    for told in [
        "clock: that of a, [::1]:1123, or the host's where none answers; until",
        "up to 2.0 MiB, after 1m 30s only",
        "store: /s, with an outbox of up to 3.0 MiB",
        "source \"a\" on a/+, time /t as local, in Europe/Amsterdam, window \"hour\", lateness 7m, corrected for 2h",
        "source \"b\" on b/+, time of arrival,",
    ] {
        assert!(all.contains(told), "{told} is not in\n{all}");
    }
    for (clock, told) in [
        ("source = \"system\"", "the host's, as the kernel judges it;"),
        ("trust-host = true", "the host's, which is trusted"),
        ("source = \"sntp\", servers = [\"a\"]", "that of a, and nobody else's;"),
    ] {
        let all = shown(&format!("clock = {{ {clock} }}"));
        assert!(all.contains(told), "{told} is not in\n{all}");
    }
}

#[test]
fn the_semantics_of_flink_are_for_replays() {
    let config = Config::from_toml("compat = \"flink\"").expect("no mistake in itself");
    let errors = config.check(Mode::Run).expect_err("not live").to_string();
    assert!(errors.contains("compat"), "{errors}");
}

/// Empty where there are none.
fn mistakes_of(toml: &str) -> String {
    Config::from_toml(toml).err().map(|errors| errors.to_string()).unwrap_or_default()
}

fn mistakes_with(name: &str, value: &str) -> String {
    let env = [(name.to_owned(), value.to_owned())];
    Config::load(&[], env).map(|_| ()).expect_err(name).to_string()
}

/// Places where somebody may write a secret, as `SECRET`.
const SECRETS: &[&str] = &[
    "[broker]\npassword = \"SECRET\"",
    "[upstream]\npasswd = \"SECRET\"",
    "[upstream]\npasword = \"SECRET\"",
    "[broker]\nPassword = 'SECRET'",
    "[broker]\nuser-password = [\"SECRET\"]",
    "[broker]\nkey = \"SECRET\"",
    "[broker]\ntls-key-passphrase = \"SECRET\"",
    "[gateway]\nclient_secret = \"SECRET\"",
    "token = \"SECRET\"",
    "password = { value = \"SECRET\" }",
    "broker.password.value = \"SECRET\"",
    "[[source]]\nname = \"a\"\napi-token = \"SECRET\"",
    "[[source]]\nname = \"a\"\nmetric = [{ name = \"x\", secret = \"SECRET\" }]",
];

#[test]
fn a_secret_is_not_shown_and_the_finding_names_the_file_for_it() {
    for toml in SECRETS {
        let told = mistakes_of(toml);
        assert!(!told.contains("SECRET"), "{toml}\n  gave {told}");
        assert!(told.contains("password-file = \""), "{toml}\n  gave {told}");
        assert!(told.contains("configuration:"), "it has a line: {told}");
    }
    for name in ["BROKER__PASSWORD", "UPSTREAM__TOKEN", "PASSWORD", "BROKER_PASSWORD"] {
        let name = format!("TIDEGATE_{name}");
        let told = mistakes_with(&name, "SECRET");
        assert!(!told.contains("SECRET"), "{name} gave {told}");
        assert!(told.contains(&name) && told.contains("password-file = \""), "{told}");
    }
}

#[test]
fn a_secret_inside_of_something_else_that_is_wrong_is_not_shown() {
    let inside = [
        "broker = [{ host = \"a\", password = \"SECRET\" }]",
        "[gateway]\nid = { password = \"SECRET\" }",
        "[[source]]\nname = \"a\"\ndevice = { pasword = \"SECRET\" }",
        "[broker]\nhost = \"mqtt://user:SECRET@example.org\"",
        "[upstream]\nhost = \"user:SECRET@example.org\"",
        "[broker]\nkey-file = \"-----BEGIN PRIVATE KEY-----\\n/SECRET/a\"",
        "[broker]\nkey-file = \"SECRET\"",
        "[broker]\npassword = SECRET",
        "[broker]\npassword = \"SECRET",
        "[broker]\npassword \"SECRET\"",
        "[broker]\npassword = \"SECRET\\q\"",
        "[broker]\npassword = \"a\" \"SECRET\"",
        "[broker]\npassword = \"SECRET\"\npassword = \"SECRET\"",
    ];
    for toml in inside {
        let told = mistakes_of(toml);
        assert!(!told.contains("SECRET"), "{toml}\n  gave {told}");
    }
    let told = mistakes_with("TIDEGATE_BROKER", "{ password = \"SECRET\" }");
    assert!(!told.contains("SECRET"), "{told}");
}

const SOURCE: &str = "[[source]]\nname = \"a\"\ntopic = \"a/{device}\"\n";
const BY_REGION: &str = "[[source]]\nname = \"a\"\ntopic = \"a/{region}/{device}\"\n";

#[test]
fn a_password_in_the_place_of_its_file_is_not_shown_and_a_path_is() {
    let config = |file: &str| {
        let toml = format!("[upstream]\nuser = \"a\"\npassword-file = \"{file}\"\n{SOURCE}");
        Config::from_toml(&toml).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let told = config("SECRET").check(Mode::Run).expect_err("no such file").to_string();
    assert!(!told.contains("SECRET") && told.contains("configuration:3:"), "{told}");
    let told = config("/nowhere/at/all").check(Mode::Run).expect_err("no such file").to_string();
    assert!(told.contains("/nowhere/at/all") && told.contains("cannot be read"), "{told}");
}

#[test]
fn durations_are_read_as_operators_write_them() {
    let read = |text: &str| {
        let toml = format!("[broker]\nsession-expiry = \"{text}\"");
        let config = Config::from_toml(&toml).unwrap_or_else(|errors| panic!("{text}: {errors}"));
        config.broker.session_expiry.as_secs()
    };
    const DAY: u64 = 86_400;
    for (text, seconds) in [
        ("1 day", DAY),
        ("7days", 7 * DAY),
        ("2 days", 2 * DAY),
        ("1d", DAY),
        ("30 d", 30 * DAY),
        ("2w", 14 * DAY),
        ("1h", 3600),
        ("2 hours", 7200),
        ("90m", 5400),
        ("5 min", 300),
        ("1 minute", 60),
        ("90s", 90),
        ("2 sec", 2),
        ("3 seconds", 3),
        ("5000ms", 5),
        ("1h 30m", 5400),
        ("1h30m", 5400),
        ("1 d 2 h 3 min 4 s 5000 ms", 93_789),
    ] {
        assert_eq!(read(text), seconds, "{text}");
    }
}

#[test]
fn a_duration_that_can_be_read_in_two_ways_is_refused_with_what_to_write() {
    for (text, remedy) in [
        ("5M", "minutes as `m`"),
        ("1 month", "days"),
        ("1y", "days"),
        ("2 years", "days"),
        ("1mo", "days"),
        ("5", "without a unit"),
        ("0", "\"0s\""),
        ("1.5h", "whole numbers"),
        ("1,5h", "whole numbers"),
        ("30m 1h", "largest first"),
        ("5m 5m", "once"),
        ("", "expected a duration"),
        ("-5m", "expected a duration"),
        ("5H", "`h`"),
        ("2 dyas", "`days`"),
        ("3 parsecs", "parsecs"),
        ("5us", "millisecond"),
        ("11 d 99999999999999999999 ms", "ten years"),
        ("4000d", "ten years"),
        ("m5", "expected a duration"),
        ("5m,", "expected a duration"),
    ] {
        let told = mistakes_of(&format!("[defaults]\nlateness = \"{text}\""));
        assert!(told.contains(remedy) && told.contains(":2:"), "{text}: {told}");
    }
}

#[test]
fn spans_are_told_in_the_units_that_operators_write() {
    let told = mistakes_of("[broker]\nsession-expiry = \"0s\"");
    assert!(told.contains("1s to 3650d"), "{told}");
    let told = warnings_of("[defaults]\npast-limit = \"7d\"\nallowed-lateness = \"30 days\"");
    assert!(told.iter().any(|told| told.contains("(30d)")), "{told:?}");
}

fn warnings_of(toml: &str) -> Vec<String> {
    let config = Config::from_toml(toml).unwrap_or_else(|errors| panic!("{toml}\n{errors}"));
    config.warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_not_finite_is_refused() {
    let metric = |scale: &str| {
        format!("{SOURCE}[[source.metric]]\nname = \"p\"\nfrom = \"/p\"\nscale = {scale}")
    };
    for (toml, line) in [
        (metric("nan"), 7),
        (metric("inf"), 7),
        (metric("-inf"), 7),
        (metric("+nan"), 7),
        ("[gateway]\nid = nan".to_owned(), 2),
        ("[broker]\nport = inf".to_owned(), 2),
        (format!("{SOURCE}ignore = {{ from = \"/a\", equals = [1, nan] }}"), 4),
    ] {
        let told = mistakes_of(&toml);
        assert!(
            told.contains(&format!("configuration:{line}:")) && told.contains("finite"),
            "{toml}: {told}"
        );
    }
}

#[test]
fn device_and_key_together_are_one_too_many() {
    let told = mistakes_of(
        "[[source]]\nname = \"a\"\ntopic = \"a/{b}\"\ndevice = \"topic:b\"\nkey = \"/id\"",
    );
    assert!(told.contains("configuration:5:") && told.contains("one of them"), "{told}");
    assert!(!told.contains("duplicate field"), "{told}");
}

#[test]
fn a_wrong_key_is_shown_at_its_own_line() {
    let told = mistakes_of("[[source]]\nname = \"a\"\ntopic = \"a/{b}\"\nkey = \"topic:c\"");
    assert!(told.contains("configuration:4:") && told.contains("topic:c"), "{told}");
}

#[test]
fn corrections_that_would_be_quarantined_are_warned_of() {
    let long = "allowed-lateness = \"40d\"";
    let quarantined = |toml: &str| {
        let all = warnings_of(toml);
        let found: Vec<_> = all.into_iter().filter(|told| told.contains("quarantined")).collect();
        assert_eq!(found.len(), 1, "{toml}: {found:?}");
        found[0].clone()
    };
    let told = quarantined(&format!("{SOURCE}{long}"));
    assert!(told.starts_with("configuration:4:") && told.contains("past-limit (30d)"), "{told}");
    let told = quarantined(&format!("[defaults]\n{long}\n"));
    assert!(told.starts_with("configuration:2:"), "{told}");
    let told = quarantined(&format!("{SOURCE}past-limit = \"1h\"\n"));
    assert!(told.starts_with("configuration:4:"), "{told}");
    let told = quarantined(&format!("{SOURCE}{long}\npast-limit = \"1h\"\n"));
    assert!(told.starts_with("configuration:5:"), "{told}");
    let told = quarantined(&format!(
        "{SOURCE}allowed-lateness = \"3h\"\n[[region]]\nname = \"n\"\npast-limit = \"150m\""
    ));
    assert!(told.starts_with("configuration:4:") && told.contains("region \"n\""), "{told}");
}

#[test]
fn a_source_that_is_never_read_is_warned_of_with_both_lines() {
    let unread = |first: &str, second: &str| {
        let toml = format!(
            "[[source]]\nname = \"a\"\ntopic = \"{first}\"\nkey = \"/d\"\n\
                            [[source]]\nname = \"b\"\ntopic = \"{second}\"\nkey = \"/d\"\n"
        );
        let mut found = warnings_of(&toml).into_iter().filter(|told| told.contains("never read"));
        found.next().inspect(|told| {
            assert!(
                told.starts_with("configuration:7:") && told.contains("configuration:3:"),
                "{told}"
            );
        })
    };
    for (first, second) in [
        ("m/{a}", "m/{b}"),
        ("m/{a}", "m/x"),
        ("m/{a...}", "m/{b}/c"),
        ("{a...}", "m/{b...}"),
        ("{a...}/t", "m/{b...}/t"),
        ("m/{a...}/t", "m/x/{b}/t"),
        ("m/x", "m/x"),
    ] {
        assert!(unread(first, second).is_some(), "{first} takes all of {second}");
    }
    for (first, second) in [
        ("m/x", "m/{b}"),
        ("m/{a}", "m/{b}/c"),
        ("m/{a}", "m/{b...}"),
        ("m/{a...}/t", "m/{b...}"),
        ("m/{a...}", "{b...}"),
        ("m/{a...}/t", "m/t"),
        ("m/{a}/t", "m/{a}/u"),
        ("{a...}/t", "m/{b...}/u"),
        ("m/x/{a...}", "m/{b...}"),
    ] {
        assert_eq!(unread(first, second), None, "{first} leaves some of {second}");
    }
}

#[test]
fn what_stands_beside_names_holds_for_these_devices_of_these_regions_and_the_last_table_wins() {
    let toml = format!(
        "{BY_REGION}[[devices]]\nnames = [\"north/m-1\", \"north/m-2\"]\noffline-after = \"1h\"\n\
         [[devices]]\npattern = \"*-2\"\noffline-after = \"2h\"\n"
    );
    let config = Config::from_toml(&toml).unwrap_or_else(|errors| panic!("{errors}"));
    let policies = config.settings(Mode::Run).policies;
    let hours = |region, device| policies.resolve(region, "a", device).presence.offline_after;
    let spans = [("north", "m-1"), ("north", "m-2"), ("south", "m-2"), ("south", "m-1")];
    let wanted = [60, 120, 120, 30].map(tidegate::time::Span::from_mins);
    assert_eq!(spans.map(|(region, device)| hours(region, device)), wanted);
}

#[test]
fn devices_that_are_expected_may_stand_in_a_file_one_a_line() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let file = dir.path().join("meters.txt");
    let toml = format!("{BY_REGION}[[devices]]\nnames = [\"north/m-1\"]\nnames-file = {file:?}\n");
    let expected = |text: &str| {
        std::fs::write(&file, text).expect("the directory is ours");
        let settings = Config::from_toml(&toml).map(|config| config.settings(Mode::Run));
        settings.map(|settings| {
            let all = settings.sources[0].expects.iter();
            all.map(|(region, device)| format!("{region} {device}")).collect::<Vec<_>>()
        })
    };
    let text = "\u{feff}# meters of the north\r\nnorth/m-2\r\n\n  south/a/b#1 \n";
    let wanted = ["north m-1", "north m-2", "south a/b#1"];
    assert_eq!(expected(text).unwrap_or_else(|errors| panic!("{errors}")), wanted);
    let errors = expected("north/m-2\nm-3\nnorth/m-1\n").expect_err("two mistakes").to_string();
    for mistake in ["line 2, \"m-3\": expected a region", "line 3, \"north/m-1\": named twice"] {
        assert!(errors.contains(mistake), "{errors}");
    }
}
