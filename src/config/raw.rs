//! The configuration as it is written: one struct per table, every key optional, unknown keys refused.
//!
//! What is missing is completed and what contradicts itself is refused by `check`; here only the shape is read.

use super::values::{
    Date, Duration, Format, Place, Pointer, Scalars, Size, Told, Version, Whole, ZoneName,
};

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::path::PathBuf;

macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(remote = "Self", rename_all = "kebab-case", deny_unknown_fields, default)]
        pub(super) struct $name {
            $($(#[$attr])* pub $field: Option<$type>,)*
        }

        // Reads a table and nothing else: what serde derives would also take an array of values in their order.
        const _: () = {
            struct TableVisitor;

            impl<'de> Visitor<'de> for TableVisitor {
                type Value = $name;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a table")
                }

                fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                    $name::deserialize(MapAccessDeserializer::new(map))
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_map(TableVisitor)
                }
            }
        };
    };
}

/// A table that also takes the parameters of a policy. serde cannot flatten and refuse unknown keys at once, so they
/// are written into each.
macro_rules! policy_table {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $type:ty,)* }) => {
        table! {
            $(#[$doc])*
            $name {
                $($(#[$attr])* $field: $type,)*
                lateness: Duration,
                idle_timeout: Duration,
                allowed_lateness: Duration,
                max_hold: Duration,
                future_tolerance: Duration,
                past_limit: Duration,
                not_before: Date,
                correct: Correct,
                slow_tolerance: Duration,
                revisions: Revisions,
                revision_delay: Duration,
                interval: Duration,
                offline_after: Duration,
                will_debounce: Duration,
                flap_count: Whole<1, 100>,
                flap_window: Duration,
                forget_after: Duration,
            }
        }

        impl $name {
            /// The parameters of the policy.
            pub(super) fn parameters(&self) -> Parameters {
                Parameters {
                    lateness: self.lateness,
                    idle_timeout: self.idle_timeout,
                    allowed_lateness: self.allowed_lateness,
                    max_hold: self.max_hold,
                    future_tolerance: self.future_tolerance,
                    past_limit: self.past_limit,
                    not_before: self.not_before,
                    correct: self.correct,
                    slow_tolerance: self.slow_tolerance,
                    revisions: self.revisions,
                    revision_delay: self.revision_delay,
                    interval: self.interval,
                    offline_after: self.offline_after,
                    will_debounce: self.will_debounce,
                    flap_count: self.flap_count,
                    flap_window: self.flap_window,
                    forget_after: self.forget_after,
                }
            }
        }
    };
}

/// The parameters that can be set by default, region, source and for some devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    pub lateness: Option<Duration>,
    pub idle_timeout: Option<Duration>,
    pub allowed_lateness: Option<Duration>,
    pub max_hold: Option<Duration>,
    pub future_tolerance: Option<Duration>,
    pub past_limit: Option<Duration>,
    pub not_before: Option<Date>,
    pub correct: Option<Correct>,
    pub slow_tolerance: Option<Duration>,
    pub revisions: Option<Revisions>,
    pub revision_delay: Option<Duration>,
    pub interval: Option<Duration>,
    pub offline_after: Option<Duration>,
    pub will_debounce: Option<Duration>,
    pub flap_count: Option<Whole<1, 100>>,
    pub flap_window: Option<Duration>,
    pub forget_after: Option<Duration>,
}

table! {
    /// Everything.
    File {
        compat: Compat,
        gateway: Gateway,
        clock: Clock,
        broker: Broker,
        upstream: Upstream,
        store: Store,
        status: Status,
        defaults: Defaults,
        watermarks: Watermarks,
        presence: Presence,
        limits: Limits,
        rollups: Rollups,
        window: Vec<Window>,
        region: Vec<Region>,
        source: Vec<Source>,
        devices: Vec<Devices>,
    }
}

table! {
    /// `[gateway]`
    Gateway { id: String, }
}

table! {
    /// `[clock]`
    Clock {
        source: ClockSource,
        trust_host: bool,
        servers: Vec<String>,
        sync_timeout: Duration,
        hold_quota: Size,
    }
}

table! {
    /// `[broker]`
    Broker {
        host: String,
        port: Whole<1, 65_535>,
        version: Version,
        client_id: String,
        user: String,
        password_file: PathBuf,
        tls: bool,
        ca_file: PathBuf,
        cert_file: PathBuf,
        key_file: PathBuf,
        keep_alive: Duration,
        in_flight: Whole<1, 65_535>,
        max_payload: Size,
        session_expiry: Duration,
    }
}

table! {
    /// `[upstream]`
    Upstream {
        host: String,
        port: Whole<1, 65_535>,
        version: Version,
        client_id: String,
        user: String,
        password_file: PathBuf,
        tls: bool,
        ca_file: PathBuf,
        cert_file: PathBuf,
        key_file: PathBuf,
        keep_alive: Duration,
        in_flight: Whole<1, 65_535>,
        prefix: String,
        fields: Vec<Told>,
    }
}

table! {
    /// `[store]`
    Store {
        path: PathBuf,
        commit_interval: Duration,
        outbox_quota: Size,
    }
}

table! {
    /// `[status]`
    Status {
        enabled: bool,
        socket: PathBuf,
    }
}

policy_table! {
    /// `[defaults]`
    Defaults {}
}

policy_table! {
    /// `[[region]]`
    Region { name: String, }
}

policy_table! {
    /// `[[devices]]`
    Devices {
        pattern: String,
        names: Vec<String>,
        names_file: PathBuf,
        source: String,
    }
}

policy_table! {
    /// `[[source]]`
    Source {
        name: String,
        subscribe: Vec<String>,
        topic: String,
        device: Place,
        key: Place,
        region: Place,
        time: Time,
        live: bool,
        heartbeat: Condition,
        idle: Condition,
        ignore: Condition,
        items: Pointer,
        window: String,
        rollups: Vec<String>,
        metric: Vec<Metric>,
        status: Vec<SourceStatus>,
    }
}

table! {
    /// `time` of a source.
    Time {
        from: Place,
        #[serde(rename = "as")]
        format: Format,
        zone: ZoneName,
    }
}

table! {
    /// `heartbeat`, `idle` and `ignore` of a source.
    Condition {
        from: Place,
        equals: Scalars,
    }
}

table! {
    /// `[[source.metric]]`
    Metric {
        name: String,
        from: Place,
        unit: String,
        scale: f64,
        aggregates: Vec<Aggregate>,
    }
}

table! {
    /// `[[source.status]]`
    SourceStatus {
        topic: String,
        from: Place,
        online: Scalars,
        offline: Scalars,
        scope: StatusScope,
        device: Place,
        region: Place,
    }
}

table! {
    /// `[watermarks]`
    Watermarks {
        scope: Scope,
        combine: Combine,
        publish_interval: Duration,
    }
}

table! {
    /// `[presence]`
    Presence { gap_after: Duration, }
}

table! {
    /// `[limits]`
    Limits {
        max_devices: Whole<1, 1_000_000>,
        max_open_windows: Whole<1, 1_000_000>,
        max_remembered: Whole<0, 16_777_216>,
        refused_per_hour: Whole<0, 1_000_000>,
    }
}

table! {
    /// `[rollups]`
    Rollups { regions: bool, }
}

table! {
    /// `[[window]]`
    Window {
        name: String,
        size: Duration,
        offset: Duration,
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($word:ident),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $($word,)*
        }

        // What serde derives would say of anything but text that it is no string or map.
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let words = [$((stringify!($word), Self::$word)),*];
                deserializer.deserialize_any(OneOf(&words))
            }
        }
    };
}

/// Reads one of some words, written as their names are, in small letters.
struct OneOf<'a, T>(&'a [(&'static str, T)]);

impl<'de, T: Copy> Visitor<'de> for OneOf<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (word, _)) in self.0.iter().enumerate() {
            let before = match at {
                0 => "",
                _ if at + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}\"{}\"", word.to_ascii_lowercase())?;
        }
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let is = |(word, _): &&(&'static str, T)| text == word.to_ascii_lowercase();
        let found = self.0.iter().find(is).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let known: Vec<_> =
                self.0.iter().map(|(word, _)| format!("`{}`", word.to_ascii_lowercase())).collect();
            E::custom(format!("unknown variant `{text}`, expected one of {}", known.join(", ")))
        })
    }
}

words! {
    /// `compat`
    Compat { Flink }
}
words! {
    /// `clock.source`
    ClockSource { Auto, Sntp, System }
}
words! {
    /// `revisions`
    Revisions { Coalesced, Immediate }
}
words! {
    /// `correct`
    Correct { On, Flag, Off }
}
words! {
    /// `scope` of a status
    StatusScope { Device, Region, Source }
}
words! {
    /// `watermarks.scope`
    Scope { Device, Region }
}
words! {
    /// `watermarks.combine`
    Combine { Split, Union }
}
words! {
    /// `aggregates`
    Aggregate { Count, Sum, Mean, Min, Max, First, Last, Deviation }
}
