use super::*;

/// The other end, and the time since the beginning.
struct Bench {
    socket: UnixDatagram,
    _dir: tempfile::TempDir,
    began: Instant,
}

const WATCHDOG: Duration = Duration::from_secs(40);

fn bench(watchdog: Option<Duration>) -> (Bench, Manager) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let manager = Manager::at(path.as_os_str(), watchdog).unwrap();
    (Bench { socket, _dir: dir, began: manager.beat.0 }, manager)
}

impl Bench {
    fn at(&self, millis: u64) -> Instant {
        self.began + Duration::from_millis(millis)
    }

    /// Everything since it was asked last, one line each.
    fn said(&self) -> Vec<String> {
        let (mut all, mut bytes) = (Vec::new(), [0; 1_024]);
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            all.extend(text.lines().map(str::to_owned));
        }
        all
    }
}

fn line(state: &str, numbers: u32) -> Line {
    Line { state: state.to_owned(), numbers: numbers.to_string() }
}

#[test]
fn before_it_is_subscribed_more_time_is_asked_for_and_after_it_the_watchdog_is_fed() {
    let (bench, mut manager) = bench(Some(WATCHDOG));
    manager.turn(bench.at(0), false, || line("waiting", 0));
    assert_eq!(bench.said(), ["EXTEND_TIMEOUT_USEC=40000000", "STATUS=waiting; 0"]);
    assert_eq!(manager.wake_at(), Some(bench.at(20_000)));
    manager.turn(bench.at(9_999), false, || line("waiting", 0));
    assert!(bench.said().is_empty(), "a sign of life a quarter of the time after the last");
    manager.turn(bench.at(10_000), false, || line("waiting", 0));
    assert_eq!(bench.said(), ["EXTEND_TIMEOUT_USEC=40000000"]);
    manager.turn(bench.at(10_100), true, || line("running", 0));
    assert_eq!(bench.said(), ["READY=1", "WATCHDOG=1", "STATUS=running; 0"]);
    manager.turn(bench.at(30_100), false, || line("running", 0));
    assert_eq!(bench.said(), ["WATCHDOG=1"], "it stays ready");
}

#[test]
fn without_a_watchdog_nothing_wakes_the_loop_once_it_is_ready() {
    let (bench, mut manager) = bench(None);
    manager.turn(bench.at(0), true, || line("running", 0));
    assert_eq!(bench.said(), ["READY=1", "STATUS=running; 0"]);
    assert_eq!(manager.wake_at(), None);
}

#[test]
fn a_state_is_told_after_a_second_and_numbers_after_ten_and_neither_is_forgotten() {
    let (bench, mut manager) = bench(None);
    manager.turn(bench.at(0), true, || line("running", 0));
    bench.said();
    manager.turn(bench.at(10), true, || panic!("it was looked at just now"));
    assert_eq!(manager.wake_at(), Some(bench.at(1_000)));
    manager.turn(bench.at(1_000), true, || line("running", 7));
    assert_eq!((bench.said(), manager.wake_at()), (vec![], Some(bench.at(10_000))));
    manager.turn(bench.at(2_000), true, || line("holding", 7));
    assert_eq!(bench.said(), ["STATUS=holding; 7"]);
    manager.turn(bench.at(12_000), true, || line("holding", 8));
    assert_eq!(bench.said(), ["STATUS=holding; 8"]);
}

#[test]
fn what_blocks_the_loop_is_announced_and_patience_ends_with_the_next_round() {
    let (bench, mut manager) = bench(Some(WATCHDOG));
    manager.step(bench.at(0), 9 * WATCHDOG, "recovering");
    assert_eq!(bench.said(), ["EXTEND_TIMEOUT_USEC=360000000", "STATUS=recovering"]);
    manager.turn(bench.at(1), true, || line("running", 0));
    bench.said();
    manager.step(bench.at(2), 9 * WATCHDOG, "recovering");
    assert_eq!(bench.said(), ["WATCHDOG_USEC=360000000", "WATCHDOG=1", "STATUS=recovering"]);
    manager.turn(bench.at(3), true, || line("running", 0));
    assert_eq!(bench.said()[..2], ["WATCHDOG_USEC=40000000", "WATCHDOG=1"]);
    manager.turn(bench.at(10_003), true, || line("running", 0));
    assert_eq!(bench.said(), ["WATCHDOG=1"]);
}

#[test]
fn a_reload_is_announced_with_its_time_and_ends_with_ready() {
    let (bench, mut manager) = bench(None);
    manager.reloading();
    manager.reloaded(bench.at(0));
    assert!(bench.said().is_empty(), "it is not ready yet, and so it stays");
    manager.turn(bench.at(0), true, || line("running", 0));
    bench.said();
    let before = monotonic_micros();
    manager.reloading();
    let said = bench.said();
    let (_, micros) = said[1].split_once("MONOTONIC_USEC=").unwrap();
    assert!((before..=monotonic_micros()).contains(&micros.parse().unwrap()), "{said:?}");
    assert_eq!(said[0], "RELOADING=1");
    manager.reloaded(bench.at(1));
    manager.turn(bench.at(1), true, || line("running", 0));
    assert_eq!(bench.said(), ["READY=1", "STATUS=running; 0"]);
}

#[test]
fn a_manager_that_takes_nothing_is_told_again_and_holds_nobody_up() {
    let (bench, mut manager) = bench(Some(WATCHDOG));
    let full = std::iter::repeat_with(|| manager.send("X=1\n")).take_while(|&sent| sent).count();
    assert!(full > 0, "it took some");
    manager.turn(bench.at(0), true, || line("running", 0));
    assert_eq!(bench.said().len(), full);
    assert_eq!(manager.wake_at(), Some(bench.at(1_000)));
    manager.turn(bench.at(1_000), true, || line("running", 0));
    assert_eq!(bench.said(), ["READY=1", "WATCHDOG=1", "STATUS=running; 0"]);
}

#[test]
fn a_line_stays_one_line() {
    let state = "refused\nREADY=1".to_owned();
    assert_eq!(status(&Line { state, numbers: String::new() }), "STATUS=refused READY=1\n");
}
