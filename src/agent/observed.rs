//! What the agent sees of its connections and of its store, and the status that it makes of it.

use crate::config::Config;
use crate::egress::Egress;
use crate::engine::Engine;
use crate::engine::overview::RegionView;
use crate::engine::recent::Recent;
use crate::event::Class;
use crate::mqtt::LinkError;
use crate::status::{
    Devices, Example, Held, Link, LinkState, MOST_REGIONS, Outbox, Region, SCHEMA, Status, Store,
    health,
};
use crate::store;
use crate::time::{ArrivalTime, MonoTime, Now, Span};

use super::Session;
use super::timekeeping::timekeeping;

/// Version of this agent.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What happened to the two connections and the store of a session.
#[derive(Debug)]
pub(super) struct Observed {
    /// When the agent was started.
    since: ArrivalTime,
    pub(super) broker: Link,
    pub(super) upstream: Link,
    /// On this connection the devices' broker has accepted a subscription.
    pub(super) subscribed: bool,
    pub(super) refused_filters: Vec<String>,
    /// When the last commit ended, and how long it took in milliseconds.
    pub(super) last_commit: Option<(ArrivalTime, u64)>,
    lost_at: Option<ArrivalTime>,
    no_room: u64,
    no_room_at: Option<ArrivalTime>,
}

impl Observed {
    /// Nothing is connected yet.
    pub(super) fn new(started: MonoTime, now: Now, [broker, upstream]: [String; 2]) -> Self {
        let since = now.wall - (now.mono - started);
        let link = |address| Link { address, since: now.wall.0, ..Link::default() };
        Self {
            since,
            broker: link(broker),
            upstream: link(upstream),
            subscribed: false,
            refused_filters: Vec::new(),
            last_commit: None,
            lost_at: None,
            no_room: 0,
            no_room_at: None,
        }
    }

    /// The clock was set: what happened did so as long ago as before.
    pub(super) fn shift(&mut self, by: Span) {
        self.since = self.since + by;
        for link in [&mut self.broker, &mut self.upstream] {
            link.since = link.since.saturating_add(by.0);
        }
        let commit = self.last_commit.as_mut().map(|(at, _)| at);
        let others = [self.lost_at.as_mut(), self.no_room_at.as_mut()];
        for at in others.into_iter().chain([commit]).flatten() {
            *at = *at + by;
        }
    }

    /// So many records found no room so far.
    pub(super) fn no_room(&mut self, count: u64, now: Now) {
        if count > self.no_room {
            self.no_room_at = Some(now.wall);
        }
        self.no_room = count;
    }

    /// What was there before this session found no room before it.
    pub(super) fn no_room_before(&mut self, count: u64) {
        self.no_room = count;
    }

    /// The outbox was full. What is only progress of event time is not missed.
    pub(super) fn evicted(&mut self, mut classes: impl Iterator<Item = Class>, now: Now) {
        if classes.any(|class| class != Class::Watermark) {
            self.lost_at = Some(now.wall);
        }
    }
}

/// The connection is in another state since `now`.
pub(super) fn enter(link: &mut Link, state: LinkState, now: Now) {
    if link.state != state {
        (link.state, link.since) = (state, now.wall.0);
    }
    (link.error, link.remedy) = (None, None);
}

/// There is no connection; told again for each attempt that fails.
pub(super) fn down(link: &mut Link, error: &LinkError, now: Now) {
    enter(link, LinkState::Away, now);
    link.error = Some(error.to_string());
    link.remedy = error.remedy().map(str::to_owned);
}

impl Session<'_> {
    /// How the agent is. From memory, and changes nothing.
    pub(super) fn status(&self) -> Status {
        let now = self.clock.now();
        let observed = &self.observed;
        let (regions, region_count) = regions(&self.engine, now);
        let millis = |time: Option<ArrivalTime>| time.map(|time| time.0);
        let mut status = Status {
            schema: SCHEMA,
            gateway: self.config.gateway.clone(),
            version: VERSION.to_owned(),
            generation: self.identity.generation.to_string(),
            at: now.wall.0,
            since: observed.since.0,
            health: health::Health::default(),
            clock: Some(self.clock.status().quality),
            timekeeping: timekeeping(self.config, self.clock),
            broker: Link { in_flight: self.uncommitted.len(), ..observed.broker.clone() },
            refused_filters: observed.refused_filters.clone(),
            upstream: upstream(&observed.upstream, &self.egress),
            store: store_status(self.config, observed.last_commit),
            outbox: outbox(&self.outbox, millis(observed.lost_at)),
            watermark: self.engine.published_watermark().map(|w| w.0),
            regions,
            region_count,
            devices: devices(&self.engine),
            unmatched: examples(self.engine.unmatched()),
            refused: examples(self.engine.refused()),
            held: held(&self.engine, now),
            books: *self.engine.books(),
            no_room_at: millis(observed.no_room_at),
        };
        status.health = health::judge(&status);
        status
    }
}

fn held(engine: &Engine, now: Now) -> Held {
    let holding = engine.holding(now);
    let ago = |span: Span| (now.wall - span).0;
    Held {
        since: holding.waiting.map(ago),
        waived: holding.waived,
        messages: holding.messages,
        bytes: holding.bytes,
        oldest: holding.oldest.map(ago),
    }
}

fn upstream(link: &Link, egress: &Egress) -> Link {
    Link { in_flight: egress.in_flight(), ..link.clone() }
}

fn store_status(config: &Config, last_commit: Option<(ArrivalTime, u64)>) -> Store {
    let (last_commit, commit_took) = last_commit.unzip();
    let path = config.store.path.display().to_string();
    Store { path, error: None, last_commit: last_commit.map(|at| at.0), commit_took }
}

fn outbox(outbox: &store::Outbox, lost_at: Option<i64>) -> Outbox {
    Outbox {
        entries: outbox.len(),
        bytes: outbox.bytes(),
        quota: outbox.quota(),
        oldest: outbox.oldest().map(|at| at.0),
        evicted: outbox.evicted(),
        lost_at,
    }
}

/// Those furthest beyond their usual lag, and how many there are in all.
fn regions(engine: &Engine, now: Now) -> (Vec<Region>, usize) {
    let mut regions: Vec<Region> =
        engine.region_views(now).map(|view| region(&view, now)).collect();
    let count = regions.len();
    regions.sort_by(|a, b| b.excess().cmp(&a.excess()).then_with(|| a.region.cmp(&b.region)));
    regions.truncate(MOST_REGIONS);
    (regions, count)
}

fn region(view: &RegionView, now: Now) -> Region {
    let watermark = view.watermark.map(|w| w.0);
    Region {
        region: view.id.as_str().to_owned(),
        watermark,
        lag: watermark.map(|w| now.wall.0.saturating_sub(w)),
        usual_lag: view.usual_lag.0,
        devices: view.devices,
        idle: view.idle,
    }
}

fn devices(engine: &Engine) -> Devices {
    let counts = engine.device_counts();
    Devices {
        known: engine.device_count(),
        active: counts.active,
        idle: counts.idle,
        following: counts.following,
        without_time: counts.without_time,
        online: counts.presence.online,
        suspect: counts.presence.suspect,
        offline: counts.presence.offline,
        flapping: counts.presence.flapping,
        never_seen: counts.presence.never_seen,
        forgotten: counts.presence.forgotten,
    }
}

fn examples(recent: &Recent) -> Vec<Example> {
    let example = |seen: &crate::engine::recent::Seen| Example {
        reason: seen.reason.map(|reason| reason.as_str().to_owned()),
        topic: seen.topic.to_string(),
        count: seen.count,
        last: seen.last.map(|at| at.0),
    };
    recent.iter().map(example).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_changes_no_age() {
        let at = |wall, mono| Now { wall: ArrivalTime(wall), mono: MonoTime(mono) };
        let mut observed = Observed::new(MonoTime(3), at(1_010, 13), ["a".into(), "b".into()]);
        assert_eq!(observed.since, ArrivalTime(1_000));
        observed.last_commit = Some((ArrivalTime(1_005), 2));
        observed.no_room(1, at(1_006, 9));
        observed.shift(Span(500));
        assert_eq!((observed.since, observed.broker.since), (ArrivalTime(1_500), 1_510));
        assert_eq!(observed.upstream.since, 1_510);
        assert_eq!(observed.last_commit, Some((ArrivalTime(1_505), 2)));
        assert_eq!((observed.no_room_at, observed.lost_at), (Some(ArrivalTime(1_506)), None));
    }
}
