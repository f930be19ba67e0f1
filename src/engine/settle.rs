//! How the windows of a device fire and become final, and what is left of them in its roll-ups.

use crate::engine::context::{Context, Trigger};
use crate::engine::device::Device;
use crate::engine::effect::Effects;
use crate::engine::pane::{Pane, Samples};
use crate::engine::region::Region;
use crate::engine::window::{final_at, last_inside};
use crate::event::{Cause, Output};
use crate::time::{EventTime, Span};

impl Device {
    /// Everything that watermark `w` completes: windows fire by end, then what is past its lateness becomes final.
    pub fn settle(
        &mut self,
        cx: &Context<'_>,
        w: EventTime,
        trigger: Trigger,
        region: &mut Region,
        out: &mut Effects,
    ) {
        for index in 0..self.panes.len() {
            if self.fires_at(index, w) {
                self.fire(cx, index, trigger, out);
            }
        }
        self.finalise(cx, w, trigger.watermark, region, out);
    }

    /// Whether a window waits for a watermark that `w` has reached.
    pub fn fires_at(&self, index: usize, w: EventTime) -> bool {
        let pane = &self.panes[index];
        pane.emission.awaits_watermark() && last_inside(pane.end) <= w
    }

    /// Tells a window as it stands.
    pub fn fire(&mut self, cx: &Context<'_>, index: usize, trigger: Trigger, out: &mut Effects) {
        let revision = self.panes[index].emission.tell();
        self.panes[index].dirty = true;
        let pane = &self.panes[index];
        let result = if self.is_base(cx, pane) {
            cx.window_result(self, pane, &pane.samples, revision, trigger)
        } else {
            cx.window_result(self, pane, &self.composed(cx, pane), revision, trigger)
        };
        out.push(Output::Window(result));
    }

    /// All samples of a window: of a multiple, those of its final parts merged with those of its open ones.
    pub fn composed(&self, cx: &Context<'_>, pane: &Pane) -> Samples {
        let mut samples = pane.samples.clone();
        if !self.is_base(cx, pane) {
            let open = self.panes.iter().filter(|part| self.is_base(cx, part) && pane.holds(part));
            open.for_each(|part| merge_part(cx, self, &mut samples, pane, part));
        }
        samples
    }

    /// Makes final what is past its lateness at `w`: a pending revision is told, the samples go into the roll-ups.
    pub fn finalise(
        &mut self,
        cx: &Context<'_>,
        w: EventTime,
        watermark: Option<EventTime>,
        region: &mut Region,
        out: &mut Effects,
    ) {
        let lateness = self.policy.allowed_lateness;
        let past = self.panes.iter().take_while(|pane| final_at(pane.end, lateness) <= w).count();
        let trigger = Trigger { cause: Cause::Element, watermark };
        for index in 0..past {
            if self.panes[index].emission.due().is_some() {
                self.fire(cx, index, trigger, out);
            }
        }
        for left in (1..=past).rev() {
            // Parts before the multiples that they are settled into, which may end with them.
            let part = self.panes[..left].iter().position(|pane| self.is_base(cx, pane));
            let pane = self.panes.remove(part.unwrap_or(0));
            self.settle_into_rollups(cx, &pane, region);
            self.closed.push((pane.window, pane.start));
            self.final_to = self.final_to.max(last_inside(pane.end));
        }
        self.find_next();
    }

    /// Finds the next watermark at which a window fires or becomes final.
    pub fn find_next(&mut self) {
        self.next = self.panes.iter().map(|pane| self.target(pane)).min().unwrap_or(EventTime::MAX);
    }

    fn settle_into_rollups(&mut self, cx: &Context<'_>, pane: &Pane, region: &mut Region) {
        if self.is_base(cx, pane) {
            for index in 0..self.panes.len() {
                if !self.is_base(cx, &self.panes[index]) && self.panes[index].holds(pane) {
                    let mut samples =
                        std::mem::replace(&mut self.panes[index].samples, Samples::none(0));
                    merge_part(cx, self, &mut samples, &self.panes[index], pane);
                    self.panes[index].samples = samples;
                    self.panes[index].dirty = true;
                }
            }
        }
        if pane.in_region
            && let Some(rollup) = region.panes.get_mut(&(pane.end, pane.window))
        {
            rollup.settled.merge(&pane.samples, &cx.source(self).metrics);
            rollup.dirty = true;
            region.dirty = true;
        } else if cx.settings.region_rollups {
            region.missed += 1;
        }
    }

    /// The next watermark at which something is to be done with a window.
    fn target(&self, pane: &Pane) -> EventTime {
        if pane.emission.awaits_watermark() {
            last_inside(pane.end)
        } else {
            final_at(pane.end, self.policy.allowed_lateness)
        }
    }

    /// Tells the revisions that are due; says whether there were any.
    pub fn revise(&mut self, cx: &Context<'_>, w: EventTime, out: &mut Effects) -> bool {
        let trigger = Trigger { cause: Cause::Element, watermark: Some(w) };
        let is_due = |pane: &Pane| pane.emission.due().is_some_and(|due| due <= cx.duration);
        let due: Vec<usize> = (0..self.panes.len()).filter(|i| is_due(&self.panes[*i])).collect();
        for index in &due {
            self.fire(cx, *index, trigger, out);
        }
        self.find_next();
        !due.is_empty()
    }

    /// When its next revision is due.
    pub fn next_revision(&self) -> Option<Span> {
        let due = self.panes.iter().filter_map(|pane| pane.emission.due());
        due.filter(|due| *due != Span::MAX).min()
    }
}

fn merge_part(cx: &Context<'_>, device: &Device, samples: &mut Samples, whole: &Pane, part: &Pane) {
    let (to, from) = (cx.slots(device, whole.window), cx.slots(device, part.window));
    samples.merge(&part.samples, |bits| to.widen(bits, from, part.start - whole.start));
}
