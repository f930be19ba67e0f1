//! From a configuration to the settings of an engine.

use super::finding::{ConfigErrors, Finding, KeyPath};
use super::sources::Source;
use super::{Config, Link, Mode};
use crate::engine::settings::{ClockRules, Settings, SourceSettings};
use crate::mqtt::FileName;
use crate::wire::profile::Profile;
use crate::wire::status::StatusTopic;

impl Config {
    /// What stands in the way of `mode`: `compat` or no source when live, a file that cannot be read.
    pub fn check(&self, mode: Mode) -> Result<(), ConfigErrors> {
        let mut findings = Vec::new();
        if mode == Mode::Run {
            findings.extend(self.not_for_run());
            findings.extend(self.unreadable("broker", &self.broker.link));
            findings.extend(self.unreadable("upstream", &self.upstream.link));
        }
        ConfigErrors::unless_empty(findings)
    }

    /// The engine's settings; ask [`Config::check`] first.
    pub fn settings(&self, mode: Mode) -> Settings {
        let clock = match mode {
            _ if self.flink => ClockRules::Absent,
            Mode::Run => ClockRules::Applied,
            Mode::Replay(clock) => clock,
        };
        let engine = &self.engine;
        Settings {
            scope: engine.scope,
            clock,
            deduplicate: !self.flink,
            sources: engine.sources.sources.iter().map(compiled).collect(),
            windows: engine.sources.windows.clone(),
            metrics: engine.sources.metrics.clone(),
            regions: engine.regions.clone(),
            policies: engine.policies.clone(),
            region_rollups: engine.region_rollups,
            watermark_interval: engine.watermark_interval,
            gap_after: engine.gap_after,
            gate: self.gate,
            limits: engine.limits,
        }
    }

    fn not_for_run(&self) -> impl Iterator<Item = Finding> {
        let compat = self.flink.then(|| {
            let message = "Flink's semantics know no clock and are for replays; leave it out";
            self.layers.finding(&KeyPath::top("compat"), message)
        });
        let nothing = self.engine.sources.sources.is_empty().then(|| {
            let message = "nothing to read; declare at least one [[source]]";
            self.layers.finding(&KeyPath::top("source"), message)
        });
        compat.into_iter().chain(nothing)
    }

    /// A credential that is out of reach is not among it: it may be there in the service.
    fn unreadable(&self, table: &str, link: &Link) -> impl Iterator<Item = Finding> {
        let table = KeyPath::top(table);
        link.files().into_iter().filter(|(_, file)| file.is_within_reach()).filter_map(
            move |(key, file)| {
                let error = file.read().err()?;
                let message = format!(
                    "the file cannot be read: {error}; it has to be there, and readable by the user of the agent"
                );
                Some(self.layers.finding(&table.key(key), message))
            },
        )
    }
}

impl Link {
    /// The files that the connection needs, by option.
    pub(crate) fn files(&self) -> Vec<(&'static str, &FileName)> {
        let identity = self.tls.as_ref().and_then(|tls| tls.identity.as_ref());
        let files = [
            ("password-file", self.credentials.as_ref().and_then(|it| it.password_file.as_ref())),
            ("ca-file", self.tls.as_ref().and_then(|tls| tls.ca.as_ref())),
            ("cert-file", identity.map(|identity| &identity.certificate)),
            ("key-file", identity.map(|identity| &identity.key)),
        ];
        files.into_iter().filter_map(|(key, file)| Some((key, file?))).collect()
    }
}

fn compiled(source: &Source) -> SourceSettings {
    SourceSettings {
        profile: Profile::new(source.spec.clone()).expect("compiled once when it was checked"),
        base: source.base,
        multiples: source.multiples.clone(),
        statuses: source
            .statuses
            .iter()
            .map(|spec| StatusTopic::new(spec).expect("compiled once when it was checked"))
            .collect(),
        expects: source.expects.clone(),
        metrics: source.metrics.clone(),
        live: source.live,
    }
}
