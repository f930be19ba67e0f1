//! Devices and regions by name: found, or made where they are not known and there is room.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::correction::DeviceClock;
use crate::engine::device::{Activity, Device};
use crate::engine::habit::Habit;
use crate::engine::partition::Partition;
use crate::engine::presence::Presence;
use crate::engine::region::Region;
use crate::engine::settings::Policy;
use crate::engine::side_output::RateLimit;
use crate::engine::watermark::Generator;
use crate::ids::{DeviceId, RegionId};
use crate::time::{EventTime, Span};
use crate::wire::decode::Item;

impl Engine {
    /// The device of an item, made where it is not known; `None` when there is no room for one more.
    pub(super) fn device(&mut self, source: usize, item: Item<'_>) -> Option<usize> {
        match self.find_device(item.region, item.device) {
            None => self.enlist(source, item.region, item.device),
            known => known,
        }
    }

    /// A device that is not known, where there is room for it.
    pub(super) fn enlist(&mut self, source: usize, region: &str, name: &str) -> Option<usize> {
        if self.devices.len() >= self.settings.limits.max_devices {
            return None;
        }
        let region = self.region(region);
        let stamp = self.stamp_of(region);
        self.regions[region].keep_final(stamp);
        let index = self.insert_device(source, region, name);
        self.watch(index);
        Some(index)
    }

    pub(super) fn find_device(&self, region: &str, name: &str) -> Option<usize> {
        let is = |device: &usize| self.devices[*device].is_called(region, name);
        self.by_name.find(hash_of_names(region, name), is).copied()
    }

    /// The one copy of a policy.
    pub(super) fn shared(&mut self, policy: Policy) -> Arc<Policy> {
        if let Some(known) = self.policies.iter().find(|known| ***known == policy) {
            return Arc::clone(known);
        }
        self.policies.push(Arc::new(policy));
        self.policies[self.policies.len() - 1].clone()
    }

    pub(super) fn insert_device(&mut self, source: usize, region: usize, name: &str) -> usize {
        let index = self.devices.len();
        let region_id = self.regions[region].id.clone();
        let profile = &self.settings.sources[source].profile;
        let mut policy =
            self.settings.policies.resolve(region_id.as_str(), profile.source().as_str(), name);
        if !profile.declares_time() {
            policy.lateness = Span::ZERO; // processing time: nothing is ever out of order
        }
        let policy = self.shared(policy);
        let member = self.regions[region].join(index, &policy);
        self.devices.push(Device {
            id: DeviceId::from(name),
            region_id,
            region,
            member,
            source,
            policy,
            generator: Generator::default(),
            heard: self.listening.duration(),
            activity: Activity::Active,
            presence: Presence::default(),
            is_forgotten: false,
            panes: Vec::new(),
            next: EventTime::MAX,
            final_to: EventTime::MIN,
            armed: None,
            revises_at: None,
            registered: None,
            raising: None,
            refusals: RateLimit::default(),
            habit: Habit::default(),
            clock: DeviceClock::default(),
            newest: None,
            closed: Vec::new(),
            dirty: false,
            identity_is_stored: false,
            clock_is_stored: true,
        });
        let hash = |device: &Device| hash_of_names(device.region_id.as_str(), device.id.as_str());
        let devices = &self.devices;
        self.by_name.insert_unique(hash(&devices[index]), index, |at| hash(&devices[*at]));
        self.mark(index);
        index
    }

    /// The region of that name, made where it is not known.
    pub(super) fn region(&mut self, name: &str) -> usize {
        if let Some(region) = self.region_by_name.get(name) {
            return *region;
        }
        let index = self.regions.len();
        let policy = self.settings.policies.resolve_region(name);
        self.regions.push(Region::new(RegionId::from(name), &policy));
        self.region_by_name.insert(name.into(), index);
        self.partitions.add(Partition::default());
        self.deadlines.add_region();
        index
    }
}

fn hash_of_names(region: &str, device: &str) -> u64 {
    foldhash::fast::FixedState::default().hash_one((region, device))
}
