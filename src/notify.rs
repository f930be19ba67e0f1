//! What the service manager is told (systemd, `Type=notify`): that we are ready, how it is in one line, that we live.
//!
//! Without `NOTIFY_SOCKET` nothing is told and nothing is done. Everything is said by the loop of the agent itself, as it
//! comes round ([`Notify::turn`]), and never by a task beside it: a loop that hangs is not to look alive. What blocks the
//! loop by design, such as opening the store, says before how long it may take ([`Notify::step`]).
//!
//! `docs/decisions/0039-what-systemd-is-told.md` has the reasons.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

/// How long the loop may take for one round where no watchdog says so.
const WITHOUT_WATCHDOG: Duration = Duration::from_secs(120);

/// Shortest pause between two looks at what the line would say, and before what could not be said is said again.
const LOOK: Duration = Duration::from_secs(1);

/// Shortest pause between two lines that differ only in their numbers.
const NUMBERS: Duration = Duration::from_secs(10);

/// How many restored records are worth a look at the time.
const RECORDS: u64 = 1_024;

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notify(Option<Manager>);

/// One line for people, in two parts. A change of the first is told at once, one of the second after a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// What the agent does, and what is not well.
    pub state: String,
    /// How much of everything; may be empty.
    pub numbers: String,
}

/// What the service manager believes of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Starting,
    Ready,
    Reloading,
    Leaving,
}

#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    stage: Stage,
    /// Whether there is a watchdog.
    watched: bool,
    /// A round of the loop that takes longer is a hang.
    hang: Duration,
    /// The watchdog was told to be more patient.
    patient: bool,
    /// When the next sign of life may be given, and when it has to be.
    beat: (Instant, Instant),
    /// The line may not be looked at before.
    look_from: Instant,
    /// It has to be looked at then.
    look_at: Option<Instant>,
    /// What it said, and since when.
    told: Option<(Line, Instant)>,
}

impl Notify {
    /// Nobody is told anything.
    pub fn silent() -> Self {
        Self(None)
    }

    /// As the service manager wants it: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_env() -> Self {
        let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::silent();
        };
        let ours = |pid: &OsString| pid == std::process::id().to_string().as_str();
        let watched = std::env::var_os("WATCHDOG_PID").as_ref().is_none_or(ours);
        let micros = std::env::var("WATCHDOG_USEC").ok().filter(|_| watched);
        let micros = micros.and_then(|text| text.parse().ok()).filter(|&micros: &u64| micros > 0);
        let manager = Manager::at(&socket, micros.map(Duration::from_micros));
        if let Err(error) = &manager {
            warn!(?socket, %error, "the service manager cannot be told anything");
        }
        Self(manager.ok())
    }

    /// When the loop has to come round although nothing happens. In the past only until the next [`Self::turn`].
    pub fn wake_at(&self) -> Option<Instant> {
        self.0.as_ref().and_then(Manager::wake_at)
    }

    /// The loop has come round: something was waited for, handled, and committed if it was to be. Ready from the first
    /// time on that the agent is `subscribed`; `line` is asked for once a second at the most.
    pub fn turn(&mut self, subscribed: bool, line: impl FnOnce() -> Line) {
        if let Some(manager) = &mut self.0 {
            manager.turn(Instant::now(), subscribed, line);
        }
    }

    /// What follows blocks the loop, for so long at the most; what takes longer is a hang. A round of the loop, where
    /// that is more.
    pub fn step(&mut self, longest: Duration, state: &str) {
        if let Some(manager) = &mut self.0 {
            manager.step(Instant::now(), longest, state);
        }
    }

    /// So many records are restored, and it goes on.
    pub fn restored(&mut self, records: u64) {
        if let Some(manager) = self.0.as_mut().filter(|_| records.is_multiple_of(RECORDS)) {
            manager.restored(Instant::now(), records);
        }
    }

    /// The configuration is read again. [`Self::ready`] has to follow, however that ends.
    pub fn reloading(&mut self) {
        if let Some(manager) = &mut self.0 {
            manager.reloading();
        }
    }

    /// The configuration was read again, or refused. Before the agent was first subscribed it says nothing.
    pub fn ready(&mut self) {
        if let Some(manager) = &mut self.0 {
            manager.reloaded(Instant::now());
        }
    }

    /// We leave. Each [`Self::step`] from now on asks for more time.
    pub fn stopping(&mut self, state: &str) {
        if let Some(manager) = &mut self.0 {
            manager.stage = Stage::Leaving;
            manager.send("STOPPING=1\n");
        }
        self.step(Duration::ZERO, state);
    }
}

impl Manager {
    fn at(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "no such kind of address")),
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that is busy is no reason to stand still.
        socket.set_nonblocking(true)?;
        let now = Instant::now();
        Ok(Self {
            socket,
            address,
            stage: Stage::Starting,
            watched: watchdog.is_some(),
            hang: watchdog.unwrap_or(WITHOUT_WATCHDOG),
            patient: false,
            beat: (now, now),
            look_from: now,
            look_at: None,
            told: None,
        })
    }

    fn wake_at(&self) -> Option<Instant> {
        let beat = Some(self.beat.1).filter(|_| self.beats());
        beat.into_iter().chain(self.look_at).min()
    }

    fn turn(&mut self, now: Instant, subscribed: bool, line: impl FnOnce() -> Line) {
        let ready = subscribed && self.stage == Stage::Starting && self.send("READY=1\n");
        if ready {
            self.stage = Stage::Ready;
            (self.beat, self.look_from) = ((now, now), now);
        }
        self.give_sign(now);
        self.look(now, line);
    }

    /// Whether signs of life are wanted.
    fn beats(&self) -> bool {
        self.watched || self.stage == Stage::Starting
    }

    /// Says that we live, when that is due.
    fn give_sign(&mut self, now: Instant) {
        if !self.beats() || now < self.beat.0 {
            return;
        }
        let sign = self.sign(self.hang);
        self.beat = match self.send(&sign) {
            true => (now + self.hang / 4, now + self.hang / 2),
            false => (now + LOOK, now + LOOK),
        };
    }

    /// What says that we live, and for how long there may be nothing more.
    fn sign(&mut self, longest: Duration) -> String {
        let micros = longest.max(self.hang).as_micros();
        let patient = longest > self.hang;
        let was_patient = std::mem::replace(&mut self.patient, patient);
        match self.stage {
            Stage::Starting => format!("EXTEND_TIMEOUT_USEC={micros}\n"),
            Stage::Leaving if self.watched => format!("EXTEND_TIMEOUT_USEC={micros}\nWATCHDOG=1\n"),
            Stage::Leaving => format!("EXTEND_TIMEOUT_USEC={micros}\n"),
            Stage::Ready | Stage::Reloading if !self.watched => String::new(),
            Stage::Ready | Stage::Reloading if patient || was_patient => {
                format!("WATCHDOG_USEC={micros}\nWATCHDOG=1\n")
            }
            Stage::Ready | Stage::Reloading => "WATCHDOG=1\n".to_owned(),
        }
    }

    /// Tells the line, when it is another one.
    fn look(&mut self, now: Instant, line: impl FnOnce() -> Line) {
        self.look_at = Some(self.look_from).filter(|&from| now < from);
        if self.look_at.is_some() {
            return;
        }
        self.look_from = now + LOOK;
        let line = line();
        let wait = match &self.told {
            Some((told, _)) if *told == line => return,
            Some((told, at)) if told.state == line.state => Some(*at + NUMBERS),
            _ => None,
        };
        self.look_at = wait.filter(|&until| now < until);
        if self.look_at.is_none() && self.send(&status(&line)) {
            self.told = Some((line, now));
        }
    }

    fn step(&mut self, now: Instant, longest: Duration, state: &str) {
        let line = Line { state: state.to_owned(), ..Line::default() };
        let sign = self.sign(longest);
        self.send(&format!("{sign}{}", status(&line)));
        self.told = Some((line, now));
        // Patience ends with the next round.
        (self.beat, self.look_from) = ((now, now), now);
    }

    fn restored(&mut self, now: Instant, records: u64) {
        let due = self.told.as_ref().is_none_or(|(_, at)| now >= *at + LOOK);
        if due {
            self.step(now, Duration::ZERO, &format!("recovering the store: {records} records"));
        }
    }

    fn reloading(&mut self) {
        if self.stage == Stage::Ready {
            self.stage = Stage::Reloading;
            let since = monotonic_micros();
            self.send(&format!(
                "RELOADING=1\nMONOTONIC_USEC={since}\nSTATUS=reading the configuration again\n"
            ));
            self.told = None;
        }
    }

    fn reloaded(&mut self, now: Instant) {
        if self.stage == Stage::Reloading {
            // Not sent, it is said with the next round that finds us subscribed.
            self.stage = if self.send("READY=1\n") { Stage::Ready } else { Stage::Starting };
            (self.beat, self.look_from) = ((now, now), now);
        }
    }

    /// Whether it is on its way. What is not is no reason to stop working.
    fn send(&mut self, message: &str) -> bool {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
        if let Err(error) = &sent {
            debug!(%error, "the service manager is not told");
            self.look_at = Some(self.look_from);
        }
        sent.is_ok()
    }
}

fn status(line: &Line) -> String {
    let mut text = String::from("STATUS=");
    let between = if line.numbers.is_empty() { "" } else { "; " };
    // Writing into a text does not fail.
    let _ = write!(text, "{}{between}{}", line.state, line.numbers);
    // A line of its own would be another message.
    let mut text = text.replace(char::is_control, " ");
    text.push('\n');
    text
}

/// `CLOCK_MONOTONIC`, as the service manager compares it.
#[expect(unsafe_code, reason = "the standard library does not tell its monotonic clock")]
fn monotonic_micros() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the duration of the call. It cannot fail: the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // The fields are 32 bits wide on some ARM targets.
    #[allow(clippy::useless_conversion, clippy::cast_lossless, reason = "depends on the target")]
    let (seconds, nanoseconds) = (i64::from(time.tv_sec), i64::from(time.tv_nsec));
    seconds * 1_000_000 + nanoseconds / 1_000
}

#[cfg(test)]
mod tests;
