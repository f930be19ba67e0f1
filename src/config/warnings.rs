//! What is allowed but unwise, with the reason. The advice is that of practice with event time (SPEC 10).

use super::finding::{Finding, KeyPath};
use super::policy::patched;
use super::values::spoken;
use super::{Config, Link, sources::Source};
use crate::engine::settings::{Policy, PolicyPatch};
use crate::mqtt::{LinkError, Tls, Version};
use crate::time::Span;
use crate::wire::topic::Template;

/// What becomes of records that are older than the past limit, and what to do about it.
const QUARANTINED: &str =
    "older records are quarantined before they could correct anything; set past-limit to at least";

/// With a smaller window than this a commit hardly gathers anything.
const SMALL_WINDOW: u16 = 100;

impl Config {
    /// What practice advises against, in the order of the sections; each with the reason.
    pub fn warnings(&self) -> Vec<Finding> {
        let mut all: Vec<Finding> = self.connections().chain(self.practice()).collect();
        if !self.flink {
            all.extend(self.parameters());
            all.extend(self.quarantined_by_region());
            all.extend(self.alike_regions());
        }
        all.extend(self.unused_windows());
        all.extend(self.unread_sources());
        let sources = self.engine.sources.sources.iter().enumerate();
        all.extend(sources.flat_map(|(at, source)| self.source(at, source)));
        all
    }

    pub(super) fn warn(&self, path: &KeyPath, message: impl Into<String>) -> Finding {
        self.layers.finding(path, message)
    }

    fn connections(&self) -> impl Iterator<Item = Finding> {
        let id = self.doubt.map(|doubt| self.warn(&KeyPath::dotted("gateway.id"), doubt.message()));
        let host = KeyPath::dotted("upstream.host");
        let host = (!self.layers.has(&host)).then(|| {
            let message = "not set: results go to a broker on this host; that is right only where \
                           it forwards them";
            self.warn(&host, message)
        });
        let brokers = [("broker", &self.broker.link), ("upstream", &self.upstream.link)];
        id.into_iter()
            .chain(self.too_few_to_ask())
            .chain(host)
            .chain(self.small_window())
            .chain(brokers.into_iter().flat_map(|(table, link)| self.link(table, link)))
    }

    /// In MQTT 3.1.1 the broker's window has to be known, or a commit waits for messages that do not come.
    fn small_window(&self) -> Option<Finding> {
        let path = KeyPath::dotted("broker.in-flight");
        if self.layers.has(&path) && self.broker.link.in_flight < SMALL_WINDOW {
            let message = format!(
                "a commit is made when half of so many messages wait, that is every {} messages, which wears flash and \
                 holds a busy fleet up; write {SMALL_WINDOW} or more (in MQTT 3.1.1 with as many \
                 max_inflight_messages in mosquitto)",
                (self.broker.link.in_flight / 2).max(1)
            );
            return Some(self.warn(&path, message));
        }
        let unknown = self.broker.link.version == Version::V311 && !self.layers.has(&path);
        unknown.then(|| {
            let message = "not set, and in MQTT 3.1.1 the broker decides how many messages may be on their way; write \
                           what it grants (mosquitto: max_inflight_messages): with the 20 assumed here a commit is \
                           made every 10 messages, which wears flash";
            self.warn(&path, message)
        })
    }

    fn link(&self, table: &str, link: &Link) -> Vec<Finding> {
        let table = KeyPath::top(table);
        let out_of_reach = link.files().into_iter().filter(|(_, file)| !file.is_within_reach());
        let mut all: Vec<Finding> = out_of_reach
            .map(|(key, _)| {
                let message = "a credential of the service, which cannot be looked at from here";
                self.warn(&table.key(key), message)
            })
            .collect();
        if let (true, Some(fault)) = (all.is_empty(), link.tls.as_ref().and_then(Tls::fault)) {
            let key = if let LinkError::File { option, .. } = fault { option } else { "tls" };
            let remedy = fault.remedy().unwrap_or_default();
            all.push(self.warn(&table.key(key), format!("{fault}; {remedy}")));
        }
        let open = link.tls.is_none() && link.credentials.is_some() && !is_local(&link.host);
        all.extend(open.then(|| {
            let message = "the password goes over the network in the clear; set tls = true";
            self.warn(&table.key("user"), message)
        }));
        all
    }

    /// Each layer of parameters by itself.
    fn parameters(&self) -> Vec<Finding> {
        let policies = &self.engine.policies;
        let default = policies.default;
        let regions = policies.regions.iter().map(|(_, patch)| patch).enumerate();
        let sources = policies.sources.iter().map(|(_, patch)| patch).enumerate();
        let devices = policies.devices.iter().map(|(_, patch)| patch).enumerate();
        let layers = regions
            .map(|(at, patch)| ("region", at, patch))
            .chain(sources.map(|(at, patch)| ("source", at, patch)))
            .chain(devices.map(|(at, patch)| ("devices", at, patch)))
            .map(|(array, at, patch)| (KeyPath::top(array).index(at), *patch));
        std::iter::once((KeyPath::top("defaults"), all_of(default)))
            .chain(layers)
            .flat_map(|(path, patch)| self.layer(&path, patch, patched(default, patch)))
            .collect()
    }

    fn layer(&self, path: &KeyPath, patch: PolicyPatch, policy: Policy) -> Vec<Finding> {
        let advice = [
            ("lateness", patch.lateness.and_then(lateness)),
            ("idle-timeout", patch.idle_timeout.and_then(|timeout| idle_timeout(timeout, policy))),
            ("allowed-lateness", patch.allowed_lateness.and_then(allowed_lateness)),
            ("interval", patch.interval.and_then(|interval| interval_of(interval, policy))),
            ("offline-after", patch.offline_after.and_then(|after| offline_after(after, policy))),
        ];
        let advice = advice.into_iter();
        advice
            .filter_map(|(key, message)| Some(self.warn(&path.key(key), message?)))
            .chain(self.quarantined(path, patch, policy))
            .collect()
    }

    /// What is allowed to come so late is too old by then.
    fn quarantined(&self, path: &KeyPath, patch: PolicyPatch, policy: Policy) -> Option<Finding> {
        let named = patch.allowed_lateness.is_some() || patch.past_limit.is_some();
        if !named || policy.allowed_lateness <= policy.past_limit {
            return None;
        }
        let limit = path.key("past-limit");
        if self.layers.has(&limit) {
            let allowed = spoken(policy.allowed_lateness);
            let message =
                format!("shorter than allowed-lateness ({allowed}): {QUARANTINED} that long");
            return Some(self.warn(&limit, message));
        }
        let most = spoken(policy.past_limit);
        let message = format!("longer than past-limit ({most}): {QUARANTINED} as long as this");
        Some(self.warn(&path.key("allowed-lateness"), message))
    }

    /// The same, where a source allows what a region of its devices does not take.
    fn quarantined_by_region(&self) -> Vec<Finding> {
        let policies = &self.engine.policies;
        let sources = policies.sources.iter().enumerate();
        let stricter = sources.filter_map(|(at, (_, source))| {
            let allowed = source.allowed_lateness.filter(|_| source.past_limit.is_none())?;
            let limits = policies.regions.iter();
            let mut limits = limits.filter_map(|(region, patch)| Some((region, patch.past_limit?)));
            let (region, limit) = limits.find(|(_, limit)| *limit < allowed)?;
            let limit = spoken(limit);
            let message = format!(
                "longer than past-limit ({limit}) of region \"{region}\": {QUARANTINED} as long as this"
            );
            let path = KeyPath::top("source").index(at).key("allowed-lateness");
            Some(self.warn(&path, message))
        });
        stricter.collect()
    }

    fn alike_regions(&self) -> Option<Finding> {
        let regions = &self.engine.policies.regions;
        let alike = regions.len() > 1 && regions.iter().all(|(_, patch)| patch.lateness.is_none());
        alike.then(|| {
            let message = "no region has a lateness of its own; regions differ in delay: measure \
                           each for 24 h, and set P99 times 1.2 to 1.5";
            self.warn(&KeyPath::top("region").index(0).key("lateness"), message)
        })
    }

    fn unused_windows(&self) -> impl Iterator<Item = Finding> {
        let all = &self.engine.sources;
        let used =
            |at: usize| all.sources.iter().any(|s| s.base == at || s.multiples.contains(&at));
        let unused = (0..all.windows.len()).filter(move |at| !used(*at));
        unused.map(|at| KeyPath::top("window").index(at).key("name")).filter_map(|path| {
            let declared = self.layers.has(&path);
            declared.then(|| {
                self.warn(&path, "no source names this window, as `window` or in `rollups`")
            })
        })
    }

    /// The first source whose topic a message has reads it, and no other.
    fn unread_sources(&self) -> Vec<Finding> {
        let sources = self.engine.sources.sources.iter();
        let templates: Vec<Template> =
            sources.filter_map(|source| source.spec.topic.parse().ok()).collect();
        let topic = |at| KeyPath::top("source").index(at).key("topic");
        let unread = templates.iter().enumerate().filter_map(|(at, template)| {
            let first = templates[..at].iter().position(|earlier| earlier.covers(template))?;
            let origin = self.warn(&topic(first), "").origin;
            let message = format!(
                "never read: `{}` at {origin} takes all of these messages first; put the narrower \
                 topic before the wider one, or make one source of both",
                templates[first]
            );
            Some(self.warn(&topic(at), message))
        });
        unread.collect()
    }

    fn source(&self, at: usize, source: &Source) -> impl Iterator<Item = Finding> {
        let path = KeyPath::top("source").index(at);
        let untimed = source.spec.time.is_none().then(|| {
            let message = "not set: the arrival time stands for the time of the reading; what was \
                           delayed counts in the wrong hour, which is no basis for billing";
            self.warn(&path.key("time"), message)
        });
        let silent = source.metrics.is_empty().then(|| {
            self.warn(&path.key("metric"), "no metric: readings are counted, nothing is aggregated")
        });
        untimed.into_iter().chain(silent).chain(self.open_windows(&path, source))
    }

    /// More windows stay open for late records than a device may have.
    fn open_windows(&self, path: &KeyPath, source: &Source) -> Option<Finding> {
        let policies = &self.engine.policies;
        let policy = policies.resolve("", source.spec.source.as_str(), "");
        let size = self.engine.sources.windows[source.base].size.0;
        let open = policy.allowed_lateness.0.saturating_add(policy.lateness.0) / size;
        let most = self.engine.limits.max_open_windows;
        (usize::try_from(open).unwrap_or(usize::MAX) > most).then(|| {
            let message = format!(
                "about {open} windows of a device stay open for late records, but \
                 limits.max-open-windows is {most}: records for further ones find no room"
            );
            self.warn(&path.key("window"), message)
        })
    }
}

fn is_local(host: &str) -> bool {
    ["localhost", "::1", "[::1]"].contains(&host) || host.starts_with("127.")
}

fn all_of(policy: Policy) -> PolicyPatch {
    PolicyPatch {
        lateness: Some(policy.lateness),
        idle_timeout: Some(policy.idle_timeout),
        allowed_lateness: Some(policy.allowed_lateness),
        past_limit: Some(policy.past_limit),
        interval: policy.interval,
        offline_after: Some(policy.presence.offline_after),
        ..PolicyPatch::default()
    }
}

/// A delay longer than this is no network's.
const LONGEST_DELAY: Span = Span::from_hours(1);

fn lateness(span: Span) -> Option<String> {
    let message = match span {
        Span::ZERO => {
            "every record that arrives out of order is late; set P99 of the measured delay times 1.2 \
             to 1.5"
        }
        span if span > LONGEST_DELAY => {
            "longer than an hour: without heartbeats every window waits that long, and a watermark \
             that lags by more than ten minutes is critical; set P99 of the measured delay times 1.2 \
             to 1.5, and allowed-lateness for devices that send what they kept"
        }
        _ => return None,
    };
    Some(message.to_owned())
}

fn idle_timeout(span: Span, policy: Policy) -> Option<String> {
    let slow = policy.interval.map_or(Span::ZERO, beyond);
    let usual = Span::from_mins(1)..=Span::from_mins(5).max(slow);
    (!usual.contains(&span)).then(|| {
        "outside 1 to 5 minutes (5 for meters, more only for devices with a longer interval): a shorter one takes slow devices \
         for silent ones, a longer one keeps the results of silent ones waiting"
            .to_owned()
    })
}

/// An idle timeout for devices that report so often: one report may be late by a third, or by five minutes.
fn beyond(interval: Span) -> Span {
    Span(interval.0.saturating_add((interval.0 / 3).max(Span::from_mins(5).0)))
}

fn allowed_lateness(span: Span) -> Option<String> {
    (span == Span::ZERO).then(|| {
        "late records correct no result, they only go to the side output; two hours cost little"
            .to_owned()
    })
}

fn offline_after(after: Span, policy: Policy) -> Option<String> {
    let interval = policy.interval.filter(|interval| after.0 < interval.0.saturating_mul(2))?;
    let interval = spoken(interval);
    Some(format!("less than twice the interval ({interval}): one lost report is an offline device"))
}

fn interval_of(span: Span, policy: Policy) -> Option<String> {
    (span >= policy.idle_timeout).then(|| {
        let idle = spoken(policy.idle_timeout);
        let enough = spoken(beyond(span));
        format!(
            "not below idle-timeout ({idle}): the device is idle between any two messages; write idle-timeout = \"{enough}\""
        )
    })
}
