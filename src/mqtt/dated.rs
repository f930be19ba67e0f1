//! The time by which certificates are judged: the gateway's, which is right where the host's is not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::LinkError;
use crate::time::ArrivalTime;

/// A clock, and whether it is known to be right.
#[derive(Clone)]
pub struct Dated(Arc<dyn Fn() -> (ArrivalTime, bool) + Send + Sync>);

impl Dated {
    /// By this clock.
    pub fn by(clock: impl Fn() -> (ArrivalTime, bool) + Send + Sync + 'static) -> Self {
        Self(Arc::new(clock))
    }

    /// What a certificate that is not valid yet says is the clock's fault, where that is not known to be right.
    pub(crate) fn judge(&self, error: LinkError) -> LinkError {
        match error {
            LinkError::NotYetValid(day) if !(self.0)().1 => LinkError::ClockUnset(day),
            error => error,
        }
    }
}

impl fmt::Debug for Dated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, right) = (self.0)();
        write!(f, "Dated({time:?}, {right})")
    }
}

impl TimeProvider for Dated {
    fn current_time(&self) -> Option<UnixTime> {
        let millis = u64::try_from((self.0)().0.0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_millis(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_valid_yet_is_the_fault_of_a_clock_that_may_be_wrong() {
        let by = |right| Dated::by(move || (ArrivalTime(1_750_000_000_000), right));
        let early = || LinkError::NotYetValid("2027-01-01".into());
        assert_eq!(by(true).judge(early()), early());
        assert_eq!(by(false).judge(early()), LinkError::ClockUnset("2027-01-01".into()));
        assert_eq!(by(false).judge(LinkError::Closed), LinkError::Closed);
    }

    #[test]
    fn certificates_are_judged_by_the_time_that_is_given() {
        let dated = Dated::by(|| (ArrivalTime(86_400_500), true));
        assert_eq!(dated.current_time().map(|time| time.as_secs()), Some(86_400));
        assert_eq!(Dated::by(|| (ArrivalTime(-1), true)).current_time(), None);
    }
}
