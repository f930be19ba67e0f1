//! What a configuration comes to, for people: what of it decides about time, and where things lie.

use super::Config;
use super::sources::Source;
use super::values::spoken;
use crate::clock;

impl Config {
    /// A line for the clock, one for the store, and one for each source.
    pub fn understood(&self) -> Vec<String> {
        let sources = self.engine.sources.sources.iter().map(|source| self.source_line(source));
        [self.clock_line(), self.store_line()].into_iter().chain(sources).collect()
    }

    fn clock_line(&self) -> String {
        let clock = &self.clock;
        let asked: Vec<_> = clock.servers.iter().map(ToString::to_string).collect();
        let whose = match (clock.source, asked.is_empty()) {
            (clock::Source::System, _) | (clock::Source::Auto, true) if clock.trust_host => {
                return "clock: the host's, which is trusted".to_owned();
            }
            (clock::Source::System, _) => "the host's, as the kernel judges it".to_owned(),
            (clock::Source::Auto, true) => {
                "the host's, where the kernel says that it is kept".to_owned()
            }
            (clock::Source::Auto, false) => {
                format!("that of {}, or the host's where none answers", asked.join(", "))
            }
            (clock::Source::Sntp, _) => format!("that of {}, and nobody else's", asked.join(", ")),
        };
        let trusted = if clock.trust_host { "; the host's is trusted in any case" } else { "" };
        format!(
            "clock: {whose}{trusted}; until it is good messages are held, up to {}, after {} only those without a time \
             of their own",
            bytesize::ByteSize::b(self.gate.quota).display().iec(),
            spoken(self.gate.sync_timeout),
        )
    }

    fn store_line(&self) -> String {
        format!(
            "store: {}, with an outbox of up to {}",
            self.store.path.display(),
            bytesize::ByteSize::b(self.store.outbox_quota).display().iec()
        )
    }

    fn source_line(&self, source: &Source) -> String {
        let spec = &source.spec;
        let filters = crate::wire::profile::Profile::new(spec.clone())
            .map(|profile| profile.filters().join(" "))
            .unwrap_or_default();
        let window = &self.engine.sources.windows[source.base].name;
        let time = match &spec.time {
            Some((from, format)) => format!("time {from} as {format}"),
            None => "time of arrival".to_owned(),
        };
        let policy = self.engine.policies.resolve("", spec.source.as_str(), "");
        format!(
            "source \"{}\" on {filters}, {time}, window \"{window}\", lateness {}, corrected for {}",
            spec.source,
            spoken(policy.lateness),
            spoken(policy.allowed_lateness),
        )
    }
}
