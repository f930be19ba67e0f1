//! The agent as a service of systemd (`Type=notify`): what it tells, and what systemd would do about it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::agent::{Agent, PATIENCE, command};
use crate::fleet::{self, HOUR, sample};
use crate::setup::{Options, Setup};
use crate::status::with_short_files;
use crate::support::Broker;

/// One assignment, and when it came.
type Told = (Instant, String);

/// The service manager's end of the socket.
struct Manager {
    address: String,
    told: Arc<(Mutex<Vec<Told>>, Condvar)>,
}

/// As in a unit. `systemd.service(5)` says what they do.
#[derive(Clone, Copy)]
struct Unit {
    timeout_start: Duration,
    watchdog: Option<Duration>,
}

impl Manager {
    fn at(address: String, socket: UnixDatagram) -> Self {
        let told = Arc::<(Mutex<Vec<Told>>, Condvar)>::default();
        let telling = told.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                // The lock is poisoned by a test that has failed.
                let Ok(mut told) = telling.0.lock() else { return };
                told.extend(text.lines().map(|line| (Instant::now(), line.to_owned())));
                telling.1.notify_all();
            }
        });
        Self { address, told }
    }

    /// With a socket in the file system, as systemd's own.
    fn start(setup: &Setup) -> Self {
        let path = setup.dir().join("notify");
        let socket = UnixDatagram::bind(&path).expect("the directory is ours");
        Self::at(path.display().to_string(), socket)
    }

    /// With an abstract one, as of some container managers.
    fn abstract_one() -> Self {
        let name = format!("tidegate-test-{:x}", fastrand::u64(..));
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let socket = UnixDatagram::bind_addr(&address).expect("a name of our own");
        Self::at(format!("@{name}"), socket)
    }

    fn service(&self, setup: &Setup, unit: Unit) -> Command {
        let mut service = command(&setup.config(), "run");
        service.env("NOTIFY_SOCKET", &self.address);
        if let Some(watchdog) = unit.watchdog {
            service.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        service
    }

    fn all(&self) -> Vec<Told> {
        self.told.0.lock().expect("no panic inside").clone()
    }

    /// How often it was told something that begins so.
    fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|(_, line)| line.starts_with(what)).count()
    }

    /// Waits until it was told something that begins so, this many times in all. When that was.
    fn hears(&self, what: &str, times: usize) -> Instant {
        let deadline = Instant::now() + PATIENCE;
        let mut told = self.told.0.lock().expect("no panic inside");
        loop {
            let found = told.iter().filter(|(_, line)| line.starts_with(what)).nth(times - 1);
            if let Some((at, _)) = found {
                return *at;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "never told {what:?} {times} times: {told:#?}");
            told = self.told.1.wait_timeout(told, left).expect("no panic inside").0;
        }
    }

    /// When systemd would have killed the service that was started at `began`, if it would have by `now`.
    fn kills(&self, unit: Unit, began: Instant, now: Instant) -> Option<Instant> {
        let mut deadline = Some(began + unit.timeout_start);
        let (mut ready, mut watchdog) = (false, unit.watchdog);
        let passed = |deadline: Option<Instant>, at| deadline.filter(|deadline| *deadline < at);
        for (at, line) in self.all() {
            if let Some(killed) = passed(deadline, at) {
                return Some(killed);
            }
            let (name, value) = line.split_once('=').expect("an assignment");
            let micros = || Duration::from_micros(value.parse().expect("microseconds"));
            match name {
                "EXTEND_TIMEOUT_USEC" if !ready => deadline = deadline.max(Some(at + micros())),
                "WATCHDOG_USEC" => watchdog = Some(micros()),
                "READY" => ready = true,
                "STOPPING" => return None,
                _ => {}
            }
            if matches!(name, "WATCHDOG_USEC" | "WATCHDOG" | "READY") && ready {
                deadline = watchdog.map(|watchdog| at + watchdog);
            }
        }
        passed(deadline, now)
    }

    /// Waits until systemd would have killed it.
    fn loses_patience(&self, unit: Unit, began: Instant) {
        let deadline = Instant::now() + PATIENCE;
        while self.kills(unit, began, Instant::now()).is_none() {
            assert!(Instant::now() < deadline, "it is fed for ever: {:#?}", self.all());
            std::thread::yield_now();
        }
    }
}

const UNIT: Unit =
    Unit { timeout_start: Duration::from_secs(2), watchdog: Some(Duration::from_secs(3)) };

#[test]
fn ready_comes_with_the_subscription_and_until_then_more_time_is_asked_for() {
    let mut setup = Setup::absent(Broker::absent(), &Options::default());
    let manager = Manager::abstract_one();
    let began = Instant::now();
    let agent = Agent::spawn(manager.service(&setup, UNIT));
    manager.hears("STATUS=waiting for the devices' broker, mqtt://127.0.0.1:", 1);
    // Longer than the start may take.
    while began.elapsed() < 2 * UNIT.timeout_start {
        let so_far = manager.count("EXTEND_TIMEOUT_USEC=");
        manager.hears("EXTEND_TIMEOUT_USEC=", so_far + 1);
    }
    assert_eq!((manager.count("READY=1"), manager.count("WATCHDOG=1")), (0, 0));

    setup.devices.run();
    let ready = manager.hears("READY=1", 1);
    manager.hears("STATUS=running; clock synchronised; 0 devices, ", 1);
    assert_eq!(manager.kills(UNIT, began, ready), None, "{:#?}", manager.all());
    agent.stop();
    manager.hears("STOPPING=1", 1);
    manager.hears("STATUS=leaving", 1);
}

/// Pain 40: recovering takes three times as long as a start may, then nothing happens for three times the watchdog.
#[test]
fn pain_40_neither_a_long_recovery_nor_a_quiet_time_is_the_end_of_the_service() {
    let setup = Setup::new();
    let manager = Manager::start(&setup);
    let unit = Unit { timeout_start: Duration::from_secs(1), ..UNIT };
    let mut service = manager.service(&setup, unit);
    service.env("TIDEGATE_HOLD_AT", "recovering:1:3000");
    let began = Instant::now();
    let mut agent = Agent::spawn(service);
    manager.hears("STATUS=recovering the store", 1);
    agent.hears("holding at recovering");
    let ready = manager.hears("READY=1", 1);
    assert!(ready - began >= 3 * unit.timeout_start, "the recovery was a long one");
    while ready.elapsed() < 3 * unit.watchdog.expect("there is one") {
        let so_far = manager.count("WATCHDOG=1");
        manager.hears("WATCHDOG=1", so_far + 1);
    }
    assert_eq!(manager.kills(unit, began, Instant::now()), None, "{:#?}", manager.all());
    agent.stop();
}

#[test]
fn pain_40_a_commit_that_never_ends_is_not_fed() {
    let setup = Setup::new();
    let manager = Manager::start(&setup);
    let mut service = manager.service(&setup, UNIT);
    // The first is that of the start.
    service.env("TIDEGATE_HOLD_AT", "committing:3");
    let began = Instant::now();
    let mut agent = Agent::spawn(service);
    manager.hears("READY=1", 1);
    while agent.count(&["holding at committing"]) == 0 {
        setup.publish(&[sample("north", "m1", fleet::now(), 1.5)]);
    }
    agent.hears("holding at committing");
    manager.loses_patience(UNIT, began);
}

#[test]
fn pain_40_a_loop_that_hangs_is_not_fed() {
    let setup = Setup::new();
    let manager = Manager::start(&setup);
    let mut service = manager.service(&setup, UNIT);
    service.env("TIDEGATE_HOLD_AT", "receiving:1");
    let began = Instant::now();
    let mut agent = Agent::spawn(service);
    manager.hears("WATCHDOG=1", 1);
    setup.publish(&[sample("north", "m1", fleet::now(), 1.5)]);
    agent.hears("holding at receiving");
    manager.loses_patience(UNIT, began);
}

#[test]
fn a_store_that_failed_is_told_of_and_the_watchdog_is_fed_until_it_is_open_again() {
    let setup = Setup::new();
    let manager = Manager::start(&setup);
    // There are commits of a thousand devices in it.
    let unit = Unit { watchdog: Some(Duration::from_secs(8)), ..UNIT };
    let began = Instant::now();
    let mut agent = Agent::spawn(with_short_files(&manager.service(&setup, unit), 1_024));
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let mut rounds = 0..60;
    while agent.count(&["the store failed"]) == 0 {
        let round = rounds.next().expect("it never fails") * 1_000;
        let device = |number: i64| format!("m{}", round + number);
        let messages: Vec<_> =
            (0..1_000).map(|number| sample("north", &device(number), hour, 1.5)).collect();
        setup.publish(&messages);
    }
    manager.hears("STATUS=the store failed, and is opened again after ", 1);
    let failed = Instant::now();
    // Opening it blocks the loop: five minutes, and a second for each MiB.
    manager.hears("WATCHDOG_USEC=30", 1);
    manager.hears("WATCHDOG_USEC=8000000", 1);
    while failed.elapsed() < unit.watchdog.expect("there is one") {
        let so_far = manager.count("WATCHDOG=1");
        manager.hears("WATCHDOG=1", so_far + 1);
    }
    assert_eq!(manager.kills(unit, began, Instant::now()), None, "{:#?}", manager.all());
    assert_eq!(manager.count("READY=1"), 1, "it is not started anew");
}

#[test]
fn a_watchdog_of_another_process_is_not_ours() {
    let setup = Setup::new();
    let manager = Manager::start(&setup);
    let mut service = manager.service(&setup, UNIT);
    service.env("WATCHDOG_PID", "1");
    let agent = Agent::spawn(service);
    manager.hears("STATUS=running", 1);
    agent.stop();
    manager.hears("STOPPING=1", 1);
    assert_eq!(manager.count("WATCHDOG=1"), 0);
}
