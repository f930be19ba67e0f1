//! From a configuration to the settings of an engine.

use super::finding::{ConfigErrors, Finding, KeyPath};
use super::sources::Source;
use super::{Config, Login, Mode};
use crate::engine::settings::{ClockRules, Settings, SourceSettings};
use crate::wire::profile::Profile;

impl Config {
    /// What stands in the way of `mode`: `compat` or no source when live, a password file that cannot be read.
    pub fn check(&self, mode: Mode) -> Result<(), ConfigErrors> {
        let mut findings = Vec::new();
        if mode == Mode::Run {
            findings.extend(self.not_for_run());
            findings.extend(self.unreadable("broker", self.broker.link.login.as_ref()));
            findings.extend(self.unreadable("upstream", self.upstream.link.login.as_ref()));
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

    fn unreadable(&self, table: &str, login: Option<&Login>) -> Option<Finding> {
        let error = login?.password().err()?;
        let message = format!("the file that holds the password cannot be read: {error}");
        Some(self.layers.finding(&KeyPath::top(table).key("password-file"), message))
    }
}

fn compiled(source: &Source) -> SourceSettings {
    SourceSettings {
        profile: Profile::new(source.spec.clone()).expect("compiled once when it was checked"),
        base: source.base,
        multiples: source.multiples.clone(),
        metrics: source.metrics.clone(),
    }
}
