//! What is refused is told, with a limit on how often (SPEC 6). What is late is always told.

use sha2::{Digest, Sha256};

use crate::event::{Method, Reason, Refused};
use crate::ids::{DeviceId, RegionId, SourceId};
use crate::time::{ArrivalTime, ClockQuality, Span};

const HOUR_MS: i64 = 3_600_000;

/// So many an hour of the gateway's clock, the rest counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// The hour that is counted, in hours since the epoch.
    pub hour: i64,
    /// How many were told in it.
    pub told: u32,
    /// How many were withheld since the last one that was told.
    pub withheld: u64,
}

impl RateLimit {
    /// One more. `Some(withheld before it)` when it may be told.
    pub fn admit(&mut self, arrival: Option<ArrivalTime>, per_hour: u32) -> Option<u64> {
        let Some(arrival) = arrival else { return Some(0) };
        let hour = arrival.0.div_euclid(HOUR_MS);
        if hour != self.hour {
            (self.hour, self.told) = (hour, 0);
        }
        if self.told >= per_hour {
            self.withheld += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.withheld))
    }
}

/// Where a refused record or message came from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The source whose topic it came on.
    pub source: &'a SourceId,
    /// The topic; empty for a bare payload.
    pub topic: &'a str,
    /// When it arrived.
    pub arrival: Option<ArrivalTime>,
    /// Quality of the gateway's clock.
    pub clock: ClockQuality,
}

/// Tells what was refused: all of it, or its beginning with length and digest.
pub fn refused(
    reason: Reason,
    origin: Origin<'_>,
    key: Option<(RegionId, DeviceId)>,
    (device_time, offset): (Option<i64>, Option<(Span, Method)>),
    content: &[u8],
    withheld: u64,
) -> Refused {
    let kept = &content[..content.len().min(Refused::CONTENT_LIMIT)];
    Refused {
        reason,
        source: origin.source.clone(),
        key,
        topic: origin.topic.to_owned(),
        device_time,
        offset,
        arrival: origin.arrival,
        clock: origin.clock,
        content: kept.to_vec(),
        length: content.len() as u64,
        digest: (kept.len() < content.len()).then(|| Sha256::digest(content).into()),
        withheld,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withheld_is_told_with_the_next_one() {
        let mut limit = RateLimit::default();
        let at = |hour: i64| Some(ArrivalTime(hour * HOUR_MS + 1));
        assert_eq!(limit.admit(at(5), 2), Some(0));
        assert_eq!(limit.admit(at(5), 2), Some(0));
        assert_eq!(limit.admit(at(5), 2), None);
        assert_eq!(limit.admit(at(5), 2), None);
        assert_eq!(limit.admit(at(6), 2), Some(2));
        assert_eq!(limit.admit(at(6), 2), Some(0));
    }

    #[test]
    fn a_large_payload_is_told_by_its_beginning_length_and_digest() {
        let (source, clock) = (&"meters".into(), ClockQuality::Synchronised);
        let origin = Origin { source, topic: "a", arrival: None, clock };
        let small = refused(Reason::Syntax, origin, None, (None, None), &[7; 4096], 0);
        assert_eq!((small.content.len(), small.digest), (4096, None));
        let large =
            refused(Reason::Syntax, origin, None, (None, None), b"x".repeat(5000).as_slice(), 0);
        assert_eq!((large.content.len(), large.length), (4096, 5000));
        assert!(large.digest.is_some());
    }
}
