use super::*;

const SECOND: i64 = 1_000_000_000;
const NOVEMBER: i64 = 1_795_953_600 * SECOND;

/// Seconds and fraction of the time scale of packets.
fn ntp(nanos: i64) -> u64 {
    let nanos = i128::from(nanos) + 2_208_988_800 * 1_000_000_000;
    u64::try_from(((nanos << 32) / 1_000_000_000) & i128::from(u64::MAX)).unwrap()
}

fn server() -> SocketAddr {
    "192.0.2.1:123".parse().unwrap()
}

/// A server that is right, and what a test makes of its answer.
struct World {
    /// What our clock shows, and what it is; the difference of both from `CLOCK_BOOTTIME` is the same as long as we are
    /// right.
    ours: i64,
    truth: i64,
    /// On the way there, at the server, and on the way back.
    there: i64,
    held: i64,
    back: i64,
    change: fn(&mut [u8; PACKET]),
    from: SocketAddr,
    length: usize,
}

const BOOT: i64 = 77 * SECOND + 123_456_789;

impl World {
    fn new() -> Self {
        Self {
            ours: NOVEMBER,
            truth: NOVEMBER,
            there: 2_000_000,
            held: 1_000_000,
            back: 2_000_000,
            change: |_| {},
            from: server(),
            length: PACKET,
        }
    }

    fn ask(&self) -> Result<Sample, Refusal> {
        let query = Query::new(server(), BOOT, self.ours, 987_654_321);
        let mut packet = [0; PACKET];
        packet[0] = 0o44;
        (packet[1], packet[3]) = (2, 0xEC);
        packet[24..32].copy_from_slice(&query.packet[40..48]);
        packet[32..40].copy_from_slice(&ntp(self.truth + self.there).to_be_bytes());
        packet[40..48].copy_from_slice(&ntp(self.truth + self.there + self.held).to_be_bytes());
        (self.change)(&mut packet);
        let at = BOOT + self.there + self.held + self.back;
        query.judge(Reply { bytes: &packet[..self.length], from: self.from, at })
    }

    fn off(&self) -> i64 {
        let sample = self.ask().unwrap();
        sample.difference - (self.truth - BOOT)
    }
}

fn refused(change: fn(&mut [u8; PACKET])) -> Refusal {
    World { change, ..World::new() }.ask().unwrap_err()
}

#[test]
fn a_good_answer_gives_the_time_its_bound_and_the_way_it_was_on() {
    let sample = World::new().ask().unwrap();
    assert!((sample.difference - (NOVEMBER - BOOT)).abs() < 3_000, "{sample:?}");
    assert!((sample.round_trip - 4_000_000).abs() < 10, "{sample:?}");
    assert_eq!(sample.bound, sample.round_trip / 2 + 2_000);
    let slanted = World { there: 9_000_000, back: 1_000_000, ..World::new() };
    let (off, bound) = (slanted.off(), slanted.ask().unwrap().bound);
    assert!(off.abs() > 3_900_000 && off.abs() <= bound, "{off} of {bound}");
}

#[test]
fn what_the_servers_above_may_be_off_by_is_part_of_the_bound() {
    let world = World {
        change: |packet| {
            packet[4..8].copy_from_slice(&0x0000_4000_u32.to_be_bytes());
            packet[8..12].copy_from_slice(&0x0000_8000_u32.to_be_bytes());
        },
        ..World::new()
    };
    let bound = world.ask().unwrap().bound;
    assert!((bound - 2_002_000 - SECOND / 8 - SECOND / 2).abs() < 10, "{bound}");
}

#[test]
fn an_answer_that_is_none_is_refused_by_its_reason() {
    assert_eq!(refused(|packet| packet[27] ^= 1), Refusal::Origin);
    assert_eq!(refused(|packet| packet[24..32].fill(0)), Refusal::Origin);
    assert_eq!(refused(|packet| packet[0] = 0o344), Refusal::Unsynchronised);
    assert_eq!(refused(|packet| packet[0] = 0o45), Refusal::Mode);
    assert_eq!(refused(|packet| packet[0] = 0o43), Refusal::Mode);
    assert_eq!(refused(|packet| packet[0] = 0o04), Refusal::Version);
    assert_eq!(refused(|packet| packet[0] = 0o54), Refusal::Version);
    assert_eq!(refused(|packet| packet[1] = 16), Refusal::Stratum);
    assert_eq!(refused(|packet| packet[1] = 255), Refusal::Stratum);
    assert_eq!(refused(|packet| packet[32..40].fill(0)), Refusal::Zero);
    assert_eq!(refused(|packet| packet[40..48].fill(0)), Refusal::Zero);
    assert_eq!(
        refused(|packet| (packet[9], packet[11]) = (1, 1)),
        Refusal::Distance,
        "1 s and a bit"
    );
    assert_eq!(refused(|packet| packet[9] = 200), Refusal::Distance);
    for (code, refusal) in [
        (b"RATE", Refusal::KissRate),
        (b"DENY", Refusal::KissDeny),
        (b"RSTR", Refusal::KissDeny),
        (b"STEP", Refusal::Kiss),
        (b"XXXX", Refusal::Kiss),
    ] {
        assert_eq!(super::refusal(Error::KissOfDeath(kod(*code))), refusal);
    }
    let kiss = refused(|packet| {
        packet[1] = 0;
        packet[12..16].copy_from_slice(b"STEP");
    });
    assert_eq!(kiss, Refusal::Kiss);
    // So answers a server that does not know the time itself.
    assert_eq!(refused(|packet| packet[1] = 0), Refusal::Unsynchronised);
    let short = World { length: 47, ..World::new() };
    assert_eq!(short.ask(), Err(Refusal::Short));
    let stranger = World { from: "192.0.2.2:123".parse().unwrap(), ..World::new() };
    assert_eq!(stranger.ask(), Err(Refusal::Source));
}

fn kod(code: [u8; 4]) -> KissOfDeathCode {
    match &code {
        b"RATE" => KissOfDeathCode::Rate,
        b"DENY" => KissOfDeathCode::Deny,
        b"RSTR" => KissOfDeathCode::Rstr,
        _ => KissOfDeathCode::Experimental(code),
    }
}

#[test]
fn times_in_an_impossible_order_and_a_long_way_are_refused() {
    assert_eq!(World { held: -1_000, ..World::new() }.ask(), Err(Refusal::Order));
    let longer_than_all = World { held: SECOND, back: -SECOND + 1_000_000, ..World::new() };
    assert_eq!(longer_than_all.ask(), Err(Refusal::Order));
    let slow = World { back: SECOND, ..World::new() };
    assert_eq!(slow.ask(), Err(Refusal::RoundTrip));
    assert!(World { back: SECOND - 4_000_000, ..World::new() }.ask().is_ok());
}

#[test]
fn a_step_of_whatever_the_host_shows_does_not_matter() {
    for ours in [NOVEMBER - 7_200 * SECOND, 0, i64::MIN / 4] {
        let off = World { ours, ..World::new() }.off();
        assert!(off.abs() < 3_000, "{off} from {ours}");
    }
}

#[test]
fn the_era_after_2036_is_understood_also_by_a_clock_that_was_never_set() {
    let era = 2_085_978_496 * SECOND;
    for truth in [era - 5 * SECOND, era - 2_500_000, era, era + SECOND, 2_114_380_800 * SECOND] {
        for ours in [0, truth, truth - SECOND, truth + SECOND, NOVEMBER] {
            let off = World { ours, truth, ..World::new() }.off();
            assert!(off.abs() < 3_000, "{off} from {ours} at {truth}");
        }
    }
}

#[test]
fn a_time_beyond_68_years_is_refused_because_its_era_cannot_be_told() {
    let far = World { truth: 4_102_444_800 * SECOND, ..World::new() };
    assert_eq!(far.ask(), Err(Refusal::Era));
}

#[test]
fn no_two_questions_can_be_answered_alike() {
    let asked = |random| Query::new(server(), BOOT, NOVEMBER, random).packet;
    assert_ne!(asked(1)[40..48], asked(2)[40..48]);
    assert_eq!(asked(1)[..40], {
        let mut plain = [0; 40];
        plain[0] = 0o43;
        plain
    });
}
