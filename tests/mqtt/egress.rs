//! Output.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tidegate::egress::{Egress, EgressConfig, EgressEvent, LARGEST, PublishError, TOLD};
use tidegate::ids::OutboxSeq;
use tidegate::mqtt::{LinkError, Version};

use crate::at;
use crate::support::{Broker, Mode, Proxy, Subscriber, within};

both! {
    what_is_told_goes_beside_a_full_window_and_a_will_when_the_link_breaks,
    a_link_that_dies_while_publishing_is_noticed_and_nothing_is_lost,
    everything_arrives_in_order_when_the_broker_is_killed_and_forgets,
    everything_arrives_across_repeated_cuts,
    a_central_broker_that_is_away_at_the_start_gets_everything_when_it_comes,
    an_entry_of_the_largest_size_goes_out,
}

/// As much of the agent as output needs: entries in order, deleted on their own PUBACK.
struct Outbox {
    entries: BTreeMap<OutboxSeq, (String, Vec<u8>)>,
    next: OutboxSeq,
}

impl Outbox {
    fn of(count: u64) -> Self {
        let entry = |seq: u64| {
            (OutboxSeq(seq), (format!("window/m{}", seq % 3), seq.to_string().into_bytes()))
        };
        Self { entries: (0..count).map(entry).collect(), next: OutboxSeq(0) }
    }

    fn fill(&mut self, egress: &mut Egress) {
        while let Some((&seq, (topic, payload))) = self.entries.range(self.next..).next() {
            match egress.publish(seq, topic, payload.clone()) {
                Ok(()) => self.next = OutboxSeq(seq.0 + 1),
                Err(PublishError::Full | PublishError::Down) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the acknowledged entry, if it was that.
    fn take(&mut self, event: &EgressEvent, egress: &mut Egress) -> Option<OutboxSeq> {
        let mut acked = None;
        match event {
            EgressEvent::Up => self.next = OutboxSeq(0),
            EgressEvent::Acked(seq) => {
                assert!(self.entries.remove(seq).is_some(), "{seq:?} was acknowledged twice");
                acked = Some(*seq);
            }
            EgressEvent::Down { .. } => return None,
            EgressEvent::Rejected(seq) => panic!("{seq:?} is as good as the others"),
        }
        self.fill(egress);
        acked
    }

    async fn step(&mut self, egress: &mut Egress) -> Option<OutboxSeq> {
        let event = within(30, egress.next()).await;
        self.take(&event, egress)
    }

    async fn drain(&mut self, egress: &mut Egress) {
        while !self.entries.is_empty() {
            self.step(egress).await;
        }
    }
}

/// Each topic's payloads, in the order of their first arrival.
fn first_arrivals(messages: &[rumqttc::Publish]) -> BTreeMap<String, Vec<u64>> {
    let mut arrivals = BTreeMap::<String, Vec<u64>>::new();
    for message in messages {
        let seq = String::from_utf8_lossy(&message.payload).parse().expect("a number");
        let topic = arrivals.entry(message.topic.clone()).or_default();
        if !topic.contains(&seq) {
            topic.push(seq);
        }
    }
    arrivals
}

fn assert_all_in_order(messages: &[rumqttc::Publish], count: u64) {
    let arrivals = first_arrivals(messages);
    for (topic, seqs) in &arrivals {
        assert!(seqs.is_sorted(), "{topic}: {seqs:?}");
    }
    let all: BTreeSet<_> = arrivals.into_values().flatten().collect();
    assert_eq!(all, (0..count).collect());
}

async fn everything_arrives_in_order_when_the_broker_is_killed_and_forgets(version: Version) {
    let mut broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    let mut egress =
        Egress::start(EgressConfig::new(at(version, proxy.port(), "out"), "tidegate/gw"));
    let mut outbox = Outbox::of(200);
    // Publishes get through, and no PUBACK comes back.
    assert_eq!(within(10, egress.next()).await, EgressEvent::Up);
    proxy.set(Mode::Deaf);
    let mut before = Subscriber::to(broker.port(), "tidegate/gw/#").await;
    outbox.fill(&mut egress);
    assert_eq!((egress.window(), outbox.next), (0, OutboxSeq(100)));
    assert!(before.next().await.is_some());
    let arrived = before.drain(Duration::from_millis(500)).await.len() + 1;

    proxy.set(Mode::Closed);
    broker.kill();
    broker.forget();
    proxy.cut();
    broker.run();
    let mut after = Subscriber::to(broker.port(), "tidegate/gw/#").await;
    proxy.set(Mode::Open);
    outbox.drain(&mut egress).await;
    let messages = after.drain(Duration::from_millis(500)).await;
    println!("{arrived} arrived before the kill, {} after it", messages.len());
    assert_eq!(arrived, 100, "the window, and nothing beyond it");
    assert_all_in_order(&messages, 200);
    assert_eq!(egress.window(), 100, "the window is open again");
}

async fn what_is_told_goes_beside_a_full_window_and_a_will_when_the_link_breaks(version: Version) {
    let broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    let mut listener = Subscriber::to(broker.port(), "gw/status").await;
    let mut config =
        EgressConfig { in_flight: 1, ..EgressConfig::new(at(version, proxy.port(), "out"), "gw") };
    config.will = Some(("status".into(), b"lost".to_vec()));
    let mut egress = Egress::start(config);
    assert_eq!(egress.tell("status", b"there".to_vec()), Err(PublishError::Down));
    assert_eq!(within(10, egress.next()).await, EgressEvent::Up);
    proxy.set(Mode::Held);
    let mut outbox = Outbox::of(2);
    outbox.fill(&mut egress);
    assert_eq!((egress.window(), egress.in_flight(), egress.is_telling()), (0, 1, false));
    egress.tell("status", b"there".to_vec()).unwrap();
    assert_eq!(listener.next().await.unwrap().payload, "there");
    assert_eq!((egress.window(), egress.in_flight(), egress.is_telling()), (0, 1, true));

    proxy.set(Mode::Open);
    assert_eq!(within(10, egress.next()).await, EgressEvent::Acked(OutboxSeq(0)));
    assert_eq!(within(10, egress.next()).await, EgressEvent::Acked(TOLD));
    assert_eq!((egress.window(), egress.is_telling()), (1, false));
    proxy.cut();
    assert_eq!(listener.next().await.unwrap().payload, "lost");
    let kept = Subscriber::to(broker.port(), "gw/status").await.next().await.unwrap();
    assert!(kept.retain && kept.payload == "lost");
}

async fn everything_arrives_across_repeated_cuts(version: Version) {
    let broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    let mut subscriber = Subscriber::to(broker.port(), "#").await;
    let config =
        EgressConfig { in_flight: 10, ..EgressConfig::new(at(version, proxy.port(), "out"), "") };
    let mut egress = Egress::start(config);
    let mut outbox = Outbox::of(300);
    let (mut acked, mut cuts) = (0, 0);
    while !outbox.entries.is_empty() {
        acked += u64::from(outbox.step(&mut egress).await.is_some());
        if acked > 60 * (cuts + 1) && cuts < 3 {
            cuts += 1;
            proxy.cut();
        }
    }
    let messages = subscriber.drain(Duration::from_millis(500)).await;
    println!("{} deliveries of 300 entries with {cuts} cuts", messages.len());
    assert_all_in_order(&messages, 300);
}

async fn a_link_that_dies_while_publishing_is_noticed_and_nothing_is_lost(version: Version) {
    let broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    let mut subscriber = Subscriber::to(broker.port(), "#").await;
    let config = EgressConfig::new(at(version, proxy.port(), "out"), "");
    let mut egress = Egress::start(config);
    let mut outbox = Outbox::of(300);
    while outbox.entries.len() > 250 {
        outbox.step(&mut egress).await;
    }
    // From now on nothing comes through, and nobody says so.
    proxy.set(Mode::Blackhole);
    let started = Instant::now();
    let error = loop {
        match within(30, egress.next()).await {
            EgressEvent::Down { error } => break error,
            event => _ = outbox.take(&event, &mut egress),
        }
    };
    let noticed = started.elapsed();
    println!("noticed after {noticed:?} with {} entries left", outbox.entries.len());
    assert_eq!(error, LinkError::Silent(Duration::from_millis(7_500)));
    assert!(noticed < Duration::from_secs(8), "{noticed:?}");
    assert!(!outbox.entries.is_empty() && egress.window() == 0);

    proxy.cut();
    proxy.set(Mode::Open);
    outbox.drain(&mut egress).await;
    assert_all_in_order(&subscriber.drain(Duration::from_millis(500)).await, 300);
}

async fn a_central_broker_that_is_away_at_the_start_gets_everything_when_it_comes(
    version: Version,
) {
    let mut broker = Broker::absent();
    let mut egress =
        Egress::start(EgressConfig::new(at(version, broker.port(), "out"), "tidegate/gw"));
    let mut outbox = Outbox::of(5);
    let EgressEvent::Down { error } = within(10, egress.next()).await else { panic!() };
    assert!(matches!(error, LinkError::Unreachable(_)), "{error}");
    assert_eq!(egress.window(), 0);
    broker.run();
    outbox.drain(&mut egress).await;
    egress.close().await;
}

async fn an_entry_of_the_largest_size_goes_out(version: Version) {
    let broker = Broker::start_with("message_size_limit 2097152");
    let mut egress = Egress::start(EgressConfig::new(at(version, broker.port(), "out"), ""));
    assert_eq!(within(10, egress.next()).await, EgressEvent::Up);
    let payload = vec![b'x'; LARGEST - "late/x".len()];
    egress.publish(OutboxSeq(7), "late/x", payload).unwrap();
    assert_eq!(within(10, egress.next()).await, EgressEvent::Acked(OutboxSeq(7)));
}

#[tokio::test]
async fn an_entry_that_the_broker_does_not_take_is_named_and_the_others_leave() {
    let version = Version::V311;
    let broker = Broker::start_with("max_packet_size 1000");
    let mut egress = Egress::start(EgressConfig::new(at(version, broker.port(), "out"), ""));
    let mut outbox = Outbox::of(6);
    let poison = OutboxSeq(2);
    outbox.entries.get_mut(&poison).expect("it is there").1 = vec![b'x'; 2_000];
    let started = Instant::now();
    let mut rejected = None;
    while !outbox.entries.is_empty() {
        match within(30, egress.next()).await {
            EgressEvent::Rejected(seq) => rejected = outbox.entries.remove(&seq).map(|_| seq),
            event => _ = outbox.take(&event, &mut egress),
        }
    }
    println!("{rejected:?} was put aside and the others left within {:?}", started.elapsed());
    assert_eq!(rejected, Some(poison));
}

#[tokio::test]
async fn in_mqtt_5_what_is_too_large_for_the_broker_is_told_before_it_is_sent() {
    let broker = Broker::start_with("max_packet_size 1000");
    let config = EgressConfig::new(at(Version::V5, broker.port(), "out"), "");
    let mut egress = Egress::start(config);
    assert_eq!(within(10, egress.next()).await, EgressEvent::Up);
    let error = PublishError::TooLarge { size: 2_002, most: 984 };
    assert_eq!(egress.publish(OutboxSeq(1), "ab", vec![b'x'; 2_000]), Err(error));
    egress.publish(OutboxSeq(2), "ab", vec![b'x'; 982]).unwrap();
    assert_eq!(within(10, egress.next()).await, EgressEvent::Acked(OutboxSeq(2)));
}

#[tokio::test]
async fn in_mqtt_5_the_broker_narrows_the_window() {
    let broker = Broker::start_with("max_inflight_messages 7");
    let config = EgressConfig::new(at(Version::V5, broker.port(), "out"), "");
    let mut egress = Egress::start(config);
    let mut outbox = Outbox::of(100);
    assert_eq!(within(10, egress.next()).await, EgressEvent::Up);
    assert_eq!(egress.window(), 7);
    outbox.fill(&mut egress);
    assert_eq!(egress.in_flight(), 7);
    outbox.drain(&mut egress).await;
}

#[tokio::test]
async fn in_mqtt_5_what_we_may_not_publish_is_kept_until_we_may() {
    let mut broker = Broker::absent_with("acl_file {dir}/acl");
    std::fs::write(broker.dir().join("acl"), "topic write other/#\n").unwrap();
    broker.run();
    let config = EgressConfig::new(at(Version::V5, broker.port(), "out"), "tidegate/gw");
    let mut egress = Egress::start(config);
    let mut outbox = Outbox::of(5);
    for _ in 0..4 {
        assert_eq!(within(30, egress.next()).await, EgressEvent::Up);
        outbox.next = OutboxSeq(0);
        outbox.fill(&mut egress);
        match within(30, egress.next()).await {
            EgressEvent::Down { error: error @ LinkError::MayNotPublish(_) } => {
                assert!(error.remedy().is_some_and(|remedy| remedy.contains("ACL")), "{error}");
            }
            event => panic!("{event:?}"),
        }
    }
    broker.stop();
    std::fs::write(broker.dir().join("acl"), "topic write tidegate/#\n").unwrap();
    broker.run();
    outbox.drain(&mut egress).await;
}
