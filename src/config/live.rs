//! What of a configuration can take the place of another while the agent runs, and what cannot.

use super::finding::{ConfigErrors, KeyPath};
use super::{Broker, Config, Upstream};

impl Config {
    /// What of this configuration could not take the place of `running` while the agent runs: each option, with the value
    /// that it has now.
    pub fn follows(&self, running: &Self) -> Result<(), ConfigErrors> {
        let (before, now) = (fixed(running), fixed(self));
        let changed = before.into_iter().zip(now).filter(|(before, now)| before != now);
        let findings = changed.map(|((option, before), _)| {
            let message = format!(
                "the agent runs with {before}, and this changes only when it is started: restart it, or bring that back"
            );
            self.layers.finding(&KeyPath::dotted(option), message)
        });
        ConfigErrors::unless_empty(findings.collect())
    }
}

/// What lasts as long as the process, as it is written.
fn fixed(config: &Config) -> [(&'static str, String); 7] {
    let Config { gateway, clock, store, status, .. } = config;
    let servers: Vec<String> = clock.servers.iter().map(ToString::to_string).collect();
    let usual = || "none: its place is the usual one".to_owned();
    [
        ("gateway.id", format!("{gateway:?}")),
        ("store.path", format!("{:?}", store.path)),
        ("status.enabled", status.enabled.to_string()),
        ("status.socket", status.socket.as_ref().map_or_else(usual, |path| format!("{path:?}"))),
        ("clock.source", format!("{:?}", clock.source.as_str())),
        ("clock.trust-host", clock.trust_host.to_string()),
        ("clock.servers", format!("{servers:?}")),
    ]
}

impl Broker {
    /// Whether `other` is another session: another broker, or another client of it.
    pub fn is_elsewhere(&self, other: &Self) -> bool {
        let session = |broker: &Self| {
            let link = &broker.link;
            (link.host.clone(), link.port, link.client_id.clone())
        };
        session(self) != session(other)
    }
}

impl Upstream {
    /// Whether one connection is as good as the other.
    pub fn is_alike(&self, other: &Self) -> bool {
        (&self.link, &self.prefix) == (&other.link, &other.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(toml: &str) -> Config {
        Config::from_toml(toml).unwrap_or_else(|errors| panic!("{errors}"))
    }

    const RUNNING: &str = "gateway.id = \"a\"\n";

    fn refused(toml: &str) -> String {
        config(toml).follows(&config(RUNNING)).map_err(|errors| errors.to_string()).unwrap_err()
    }

    #[test]
    fn what_lasts_as_long_as_the_process_is_refused_by_name_with_both_values() {
        let told = refused("gateway.id = \"b\"\n");
        let words = ["1:9", "gateway.id = \"b\"", "runs with \"a\"", "restart it"];
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        for (option, value) in [
            ("store.path", "\"/elsewhere\""),
            ("status.enabled", "false"),
            ("status.socket", "\"/run/another.sock\""),
            ("clock.source", "\"system\""),
            ("clock.trust-host", "true"),
            ("clock.servers", "[\"a\", \"b\", \"c\"]"),
        ] {
            let told = refused(&format!("{RUNNING}{option} = {value}\n"));
            assert_eq!(told.lines().count(), 1, "{told}");
            assert!(told.contains(":2:") && told.contains(option), "{told}");
        }
        let told = refused("gateway.id = \"b\"\nstore.path = \"/elsewhere\"\n");
        assert_eq!(told.lines().count(), 2, "each of them: {told}");
    }

    #[test]
    fn all_else_may_change() {
        let other = "gateway.id = \"a\"\nclock.sync-timeout = \"1m\"\nstore.commit-interval = \"1s\"\n\
                     [upstream]\nhost = \"b\"\n[broker]\nhost = \"c\"\n[defaults]\nlateness = \"9m\"\n\
                     [[region]]\nname = \"north\"\n[log]\nlevel = \"debug\"\n";
        assert_eq!(config(other).follows(&config(RUNNING)), Ok(()));
    }

    #[test]
    fn another_host_port_or_client_is_another_session_and_another_login_is_not() {
        let broker = |toml: &str| config(&format!("{RUNNING}[broker]\n{toml}")).broker;
        let before = broker("");
        for elsewhere in ["host = \"b\"", "port = 1", "client-id = \"x\""] {
            assert!(broker(elsewhere).is_elsewhere(&before), "{elsewhere}");
        }
        assert!(!broker("user = \"u\"\nin-flight = 7").is_elsewhere(&before));
        let upstream = |toml: &str| config(&format!("{RUNNING}[upstream]\n{toml}")).upstream;
        assert!(upstream("fields = [\"all\"]").is_alike(&upstream("")));
        assert!(!upstream("prefix = \"p\"").is_alike(&upstream("")));
        assert!(!upstream("in-flight = 7").is_alike(&upstream("")));
    }
}
