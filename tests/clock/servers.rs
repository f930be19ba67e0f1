//! The keeper of the clock in this process, with short pauses, against servers that do what a test says.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate::clock::{Clock, Keeper, Pace, ServerName, Settings, Source, View};
use tidegate::time::{ClockQuality, Span};

use crate::support::{Manner, PACKET, Seconds, TimeServer, kiss};

const HOUR: Seconds = 3_600;
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(300);

fn pace() -> Pace {
    Pace {
        burst: 2,
        spacing: Duration::from_millis(5),
        patience: Duration::from_millis(100),
        shortest: PAUSE,
        longest: PAUSE * 2,
        quick: Duration::from_millis(40),
        host: Duration::from_millis(40),
        floor: Duration::from_secs(3_600),
    }
}

fn named(server: &TimeServer) -> ServerName {
    let (host, _) = server
        .name()
        .rsplit_once(':')
        .map(|(host, port)| (host.to_owned(), port.to_owned()))
        .expect("a port");
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName { host, port: server.port() }
}

/// A clock that is kept by these servers.
pub struct Kept {
    pub clock: Clock,
    _keeper: Keeper,
}

impl Kept {
    pub fn by(servers: &[&TimeServer]) -> Self {
        let servers = servers.iter().map(|server| named(server)).collect();
        Self::with(Settings { source: Source::Sntp, servers, pace: pace(), trust_host: false })
    }

    fn with(settings: Settings) -> Self {
        let clock = Clock::start_with(settings);
        Self { _keeper: Keeper::start(&clock), clock }
    }

    /// Waits until this is so.
    async fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !so(self) {
            let Kept { clock, .. } = self;
            assert!(
                Instant::now() < deadline,
                "never {what}: {:?} {:?}",
                clock.status(),
                clock.view()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn becomes(&self, quality: ClockQuality) {
        self.until(&format!("{quality:?}"), |kept| kept.quality() == quality).await;
    }

    async fn refuses(&self, reason: &str, times: u64) {
        self.until(reason, |kept| kept.refused(reason) >= times).await;
    }

    fn quality(&self) -> ClockQuality {
        self.clock.status().quality
    }

    fn view(&self) -> View {
        self.clock.view()
    }

    fn refused(&self, reason: &str) -> u64 {
        self.view().refused.get(reason).copied().unwrap_or_default()
    }

    /// How far it is ahead of the machine's clock, in milliseconds.
    fn ahead(&self) -> i64 {
        let before = machine();
        let shown = self.clock.now().wall.0;
        shown - i64::midpoint(before, machine())
    }

    fn is_ahead(&self, seconds: Seconds) {
        let off = self.ahead() - seconds * 1_000;
        assert!(off.abs() <= 10, "{off} ms");
    }
}

fn machine() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("in range")
}

#[tokio::test]
async fn the_clock_follows_a_server_that_is_hours_away_from_the_host() {
    for hours in [2, -2] {
        let server = TimeServer::start(Manner::ahead(hours * HOUR));
        let kept = Kept::by(&[&server]);
        kept.becomes(ClockQuality::Synchronised).await;
        kept.is_ahead(hours * HOUR);
        let jumps = kept.clock.take_jumps();
        assert_eq!(jumps.len(), 1, "{jumps:?}");
        assert!(jumps[0].first && (jumps[0].shift.0 - hours * HOUR * 1_000).abs() <= 10);
        assert_eq!(jumps[0].source.to_string(), server.name());
        let view = kept.view();
        assert_eq!(view.reference.expect("it was taken").0.to_string(), server.name());
        assert!(view.bound.expect("known") < Span(100), "{:?}", view.bound);
    }
}

#[tokio::test]
async fn a_server_is_asked_by_name_and_over_ipv6() {
    let server = TimeServer::start_at("[::1]:0", Manner::ahead(HOUR));
    let kept = Kept::by(&[&server]);
    kept.becomes(ClockQuality::Synchronised).await;
    kept.is_ahead(HOUR);

    // Where localhost is ::1 too, nobody listens there.
    let server = TimeServer::start(Manner::ahead(HOUR));
    let servers = vec![ServerName { host: "localhost".into(), port: server.port() }];
    let settings = Settings { source: Source::Sntp, servers, pace: pace(), ..Settings::default() };
    let kept = Kept::with(settings);
    kept.becomes(ClockQuality::Synchronised).await;
    kept.is_ahead(HOUR);
}

/// What is done to an answer, and how that is counted.
type Bad = (&'static str, fn(&mut [u8; PACKET]));

const BAD: &[Bad] = &[
    ("origin", |packet| packet[30] ^= 1),
    ("mode", |packet| packet[0] = 0o45),
    ("version", |packet| packet[0] = 0o54),
    ("unsynchronised", |packet| packet[0] = 0o344),
    ("stratum", |packet| packet[1] = 16),
    ("zero", |packet| packet[32..40].fill(0)),
    ("zero", |packet| packet[40..48].fill(0)),
    ("distance", |packet| packet[9] = 2),
    ("order", |packet| packet[35] = packet[35].wrapping_add(10)),
    ("kiss", |packet| kiss(packet, *b"STEP")),
];

#[tokio::test]
async fn a_bad_answer_is_counted_by_its_reason_and_moves_nothing() {
    let server = TimeServer::start(Manner::silent());
    let kept = Kept::by(&[&server]);
    kept.refuses("silent", 2).await;
    for (reason, change) in BAD {
        server.set(Manner { ahead: HOUR, ..Manner::changed(*change) });
        kept.refuses(reason, kept.refused(reason) + 2).await;
    }
    server.set(Manner { elsewhere: true, ..Manner::ahead(HOUR) });
    kept.refuses("source", 2).await;
    server.set(Manner::ahead(75 * 366 * 24 * HOUR));
    kept.refuses("era", 2).await;
    assert_eq!(kept.quality(), ClockQuality::Unsynchronised);
    kept.is_ahead(0);
    server.set(Manner::ahead(HOUR));
    kept.becomes(ClockQuality::Synchronised).await;
    kept.is_ahead(HOUR);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_question() {
    let late = Duration::from_millis(130);
    let server = TimeServer::start(Manner { late, ..Manner::ahead(HOUR) });
    let kept = Kept::by(&[&server]);
    kept.refuses("silent", 8).await;
    assert_eq!(kept.quality(), ClockQuality::Unsynchronised);
    assert_eq!(kept.view().refused.len(), 1, "{:?}", kept.view());
}

#[tokio::test]
async fn a_kiss_of_death_is_heeded_by_its_kind() {
    let [rate, deny, other] = [
        Manner::changed(|packet| kiss(packet, *b"RATE")),
        Manner::changed(|packet| kiss(packet, *b"DENY")),
        Manner::changed(|packet| kiss(packet, *b"INIT")),
    ]
    .map(TimeServer::start);
    let kept = Kept::by(&[&rate, &deny, &other]);
    kept.refuses("kiss", 10).await;
    assert_eq!((deny.asked(), kept.refused("kiss-deny")), (1, 1));
    assert_eq!(kept.view().banned, [deny.name()]);
    let (asked, pauses) = (rate.asked(), other.asked());
    assert!(asked <= 3 && asked < pauses / 2, "{asked} of {pauses}");
    // After its rest it is asked again; the one that refused is not, whatever it would say.
    for server in [&rate, &deny] {
        server.set(Manner::ahead(HOUR));
    }
    kept.becomes(ClockQuality::Synchronised).await;
    assert_eq!(kept.view().reference.expect("taken").0.to_string(), rate.name());
    assert_eq!(deny.asked(), 1);
}

#[tokio::test]
async fn a_jump_to_2036_for_a_while_is_doubted_and_not_taken() {
    let server = TimeServer::start(Manner::ahead(0));
    let pace = Pace { shortest: Duration::from_secs(1), ..pace() };
    let servers = vec![named(&server)];
    let kept = Kept::with(Settings { source: Source::Sntp, servers, pace, trust_host: false });
    kept.becomes(ClockQuality::Synchronised).await;
    server.set(Manner::ahead(10 * 365 * 24 * HOUR));
    kept.becomes(ClockQuality::Suspect).await;
    assert!(kept.view().doubted.is_some_and(|shift| shift > Span::from_hours(9 * 365 * 24)));
    kept.is_ahead(0);
    let believed = kept.becomes(ClockQuality::Synchronised);
    let soon = tokio::time::timeout(Duration::from_millis(500), believed).await;
    assert!(soon.is_err(), "it is confirmed after a pause of a second only");
    server.set(Manner::ahead(0));
    kept.becomes(ClockQuality::Synchronised).await;
    kept.is_ahead(0);
    assert!(kept.clock.take_jumps().is_empty());
}

#[tokio::test]
async fn a_step_of_two_hours_and_the_change_of_era_are_taken_when_they_are_said_again() {
    let server = TimeServer::start(Manner::ahead(0));
    let kept = Kept::by(&[&server]);
    kept.becomes(ClockQuality::Synchronised).await;
    // 2036-02-07 06:28:16, when the seconds of packets begin again, is behind the third of these.
    for ahead in [2 * HOUR, -2 * HOUR, 10 * 366 * 24 * HOUR] {
        server.set(Manner::ahead(ahead));
        kept.becomes(ClockQuality::Suspect).await;
        kept.becomes(ClockQuality::Synchronised).await;
        kept.is_ahead(ahead);
        let jumps = kept.clock.take_jumps();
        assert_eq!((jumps.len(), jumps[0].first), (1, false), "{jumps:?}");
        let slack = (jumps[0].to.0 - machine() - ahead * 1_000).abs();
        assert!(slack < 10_000, "{slack}");
    }
}

#[tokio::test]
async fn silence_is_holdover_until_somebody_answers() {
    let server = TimeServer::start(Manner::ahead(HOUR));
    // So long that nothing is stale before it has failed.
    let pace = Pace { longest: Duration::from_secs(60), ..pace() };
    let servers = vec![named(&server)];
    let kept = Kept::with(Settings { source: Source::Sntp, servers, pace, trust_host: false });
    kept.becomes(ClockQuality::Synchronised).await;
    server.set(Manner::silent());
    kept.becomes(ClockQuality::Holdover).await;
    assert!(kept.clock.status().is_good(Span::from_mins(2)));
    kept.is_ahead(HOUR);
    server.set(Manner::ahead(HOUR));
    kept.becomes(ClockQuality::Synchronised).await;
}

#[tokio::test]
async fn one_liar_of_three_is_outvoted_and_two_that_contradict_each_other_are_not_believed() {
    let [right, wrong, also_right] = [0, 2 * HOUR, 0].map(Manner::ahead).map(TimeServer::start);
    let kept = Kept::by(&[&right, &wrong, &also_right]);
    kept.becomes(ClockQuality::Synchronised).await;
    kept.refuses("minority", 2).await;
    kept.is_ahead(0);

    let kept = Kept::by(&[&right, &wrong]);
    kept.until("a disagreement", |kept| kept.view().disagreement).await;
    assert_eq!(kept.quality(), ClockQuality::Unsynchronised);
    wrong.set(Manner::ahead(0));
    kept.becomes(ClockQuality::Synchronised).await;
    // Now our own clock is a witness.
    right.set(Manner::ahead(2 * HOUR));
    kept.refuses("minority", 3).await;
    kept.is_ahead(0);
    assert_eq!(kept.quality(), ClockQuality::Synchronised);
}

#[tokio::test]
async fn a_name_without_an_address_is_counted_and_the_host_stands_in_where_it_may() {
    let servers = vec![ServerName { host: "no-such-host.invalid".into(), port: 123 }];
    let sntp = Settings { source: Source::Sntp, servers, pace: pace(), trust_host: false };
    let kept = Kept::with(sntp.clone());
    kept.refuses("name", 2).await;
    assert_eq!(kept.quality(), ClockQuality::Unsynchronised);

    let kept = Kept::with(Settings { source: Source::Auto, trust_host: true, ..sntp });
    kept.becomes(ClockQuality::Synchronised).await;
    assert_eq!(kept.view().reference.expect("taken").0.to_string(), "host");
}

#[tokio::test]
async fn a_server_that_comes_back_is_believed_rather_than_the_host() {
    let server = TimeServer::start(Manner::silent());
    let servers = vec![named(&server)];
    let settings = Settings { source: Source::Auto, servers, pace: pace(), trust_host: true };
    let kept = Kept::with(settings);
    kept.becomes(ClockQuality::Synchronised).await;
    server.set(Manner::ahead(HOUR));
    kept.until("the server", |kept| kept.ahead() > 1_000_000).await;
    kept.is_ahead(HOUR);
    // The host says otherwise, and may not move what a server said as long as that is worth something.
    server.set(Manner::silent());
    kept.becomes(ClockQuality::Holdover).await;
    kept.is_ahead(HOUR);
    assert!(kept.view().host_away.is_some_and(|away| away < Span::from_mins(-59)));
    server.set(Manner::ahead(HOUR));
    kept.becomes(ClockQuality::Synchronised).await;
    assert_eq!(kept.view().host_away, None);
}

#[tokio::test]
async fn who_waits_for_news_is_told_of_every_change() {
    let server = TimeServer::start(Manner::silent());
    let kept = Kept::by(&[&server]);
    server.set(Manner::ahead(HOUR));
    while kept.quality() != ClockQuality::Synchronised {
        let news = tokio::time::timeout(PATIENCE, kept._keeper.changed()).await;
        news.expect("it is told");
    }
    server.set(Manner::silent());
    while kept.quality() != ClockQuality::Holdover {
        let news = tokio::time::timeout(PATIENCE, kept._keeper.changed()).await;
        news.expect("it is told");
    }
}
