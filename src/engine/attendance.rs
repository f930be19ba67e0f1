//! Who is there: what a message says of the presence of its device, deadlines of silence, and the gateway's own gaps.
//!
//! [`crate::engine::presence`] decides for one device; here are the moments at which it is asked. Gaps of the gateway
//! are told for themselves, once for all devices: the listened duration stands still in them, so that none is judged.

use crate::engine::Engine;
use crate::engine::deadline::Silence;
use crate::engine::effect::Effects;
use crate::engine::listen::Gap;
use crate::engine::presence::{Age, Moment, Told};
use crate::engine::validity::Verdict;
use crate::event::{GapReport, Output, PresenceReport, Reason};
use crate::time::{ArrivalTime, Span};

impl Engine {
    /// A record that is neither retained nor a duplicate was judged: is it news, and what does it say of its device?
    pub(super) fn on_news(
        &mut self,
        index: usize,
        verdict: Verdict,
        arrival: Option<ArrivalTime>,
        out: &mut Effects,
    ) {
        let Some(arrival) = arrival else { return };
        let Some(age) = self.age_of_news(index, verdict, arrival) else { return };
        let now = Moment { wall: arrival, heard: self.listening.duration() };
        let device = &mut self.devices[index];
        let told = device.presence.on_news(&device.policy.presence, now, age);
        self.tell_presence(index, told, out);
        self.arm_presence(index);
    }

    /// Its age, of none where its time is not trusted: whoever sends a wrong time is alive. `None`: it is no news.
    fn age_of_news(&self, index: usize, verdict: Verdict, arrival: ArrivalTime) -> Option<Age> {
        let device = &self.devices[index];
        match verdict {
            Verdict::Accepted(at) if at <= device.generator.highest() => None,
            Verdict::Accepted(at) if self.clock.is_good(device.policy.lateness) => {
                let sent = ArrivalTime(at.0);
                let whole = (arrival - sent).max(Span::ZERO);
                Some(Age { whole, listened: self.listening.heard_between(sent, arrival) })
            }
            Verdict::Quarantined(Reason::OtherSource) => None,
            Verdict::Accepted(_)
            | Verdict::Stamped(_)
            | Verdict::Arrival(_)
            | Verdict::Quarantined(_) => Some(Age::default()),
        }
    }

    /// Sets the deadline of a device, where none is set that comes before it: news moves it away, and whoever comes too
    /// early sets it again. While nothing is heard, nothing is judged.
    pub(super) fn arm_presence(&mut self, index: usize) {
        if !self.has_clock() {
            return;
        }
        let device = &mut self.devices[index];
        let Some(at) = device.presence.deadline(&device.policy.presence) else { return };
        if device.presence.armed.is_none_or(|armed| at < armed) {
            let at = if self.listening.is_deaf() {
                at.max(self.listening.duration() + Span(1))
            } else {
                at
            };
            device.presence.armed = Some(at);
            self.deadlines.at_duration(at, Silence::Presence(index));
        }
    }

    /// A deadline of a device came up.
    pub(super) fn on_presence_silence(&mut self, at: Span, index: usize, out: &mut Effects) {
        if self.devices[index].presence.armed != Some(at) {
            return; // a nearer one took its place
        }
        self.devices[index].presence.armed = None;
        let stamp = self.listening.stamp();
        loop {
            let device = &mut self.devices[index];
            let rules = device.policy.presence;
            let Some(due) = device.presence.deadline(&rules).filter(|due| *due <= at) else {
                break;
            };
            let moment = Moment { wall: stamp - (at - due), heard: due };
            let told = device.presence.on_deadline(&rules, moment);
            self.tell_presence(index, told, out);
        }
        self.arm_presence(index);
    }

    pub(super) fn tell_presence(&mut self, index: usize, told: Option<Told>, out: &mut Effects) {
        if self.devices[index].presence.dirty {
            self.mark(index);
        }
        let Some(told) = told else { return };
        let device = &self.devices[index];
        out.push(Output::Presence(PresenceReport {
            region: device.region_id.clone(),
            device: device.id.clone(),
            state: told.state,
            since: told.since,
            cause: told.cause,
            last_seen: told.last_seen,
            outage: told.outage,
            clock: self.clock.quality,
        }));
    }

    /// We hear again. One event for all that we did not hear.
    pub(super) fn tell_gap(&self, gap: Option<Gap>, out: &mut Effects) {
        if let Some(gap) = gap.filter(|gap| gap.end - gap.start >= self.settings.gap_after) {
            let Gap { start, end, cause } = gap;
            out.push(Output::Gap(GapReport { start, end, cause, clock: self.clock.quality }));
        }
    }
}
