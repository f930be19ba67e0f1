//! One question to a time server, and what its answer is worth.
//!
//! sntpc writes and reads the packets; what it does not check is checked here. Times of the machine are
//! `CLOCK_BOOTTIME` alone, so that a step of the host's clock in between changes nothing. What the packet calls our
//! time is a number by which the answer is known, months away from it at random: who does not see the question cannot
//! answer it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use sntpc::{Error, KissOfDeathCode, NtpContext, NtpTimestampGenerator, NtpUdpSocket};

use super::refusal::Refusal;

/// Length of a packet, in bytes.
pub(super) const PACKET: usize = 48;

/// Most that a round trip and a root distance may be, in nanoseconds.
const LONGEST: i64 = 1_000_000_000;

/// How far the number in the packet may be from our time, in microseconds: 101 days, 43 bits.
const ASTRAY: u64 = (1 << 43) - 1;

/// No server keeps the time in a year before this: 2026-01-01, in microseconds since the epoch. It also says which era
/// is meant where our own clock was never set.
pub(super) const EARLIEST_US: i64 = 1_767_225_600_000_000;

/// What an answer says. All in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Wall time less `CLOCK_BOOTTIME`.
    pub difference: i64,
    /// How far that is from the truth at most, if the server is right.
    pub bound: i64,
    /// On the way, both ways.
    pub round_trip: i64,
    /// When it came, by `CLOCK_BOOTTIME`.
    pub at: i64,
    /// How far the server is from a clock, in servers; not in nanoseconds.
    pub stratum: u8,
}

/// What came. `at` is `CLOCK_BOOTTIME` in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply<'a> {
    pub bytes: &'a [u8],
    pub from: SocketAddr,
    pub at: i64,
}

/// A question as it goes out.
pub(super) struct Query {
    request: sntpc::SendRequestResult,
    pub packet: [u8; PACKET],
    to: SocketAddr,
    /// When, by `CLOCK_BOOTTIME`.
    sent: i64,
    /// What the packet calls that, in microseconds since the epoch.
    called: i64,
}

impl Query {
    /// A question that goes out now, at `sent`; `guess` is the wall time in nanoseconds as far as it is known.
    pub(super) fn new(to: SocketAddr, sent: i64, guess: i64, random: u64) -> Self {
        let astray = i64::try_from(random & ASTRAY).unwrap_or_default();
        let called = (guess / 1_000).max(EARLIEST_US) + astray;
        let paper = Paper::new(None);
        let context = NtpContext::new(At(called));
        let request = at_once(sntpc::sntp_send_request(to, &paper, context));
        let request = request.expect("paper takes everything");
        let packet = *paper.written.lock().expect("nobody panics with it");
        Self { request, packet, to, sent, called }
    }

    /// What the answer is worth.
    ///
    /// # Errors
    /// It is not to be taken.
    pub(super) fn judge(&self, reply: Reply<'_>) -> Result<Sample, Refusal> {
        let elapsed = (reply.at - self.sent).max(0);
        let received = self.called + elapsed / 1_000;
        let paper = Paper::new(Some(reply));
        let context = NtpContext::new(At(received));
        let judged = at_once(sntpc::sntp_process_response(self.to, &paper, context, self.request));
        let result = judged.map_err(|error| match refusal(error) {
            // Stratum 0 without a word: the server does not know the time itself.
            Refusal::Kiss if !says_a_word(reply.bytes) => Refusal::Unsynchronised,
            other => other,
        })?;
        let times = Times::of(reply.bytes)?;
        if times.distance > LONGEST {
            return Err(Refusal::Distance);
        }
        if elapsed > LONGEST {
            return Err(Refusal::RoundTrip);
        }
        // A microsecond is what sntpc reckons in.
        if times.held < 0 || times.held > elapsed + 1_000 {
            return Err(Refusal::Order);
        }
        let round_trip = (elapsed - times.held).max(0);
        let wall = received.saturating_add(result.offset());
        let said = i64::try_from(result.sec()).map_err(|_| Refusal::Era)?;
        if said.saturating_sub(wall / 1_000_000).abs() > 2 {
            return Err(Refusal::Era);
        }
        Ok(Sample {
            difference: wall.saturating_mul(1_000).saturating_sub(reply.at),
            bound: round_trip / 2 + times.distance + 2_000,
            round_trip,
            at: reply.at,
            stratum: reply.bytes.get(1).copied().unwrap_or_default(),
        })
    }
}

/// What sntpc does not look at, in nanoseconds.
struct Times {
    /// From receipt to answer, by the server's clock.
    held: i64,
    /// Root distance.
    distance: i64,
}

impl Times {
    fn of(bytes: &[u8]) -> Result<Self, Refusal> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            word.map(u32::from_be_bytes).ok_or(Refusal::Short)
        };
        let long = |at| Ok((u64::from(word(at)?) << 32) | u64::from(word(at + 4)?));
        let (received, sent) = (long(32)?, long(40)?);
        if received == 0 || sent == 0 {
            return Err(Refusal::Zero);
        }
        let held = (i128::from(sent.wrapping_sub(received).cast_signed()) * 1_000_000_000) >> 32;
        let distance = u64::from(word(4)? / 2) + u64::from(word(8)?);
        let distance = (i128::from(distance) * 1_000_000_000) >> 16;
        let narrow = |wide: i128| i64::try_from(wide).unwrap_or(i64::MAX);
        Ok(Self { held: narrow(held), distance: narrow(distance) })
    }
}

/// Whether the answer has a kiss code, four letters in the place of the server's own reference.
fn says_a_word(answer: &[u8]) -> bool {
    answer.get(12..16).is_some_and(|code| code.iter().all(u8::is_ascii_uppercase))
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::IncorrectOriginTimestamp => Refusal::Origin,
        Error::IncorrectMode => Refusal::Mode,
        Error::UnsynchronizedClock => Refusal::Unsynchronised,
        Error::InvalidTimestamp => Refusal::Zero,
        Error::ExcessiveRootDistance => Refusal::Distance,
        Error::BackwardReferenceTimestamp => Refusal::Order,
        Error::IncorrectResponseVersion => Refusal::Version,
        Error::IncorrectStratumHeaders => Refusal::Stratum,
        Error::IncorrectPayload => Refusal::Short,
        Error::ResponseAddressMismatch => Refusal::Source,
        Error::KissOfDeath(KissOfDeathCode::Rate) => Refusal::KissRate,
        Error::KissOfDeath(KissOfDeathCode::Deny | KissOfDeathCode::Rstr) => Refusal::KissDeny,
        Error::KissOfDeath(_) => Refusal::Kiss,
        _ => Refusal::Network,
    }
}

/// A clock that stands, in microseconds since the epoch.
#[derive(Clone, Copy)]
struct At(i64);

impl NtpTimestampGenerator for At {
    fn init(&mut self) {}

    fn timestamp_sec(&self) -> u64 {
        (self.0 / 1_000_000).unsigned_abs()
    }

    fn timestamp_subsec_micros(&self) -> u32 {
        u32::try_from(self.0 % 1_000_000).unwrap_or_default()
    }
}

/// What sntpc takes for a socket: it writes on it, and reads what came.
struct Paper<'a> {
    written: Mutex<[u8; PACKET]>,
    reply: Option<Reply<'a>>,
}

impl<'a> Paper<'a> {
    fn new(reply: Option<Reply<'a>>) -> Self {
        Self { written: Mutex::new([0; PACKET]), reply }
    }
}

impl NtpUdpSocket for Paper<'_> {
    async fn send_to(&self, bytes: &[u8], _to: SocketAddr) -> sntpc::Result<usize> {
        self.written.lock().map_err(|_| Error::Network)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    async fn recv_from(&self, buffer: &mut [u8]) -> sntpc::Result<(usize, SocketAddr)> {
        let reply = self.reply.ok_or(Error::Network)?;
        let length = reply.bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&reply.bytes[..length]);
        Ok((length, reply.from))
    }
}

/// The output of a future that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("paper never keeps anybody waiting"),
    }
}

#[cfg(test)]
mod tests;
