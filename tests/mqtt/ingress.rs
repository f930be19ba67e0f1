//! Intake.

use std::time::{Duration, Instant};

use rumqttc::QoS;
use tidegate::clock::Clock;
use tidegate::egress::{Egress, EgressConfig, EgressEvent};
use tidegate::ingress::{AckToken, Ingress, IngressConfig, IngressEvent, Received};
use tidegate::mqtt::{self, Credentials, FileName, LinkError, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::at;
use crate::support::{Broker, Mode, Proxy, publish, publish_at, within};

fn intake(version: Version, port: u16) -> IngressConfig {
    IngressConfig::new(at(version, port, "gw"), vec!["meters/#".into()])
}

fn start(config: IngressConfig) -> Ingress {
    let clock = Clock::start();
    Ingress::start(config, move || clock.now())
}

/// The next event, whatever it is.
async fn next(ingress: &mut Ingress) -> IngressEvent {
    within(30, ingress.next()).await
}

/// Whether the session was kept, once connected.
async fn up(ingress: &mut Ingress) -> bool {
    loop {
        match next(ingress).await {
            IngressEvent::Up { session_present } => return session_present,
            IngressEvent::Down { .. } => {}
            event => panic!("before Up: {event:?}"),
        }
    }
}

/// The messages that come before everything queued has come.
async fn caught_up(ingress: &mut Ingress) -> Vec<Received> {
    let mut messages = Vec::new();
    loop {
        match next(ingress).await {
            IngressEvent::Message(message) => messages.push(message),
            IngressEvent::CaughtUp => return messages,
            IngressEvent::AcksSettled | IngressEvent::Subscribed | IngressEvent::Refused { .. } => {
            }
            event => panic!("before CaughtUp: {event:?}"),
        }
    }
}

async fn connected(config: IngressConfig) -> Ingress {
    let mut ingress = start(config);
    up(&mut ingress).await;
    caught_up(&mut ingress).await;
    ingress
}

async fn receive(ingress: &mut Ingress, count: usize) -> Vec<Received> {
    let mut messages = Vec::new();
    while messages.len() < count {
        match next(ingress).await {
            IngressEvent::Message(message) => messages.push(message),
            IngressEvent::AcksSettled | IngressEvent::Subscribed | IngressEvent::CaughtUp => {}
            event => panic!("after {} of {count}: {event:?}", messages.len()),
        }
    }
    messages
}

async fn settled(ingress: &mut Ingress) {
    match next(ingress).await {
        IngressEvent::AcksSettled | IngressEvent::Subscribed => {}
        event => panic!("before AcksSettled: {event:?}"),
    }
}

async fn down(ingress: &mut Ingress) -> LinkError {
    loop {
        match next(ingress).await {
            IngressEvent::Down { error } => return error,
            IngressEvent::Message(_)
            | IngressEvent::AcksSettled
            | IngressEvent::Subscribed
            | IngressEvent::CaughtUp => {}
            event => panic!("before Down: {event:?}"),
        }
    }
}

/// That nothing comes.
async fn quiet(ingress: &mut Ingress) {
    let waited = tokio::time::timeout(Duration::from_millis(700), ingress.next()).await;
    assert!(waited.is_err(), "{waited:?}");
}

fn tokens(messages: &[Received]) -> Vec<AckToken> {
    messages.iter().map(|message| message.ack).collect()
}

fn payloads(messages: &[Received]) -> Vec<String> {
    let text = |message: &Received| String::from_utf8_lossy(&message.payload).into_owned();
    messages.iter().map(text).collect()
}

/// Numbered readings of one meter.
fn readings(numbers: std::ops::Range<usize>) -> impl Iterator<Item = (&'static str, String)> {
    numbers.map(|number| ("meters/north/m1", number.to_string()))
}

fn numbers(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

both! {
    what_was_not_acknowledged_comes_again_after_a_cut_and_is_marked,
    a_token_of_an_older_connection_acknowledges_nothing,
    a_backlog_larger_than_the_window_is_heard_to_its_end_before_caught_up,
    leaving_sends_the_acknowledgements_first,
    acks_settle_once_all_that_were_given_have_been_read,
    a_broker_that_forgot_us_is_subscribed_to_again,
    a_broker_that_was_stopped_keeps_the_session_and_the_queue,
    a_broker_that_is_away_at_the_start_is_found_when_it_comes,
    a_wrong_password_is_told_and_works_once_it_is_right,
    two_clients_with_one_id_do_not_throw_each_other_out_for_ever,
    a_silent_link_is_noticed_within_one_and_a_half_keep_alives,
    an_agent_that_does_not_take_messages_ends_the_connection_and_loses_none,
    a_retained_message_comes_once_and_is_told_from_news,
    a_filter_that_was_dropped_from_the_configuration_is_given_up,
    a_refused_filter_is_told,
    where_probes_are_forbidden_ten_seconds_of_silence_have_to_do,
}

#[tokio::test]
async fn no_more_than_the_window_comes_without_acknowledgement() {
    let version = Version::V5;
    let broker = Broker::start();
    let mut ingress =
        connected(IngressConfig { in_flight: 10, ..intake(version, broker.port()) }).await;
    publish(broker.port(), readings(0..50)).await;
    let mut messages = receive(&mut ingress, 10).await;
    quiet(&mut ingress).await;
    ingress.ack(tokens(&messages));
    while messages.len() < 50 {
        let more = receive(&mut ingress, 1).await;
        ingress.ack(tokens(&more));
        messages.extend(more);
    }
    assert_eq!(payloads(&messages), numbers(0..50));
}

async fn what_was_not_acknowledged_comes_again_after_a_cut_and_is_marked(version: Version) {
    let broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    let mut ingress = connected(intake(version, proxy.port())).await;
    publish(broker.port(), readings(0..20)).await;
    let messages = receive(&mut ingress, 20).await;
    ingress.ack(tokens(&messages[..12]));
    settled(&mut ingress).await;
    assert_eq!(ingress.redelivered(), 0);

    proxy.cut();
    down(&mut ingress).await;
    assert!(up(&mut ingress).await, "the session was kept");
    let again = caught_up(&mut ingress).await;
    assert_eq!(payloads(&again), numbers(12..20));
    assert!(again.iter().all(|message| message.dup));
    assert_eq!(ingress.redelivered(), 8);
}

async fn a_token_of_an_older_connection_acknowledges_nothing(version: Version) {
    let mut broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    let mut ingress = connected(intake(version, proxy.port())).await;
    publish(broker.port(), readings(0..5)).await;
    let old = receive(&mut ingress, 5).await;

    broker.kill();
    broker.forget();
    broker.run();
    down(&mut ingress).await;
    assert!(!up(&mut ingress).await, "the broker forgot us");
    caught_up(&mut ingress).await;
    // The new session gives the same packet ids to other messages.
    publish(broker.port(), readings(5..10)).await;
    receive(&mut ingress, 5).await;
    ingress.ack(tokens(&old));
    quiet(&mut ingress).await;

    proxy.cut();
    down(&mut ingress).await;
    assert!(up(&mut ingress).await);
    assert_eq!(payloads(&caught_up(&mut ingress).await), numbers(5..10));
}

#[tokio::test]
async fn caught_up_comes_behind_everything_that_was_queued() {
    let version = Version::V5;
    let broker = Broker::start();
    connected(intake(version, broker.port())).await.close().await;
    publish(broker.port(), readings(0..3_000)).await;
    let started = Instant::now();
    let mut ingress = start(intake(version, broker.port()));
    assert!(up(&mut ingress).await);
    let backlog = caught_up(&mut ingress).await;
    println!("3,000 queued messages and the probe came within {:?}", started.elapsed());
    assert_eq!(payloads(&backlog), numbers(0..3_000));
}

async fn a_backlog_larger_than_the_window_is_heard_to_its_end_before_caught_up(version: Version) {
    let broker = Broker::start();
    let config = IngressConfig { in_flight: 100, ..intake(version, broker.port()) };
    connected(config.clone()).await.close().await;
    publish(broker.port(), readings(0..3_000)).await;
    let mut ingress = start(config);
    up(&mut ingress).await;
    let mut heard = Vec::new();
    loop {
        match next(&mut ingress).await {
            IngressEvent::Message(message) => heard.push(message),
            IngressEvent::CaughtUp => break,
            IngressEvent::AcksSettled | IngressEvent::Subscribed => {}
            event => panic!("{event:?}"),
        }
        if heard.len() % 50 == 0 {
            ingress.ack(tokens(&heard[heard.len() - 50..]));
        }
    }
    assert_eq!(payloads(&heard), numbers(0..3_000));
}

async fn leaving_sends_the_acknowledgements_first(version: Version) {
    let broker = Broker::start();
    let mut ingress = connected(intake(version, broker.port())).await;
    publish(broker.port(), readings(0..900)).await;
    let messages = receive(&mut ingress, 900).await;
    ingress.ack(tokens(&messages));
    ingress.close().await;
    let mut ingress = start(intake(version, broker.port()));
    assert!(up(&mut ingress).await);
    assert_eq!(caught_up(&mut ingress).await.len(), 0);
}

async fn acks_settle_once_all_that_were_given_have_been_read(version: Version) {
    let broker = Broker::start();
    let mut ingress = connected(intake(version, broker.port())).await;
    publish(broker.port(), readings(0..900)).await;
    let messages = receive(&mut ingress, 900).await;
    for batch in messages.chunks(100) {
        ingress.ack(tokens(batch));
    }
    settled(&mut ingress).await;
    quiet(&mut ingress).await;
}

async fn a_broker_that_forgot_us_is_subscribed_to_again(version: Version) {
    let mut broker = Broker::start();
    let mut ingress = connected(intake(version, broker.port())).await;
    broker.kill();
    broker.forget();
    broker.run();
    down(&mut ingress).await;
    assert!(!up(&mut ingress).await);
    caught_up(&mut ingress).await;
    publish(broker.port(), readings(0..3)).await;
    assert_eq!(payloads(&receive(&mut ingress, 3).await), numbers(0..3));
}

async fn a_broker_that_was_stopped_keeps_the_session_and_the_queue(version: Version) {
    let mut broker = Broker::start();
    connected(intake(version, broker.port())).await.close().await;
    publish(broker.port(), readings(0..30)).await;
    broker.stop();
    broker.run();
    let mut ingress = start(intake(version, broker.port()));
    assert!(up(&mut ingress).await);
    assert_eq!(payloads(&caught_up(&mut ingress).await), numbers(0..30));
}

#[tokio::test]
async fn messages_that_are_too_large_are_withheld_and_the_others_come() {
    let version = Version::V5;
    let broker = Broker::start();
    let mut ingress = connected(intake(version, broker.port())).await;
    let message = |kib: usize| ("meters/north/m1", vec![b'x'; kib << 10]);
    publish(broker.port(), [1, 11, 300, 400, 2_048, 2].map(message)).await;
    let lengths = receive(&mut ingress, 4).await.into_iter().map(|m| m.payload.len() >> 10);
    // 300 KiB is above max-payload, and still comes: it is to be counted.
    assert_eq!(lengths.collect::<Vec<_>>(), [1, 11, 300, 2]);
    quiet(&mut ingress).await;
}

async fn a_broker_that_is_away_at_the_start_is_found_when_it_comes(version: Version) {
    let mut broker = Broker::absent();
    let mut ingress = start(intake(version, broker.port()));
    let error = down(&mut ingress).await;
    assert!(matches!(error, LinkError::Unreachable(_)), "{error}");
    broker.run();
    up(&mut ingress).await;
    caught_up(&mut ingress).await;
}

const WITH_PASSWORD: &str = "allow_anonymous false\npassword_file {dir}/passwords";

async fn a_wrong_password_is_told_and_works_once_it_is_right(version: Version) {
    let mut broker = Broker::absent_with(WITH_PASSWORD);
    broker.set_password("gw", "another");
    broker.run();
    let file = broker.dir().join("password");
    std::fs::write(&file, "right\n").expect("its directory is ours");
    let file = Some(FileName::new(file));
    let credentials = Credentials { user: "gw".into(), password_file: file };
    let ours = |id: &str| mqtt::Broker {
        credentials: Some(credentials.clone()),
        ..at(version, broker.port(), id)
    };
    let mut ingress = start(IngressConfig { broker: ours("in"), ..intake(version, broker.port()) });
    let mut egress = Egress::start(EgressConfig::new(ours("out"), ""));
    let error = LinkError::NotAuthorised;
    assert_eq!(down(&mut ingress).await, error);
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("password")));
    assert_eq!(within(10, egress.next()).await, EgressEvent::Down { error });

    broker.stop();
    broker.set_password("gw", "right");
    broker.run();
    up(&mut ingress).await;
    while within(10, egress.next()).await != EgressEvent::Up {}
}

async fn two_clients_with_one_id_do_not_throw_each_other_out_for_ever(version: Version) {
    let broker = Broker::start();
    let (mut first, mut second) =
        (start(intake(version, broker.port())), start(intake(version, broker.port())));
    let (mut connections, started) = (0, Instant::now());
    let error = loop {
        let event = within(60, async {
            tokio::select! { event = first.next() => event, event = second.next() => event }
        });
        match event.await {
            IngressEvent::Up { .. } => connections += 1,
            IngressEvent::Down { error } if error != LinkError::Closed => break error,
            _ => {}
        }
    };
    println!("{error} after {connections} connections and {:?}", started.elapsed());
    // The broker could say so in MQTT 5; later versions do.
    assert!(matches!(error, LinkError::KeepsClosing | LinkError::TakenOver), "{error}");
    assert!(connections <= 12, "{connections}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("client id")));
}

/// Something that listens and answers the first connection with these bytes.
async fn answering(host: &str, answer: Vec<u8>) -> Option<(u16, JoinHandle<()>)> {
    let listener = TcpListener::bind((host, 0)).await.ok()?;
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        assert!(client.read(&mut [0; 512]).await.unwrap() > 0);
        client.write_all(&answer).await.unwrap();
        client.shutdown().await.unwrap();
        let _ = client.read_to_end(&mut Vec::new()).await;
    });
    Some((port, answering))
}

#[tokio::test]
async fn a_broker_that_says_that_the_session_was_taken_over_is_understood() {
    let (connack, disconnect) = ([0x20, 3, 0, 0, 0], [0xe0, 2, 0x8e, 0]);
    let answer = [&connack[..], &disconnect[..]].concat();
    let (port, answering) = answering("127.0.0.1", answer).await.unwrap();
    let mut ingress = start(intake(Version::V5, port));
    up(&mut ingress).await;
    assert_eq!(down(&mut ingress).await, LinkError::TakenOver);
    within(10, answering).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_speaks_only_the_other_version_is_understood() {
    let refused = |version: Version| LinkError::Version(version.as_str());
    for (version, answer, error) in [
        // A 3.1.1 refusal ends before an MQTT 5 one would: it looks like no answer.
        (Version::V5, vec![0x20, 2, 0, 1], LinkError::ClosedEarly),
        (Version::V5, vec![0x20, 3, 0, 0x84, 0], refused(Version::V5)),
        (Version::V311, vec![0x20, 2, 0, 1], refused(Version::V311)),
    ] {
        let (port, answering) = answering("127.0.0.1", answer).await.unwrap();
        assert_eq!(down(&mut start(intake(version, port))).await, error);
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("set version")));
        within(10, answering).await.unwrap();
    }
}

#[tokio::test]
async fn in_mqtt_3_1_1_a_message_beyond_all_bounds_is_told() {
    // A CONNACK, and the beginning of a PUBLISH of 32 MiB.
    let answer = vec![0x20, 2, 0, 0, 0x32, 0x80, 0x80, 0x80, 0x10, 0, 1, b'a'];
    let (port, answering) = answering("127.0.0.1", answer).await.unwrap();
    let mut ingress = start(intake(Version::V311, port));
    up(&mut ingress).await;
    let error = down(&mut ingress).await;
    assert_eq!(error, LinkError::TooLarge(32 << 20));
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("message_size_limit")));
    within(10, answering).await.unwrap();
}

#[tokio::test]
async fn an_ipv6_address_is_connected_to() {
    for host in ["::1", "[::1]"] {
        let Some((port, answering)) = answering("::1", vec![0x20, 3, 0, 0, 0]).await else {
            println!("skipped: this machine has no IPv6");
            return;
        };
        let broker = mqtt::Broker { host: host.into(), ..at(Version::V5, port, "gw") };
        up(&mut start(IngressConfig { broker, ..intake(Version::V5, port) })).await;
        within(10, answering).await.unwrap();
    }
}

async fn a_silent_link_is_noticed_within_one_and_a_half_keep_alives(version: Version) {
    let broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    let mut ingress = connected(intake(version, proxy.port())).await;
    let mut egress = Egress::start(EgressConfig::new(at(version, proxy.port(), "out"), ""));
    assert_eq!(within(10, egress.next()).await, EgressEvent::Up);
    proxy.set(Mode::Blackhole);
    let started = Instant::now();
    let (ingress_error, egress_event) = tokio::join!(down(&mut ingress), egress.next());
    let noticed = started.elapsed();
    println!("a silent link was noticed after {noticed:?}");
    let error = LinkError::Silent(Duration::from_millis(7_500));
    assert_eq!(ingress_error, error);
    assert_eq!(egress_event, EgressEvent::Down { error });
    assert!(noticed < Duration::from_secs(8), "{noticed:?}");

    proxy.cut();
    proxy.set(Mode::Open);
    assert!(up(&mut ingress).await);
    assert_eq!(within(10, egress.next()).await, EgressEvent::Up);
}

async fn an_agent_that_does_not_take_messages_ends_the_connection_and_loses_none(version: Version) {
    let broker = Broker::start();
    let mut ingress =
        connected(IngressConfig { in_flight: 10, ..intake(version, broker.port()) }).await;
    // At QoS 0 the window does not hold them back.
    publish_at(QoS::AtMostOnce, false, broker.port(), readings(0..500)).await;
    publish(broker.port(), readings(500..505)).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let error = down(&mut ingress).await;
    assert!(matches!(error, LinkError::Stalled(_) | LinkError::Lost(_)), "{error}");
    assert!(up(&mut ingress).await);
    let at_qos_1 = |message: &Received| !message.ack.is_empty();
    let (kept, _): (Vec<_>, Vec<_>) = caught_up(&mut ingress).await.into_iter().partition(at_qos_1);
    assert_eq!(payloads(&kept), numbers(500..505));
}

async fn a_retained_message_comes_once_and_is_told_from_news(version: Version) {
    let broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    publish_at(QoS::AtLeastOnce, true, broker.port(), readings(1..2)).await;
    let mut ingress = start(intake(version, proxy.port()));
    up(&mut ingress).await;
    let retained = caught_up(&mut ingress).await;
    assert_eq!((retained.len(), retained[0].retain), (1, true));
    publish_at(QoS::AtLeastOnce, true, broker.port(), readings(2..3)).await;
    let live = receive(&mut ingress, 1).await;
    assert!(!live[0].retain);
    ingress.ack(tokens(&[retained, live].into_iter().flatten().collect::<Vec<_>>()));
    settled(&mut ingress).await;

    proxy.cut();
    down(&mut ingress).await;
    assert!(up(&mut ingress).await);
    assert_eq!(caught_up(&mut ingress).await.len(), 0);
}

async fn a_filter_that_was_dropped_from_the_configuration_is_given_up(version: Version) {
    let broker = Broker::start();
    let both = vec!["meters/#".into(), "old/#".into()];
    connected(IngressConfig { filters: both, ..intake(version, broker.port()) })
        .await
        .close()
        .await;
    let dropped = vec!["old/#".into(), "older/#".into()];
    let config = IngressConfig { dropped_filters: dropped, ..intake(version, broker.port()) };
    let mut ingress = connected(config).await;
    publish(broker.port(), [("old/x", "1"), ("meters/x", "2")]).await;
    let messages = receive(&mut ingress, 1).await;
    assert_eq!(payloads(&messages), ["2"]);
    ingress.ack(tokens(&messages));
    settled(&mut ingress).await;
}

const ACL: &str = "acl_file {dir}/acl";

fn with_acl(rules: &str) -> Broker {
    let mut broker = Broker::absent_with(ACL);
    std::fs::write(broker.dir().join("acl"), rules).expect("its directory is ours");
    broker.run();
    broker
}

/// mosquitto's `acl_file` lets everybody subscribe to everything, and withholds the messages. Its
/// plugin for dynamic security refuses the subscription.
const NO_SECRETS: &str = r#"{
    "defaultACLAccess": { "publishClientSend": true, "publishClientReceive": true,
                          "subscribe": true, "unsubscribe": true },
    "anonymousGroup": "all", "clients": [],
    "groups": [{ "groupname": "all", "roles": [{ "rolename": "all" }] }],
    "roles": [{ "rolename": "all", "acls": [
        { "acltype": "subscribePattern", "topic": "secret/#", "priority": 1, "allow": false } ] }]
}"#;

async fn a_refused_filter_is_told(version: Version) {
    let plugin = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so";
    if !std::path::Path::new(plugin).exists() {
        println!("skipped: mosquitto's dynamic security plugin is not installed");
        return;
    }
    let lines = format!("plugin {plugin}\nplugin_opt_config_file {{dir}}/security.json");
    let mut broker = Broker::absent_with(&lines);
    std::fs::write(broker.dir().join("security.json"), NO_SECRETS).unwrap();
    broker.run();
    let filters = vec!["meters/#".into(), "secret/#".into()];
    let mut ingress = start(IngressConfig { filters, ..intake(version, broker.port()) });
    up(&mut ingress).await;
    match next(&mut ingress).await {
        IngressEvent::Refused { filters } => assert_eq!(filters, ["secret/#"]),
        event => panic!("{event:?}"),
    }
    caught_up(&mut ingress).await;
}

async fn where_probes_are_forbidden_ten_seconds_of_silence_have_to_do(version: Version) {
    let broker = with_acl("topic readwrite meters/#\ntopic write test/#\n");
    let mut ingress = start(intake(version, broker.port()));
    up(&mut ingress).await;
    publish(broker.port(), readings(0..3)).await;
    let started = Instant::now();
    assert_eq!(caught_up(&mut ingress).await.len(), 3);
    assert!(started.elapsed() > Duration::from_secs(9), "{:?}", started.elapsed());
}
