//! Broken configurations: where the mistake is, and what would be right.

use tidegate::config::{Config, ConfigErrors, Mode};

fn errors(toml: &str) -> String {
    Config::from_toml(toml).map_err(|errors: ConfigErrors| errors.to_string()).unwrap_err()
}

#[test]
fn explore() {
    for toml in [
        "[defaults]\nlatness = \"2m\"\nidle-timeout = 5\npast-limit=\"2M\"\nmax-hold = \"soon\"",
        "[broker]\nport = \"x\"\nin-flight = 0\nmax-payload = \"3 parsecs\"\nhost = 5\n[borker]\nport = 70000",
        "a = 1\n[broker\nport = 3",
        "[[source]]\nname='a'\ntopic='a/{device}'\ntime = { form = '/ts', as = 'epoch' }\n[[source]]\nname='b'\nheartbeat = 3\n[[source.metric]]\nname='p'\nfrom='power'\naggregates = ['mean', 'avg']\nscale='x'",
        "[[source]]\nname='a'\ntopic='a/{device}'\nwindow='huor'\n[[source]]\nname='a'\ntopic='a/b'\nrollups = [\"day\", 'week']\n[[source.metric]]\n",
        "source = 5\n[[broker]]\nport=1",
        "[[region]]\nname='south'\nlateness='40m'",
        "x = 1\nx = 2",
        "[broker]\npassword-file='/x'\nhost=''\nkeep-alive='2s'\n[upstream]\nprefix='a/#'\n[store]\noutbox-quota='1 KiB'",
    ] {
        println!("{}\n", errors(toml));
    }
    let env = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
    for (n, v) in [
        ("TIDEGATE_UPSTREAM__PORT", "x"),
        ("TIDEGATE_UPSTREAM_HOST", "x"),
        ("TIDEGATE_UPSTREAM__HSOT", "x"),
        ("TIDEGATE_REGION__0__NAME", "x"),
        ("TIDEGATE___", "1"),
        ("TIDEGATE_COMPAT", "beam"),
        ("TIDEGATE_BROKER", "x"),
        ("TIDEGATE_ÄÖ__X", "x"),
        ("TIDEGATE_UPSTREAM__PORT__X", "x"),
        ("TIDEGATE_UPSTREAM__IN_FLIGHT", "0"),
    ] {
        println!("{}\n", Config::load(&[], env(n, v)).unwrap_err());
    }
    let c = Config::load(&[], env("TIDEGATE_UPSTREAM__PORT", "1884")).unwrap();
    println!("{:?}", c.check(Mode::Run));
    println!("{:?}", c);
    let c = Config::load(&[], env("TIDEGATE_UPSTREAM__USER", "007")).unwrap();
    println!("{:?}", c.upstream);
}
