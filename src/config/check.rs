//! From what was written to what holds: defaults filled in, contradictions refused.

use super::finding::{ConfigErrors, Finding, KeyPath};
use super::layers::Layers;
use super::values::{Duration, Size, Whole, spoken};
use super::{Broker, Config, Engine, Link, Login, Store, Upstream, policy, raw, sources};
use crate::engine::settings::{Combine, Limits, Scope};
use crate::ids::RegionId;
use crate::time::Span;
use crate::wire::fields::Fields;

use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Mistakes as they are found.
pub(super) struct Review<'a> {
    layers: &'a Layers,
    findings: Vec<Finding>,
}

impl Review<'_> {
    /// Notes what is wrong with the value at `path`, and what would be right.
    pub(super) fn refuse(&mut self, path: &KeyPath, message: impl Into<String>) {
        self.findings.push(self.layers.finding(path, message));
    }

    /// How many mistakes were found so far.
    pub(super) fn count(&self) -> usize {
        self.findings.len()
    }

    /// A name that is there, is not empty and was not given before.
    pub(super) fn distinct(&mut self, array: &str, key: &str, names: &[Option<&str>]) {
        for (at, name) in names.iter().enumerate() {
            let path = KeyPath::top(array).index(at).key(key);
            match name {
                None => self.refuse(&path, format!("missing; each [[{array}]] needs a {key}")),
                Some("") => self.refuse(&path, "empty; give it a name"),
                Some(name) if names[..at].contains(&Some(name)) => {
                    let message = format!("used twice; give each [[{array}]] its own {key}");
                    self.refuse(&path, message);
                }
                Some(_) => {}
            }
        }
    }

    /// A span within `range`, `default` when none is given.
    fn span(
        &mut self,
        path: &KeyPath,
        given: Option<Duration>,
        default: Span,
        range: RangeInclusive<Span>,
    ) -> std::time::Duration {
        let span = given.map_or(default, |duration| duration.0);
        if !range.contains(&span) {
            let (least, most) = (spoken(*range.start()), spoken(*range.end()));
            self.refuse(path, format!("out of range; write a duration from {least} to {most}"));
        }
        std::time::Duration::from_millis(span.0.unsigned_abs())
    }

    fn size(
        &mut self,
        path: &KeyPath,
        given: Option<Size>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let size = given.map_or(default, |size| size.0);
        if !range.contains(&size) {
            let (least, most) = (bytes(*range.start()), bytes(*range.end()));
            self.refuse(path, format!("out of range; write a size from {least} to {most}"));
        }
        size
    }
}

fn bytes(size: u64) -> String {
    bytesize::ByteSize::b(size).display().iec().to_string()
}

/// Checks everything, and tells every contradiction at once.
pub(super) fn config(layers: Layers) -> Result<Config, ConfigErrors> {
    let file = layers.merged()?;
    let mut review = Review { layers: &layers, findings: Vec::new() };
    let gateway = gateway(&mut review, &file.gateway.unwrap_or_default());
    let broker = broker(&mut review, file.broker.unwrap_or_default(), &gateway);
    let upstream = upstream(&mut review, file.upstream.unwrap_or_default(), &gateway);
    two_clients(&mut review, &broker, &upstream);
    let store = store(&mut review, file.store.unwrap_or_default());
    let flink = file.compat.is_some();
    let tables = policy::Tables {
        defaults: file.defaults.unwrap_or_default(),
        regions: file.region.unwrap_or_default(),
        devices: file.device.unwrap_or_default(),
        sources: file.source.unwrap_or_default(),
    };
    let watermarks = file.watermarks.unwrap_or_default();
    let limits = file.limits.unwrap_or_default();
    let engine = Engine {
        scope: scope(&mut review, &watermarks, flink),
        policies: policy::policies(&mut review, &tables, flink),
        regions: regions(&tables.regions),
        sources: sources::sources(
            &mut review,
            &tables.sources,
            file.window.as_deref().unwrap_or_default(),
            flink,
        ),
        region_rollups: file.rollups.unwrap_or_default().regions.unwrap_or(true),
        watermark_interval: watermark_interval(&watermarks, flink),
        limits: bounds(&limits, broker.max_payload),
    };
    ConfigErrors::unless_empty(review.findings)?;
    Ok(Config { gateway, broker, upstream, store, flink, engine, layers })
}

fn gateway(review: &mut Review<'_>, raw: &raw::Gateway) -> String {
    let path = KeyPath::dotted("gateway.id");
    let id = raw.id.clone().or_else(host_name).unwrap_or_default();
    if id.is_empty() {
        review.refuse(&path, "no id, and this host has no name; set it: id = \"gw-017\"");
    } else if id.contains(|c: char| "/+#".contains(c) || c.is_whitespace() || c.is_control()) {
        review.refuse(
            &path,
            "becomes a level of topics; write it without blanks, `/`, `+` and `#`: \"gw-017\"",
        );
    }
    id
}

fn host_name() -> Option<String> {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let names = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    names.map(|name| name.trim().to_owned()).find(|name| !name.is_empty())
}

fn broker(review: &mut Review<'_>, raw: raw::Broker, gateway: &str) -> Broker {
    let path = KeyPath::top("broker");
    let day = Span::from_hours(24);
    Broker {
        link: Link {
            host: host(review, &path, raw.host),
            port: small(raw.port, 1883),
            client_id: client_id(review, &path, raw.client_id, "tidegate-{gateway}", gateway),
            login: login(review, &path, raw.user, raw.password_file),
            keep_alive: keep_alive(review, &path, raw.keep_alive),
            in_flight: small(raw.in_flight, 10_000),
        },
        max_payload: max_payload(review, &path, raw.max_payload),
        session_expiry: review.span(
            &path.key("session-expiry"),
            raw.session_expiry,
            Span(7 * day.0),
            Span::from_secs(1)..=Span(3650 * day.0),
        ),
    }
}

fn max_payload(review: &mut Review<'_>, broker: &KeyPath, given: Option<Size>) -> usize {
    let path = broker.key("max-payload");
    let size = review.size(&path, given, 256 << 10, 1 << 10..=128 << 20);
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn upstream(review: &mut Review<'_>, raw: raw::Upstream, gateway: &str) -> Upstream {
    let path = KeyPath::top("upstream");
    Upstream {
        link: Link {
            host: host(review, &path, raw.host),
            port: small(raw.port, 1883),
            client_id: client_id(
                review,
                &path,
                raw.client_id,
                "tidegate-{gateway}-upstream",
                gateway,
            ),
            login: login(review, &path, raw.user, raw.password_file),
            keep_alive: keep_alive(review, &path, raw.keep_alive),
            in_flight: small(raw.in_flight, 100),
        },
        prefix: prefix(review, &path.key("prefix"), raw.prefix, gateway),
        fields: raw
            .fields
            .map_or_else(Fields::default, |told| told.into_iter().flat_map(|it| it.0).collect()),
    }
}

fn host(review: &mut Review<'_>, table: &KeyPath, given: Option<String>) -> String {
    let host = given.unwrap_or_else(|| "localhost".to_owned());
    if host.is_empty() || host.contains(|c: char| "/@".contains(c) || c.is_whitespace()) {
        let message = "expected a host name or an address, without scheme and login: \
                       \"mqtt.example.org\"; a login is `user` and `password-file`";
        review.refuse(&table.key("host"), message);
    }
    host
}

fn client_id(
    review: &mut Review<'_>,
    table: &KeyPath,
    given: Option<String>,
    default: &str,
    gateway: &str,
) -> String {
    let id = given.unwrap_or_else(|| default.to_owned()).replace("{gateway}", gateway);
    if id.is_empty() {
        let message = format!("empty; a persistent session needs an id: \"{default}\"");
        review.refuse(&table.key("client-id"), message);
    }
    id
}

fn login(
    review: &mut Review<'_>,
    table: &KeyPath,
    user: Option<String>,
    password_file: Option<PathBuf>,
) -> Option<Login> {
    if user.is_none() && password_file.is_some() {
        let message = "a password without a user; set `user` too";
        review.refuse(&table.key("password-file"), message);
    }
    user.map(|user| Login { user, password_file })
}

fn keep_alive(
    review: &mut Review<'_>,
    table: &KeyPath,
    given: Option<Duration>,
) -> std::time::Duration {
    let range = Span::from_secs(5)..=Span::from_hours(18);
    review.span(&table.key("keep-alive"), given, Span::from_secs(30), range)
}

fn prefix(review: &mut Review<'_>, path: &KeyPath, given: Option<String>, gateway: &str) -> String {
    let prefix = given.unwrap_or_else(|| "tidegate/{gateway}".to_owned());
    if prefix.is_empty() || prefix.contains(['+', '#', '\0']) {
        let message = "expected the beginning of topics, not empty and without `+` and `#`: \
                       \"tidegate/{gateway}\"";
        review.refuse(path, message);
    } else if prefix.split('/').any(str::is_empty) {
        review.refuse(path, "an empty level; write it without `/` at either end and without `//`");
    }
    prefix.replace("{gateway}", gateway)
}

/// Two clients with one id on one broker would disconnect each other for ever.
fn two_clients(review: &mut Review<'_>, broker: &Broker, upstream: &Upstream) {
    let same_broker =
        (&broker.link.host, broker.link.port) == (&upstream.link.host, upstream.link.port);
    if same_broker && broker.link.client_id == upstream.link.client_id {
        let message = "the same client id as in [broker], on the same broker: each connection \
                       would end the other; give them different ids";
        review.refuse(&KeyPath::dotted("upstream.client-id"), message);
    }
}

fn store(review: &mut Review<'_>, raw: raw::Store) -> Store {
    let table = KeyPath::top("store");
    let path = raw.path.unwrap_or_else(|| "/var/lib/tidegate".into());
    if path.as_os_str().is_empty() {
        review.refuse(&table.key("path"), "empty; write a directory: \"/var/lib/tidegate\"");
    }
    Store {
        path,
        commit_interval: review.span(
            &table.key("commit-interval"),
            raw.commit_interval,
            Span::from_secs(10),
            Span::ZERO..=Span::from_mins(10),
        ),
        outbox_quota: review.size(
            &table.key("outbox-quota"),
            raw.outbox_quota,
            64 << 20,
            1 << 20..=1 << 40,
        ),
    }
}

fn scope(review: &mut Review<'_>, raw: &raw::Watermarks, flink: bool) -> Scope {
    let default = if flink { raw::Scope::Region } else { raw::Scope::Device };
    let combine = match raw.combine {
        Some(raw::Combine::Union) => Combine::Union,
        Some(raw::Combine::Split) | None => Combine::Split,
    };
    if raw.scope.unwrap_or(default) == raw::Scope::Region {
        return Scope::Region(combine);
    }
    if raw.combine.is_some() {
        let message = "nothing to combine: a device's windows close by its own watermark; \
                       set scope = \"region\" or leave it out";
        review.refuse(&KeyPath::dotted("watermarks.combine"), message);
    }
    Scope::Device
}

fn watermark_interval(raw: &raw::Watermarks, flink: bool) -> Span {
    let default = if flink { Span::ZERO } else { Span::from_mins(1) };
    raw.publish_interval.map_or(default, |interval| interval.0)
}

fn regions(regions: &[raw::Region]) -> Vec<RegionId> {
    regions.iter().filter_map(|region| region.name.as_deref()).map(RegionId::from).collect()
}

fn bounds(raw: &raw::Limits, max_payload: usize) -> Limits {
    let default = Limits::default();
    Limits {
        max_devices: count(raw.max_devices, default.max_devices),
        max_open_windows: count(raw.max_open_windows, default.max_open_windows),
        max_remembered: count(raw.max_remembered, default.max_remembered),
        max_payload,
        refused_per_hour: raw
            .refused_per_hour
            .map_or(default.refused_per_hour, |n| u32::try_from(n.0).unwrap_or(u32::MAX)),
    }
}

fn count<const MIN: u64, const MAX: u64>(given: Option<Whole<MIN, MAX>>, default: usize) -> usize {
    given.map_or(default, |number| usize::try_from(number.0).unwrap_or(usize::MAX))
}

fn small<const MIN: u64>(given: Option<Whole<MIN, 65_535>>, default: u16) -> u16 {
    given.map_or(default, |number| u16::try_from(number.0).unwrap_or(u16::MAX))
}
