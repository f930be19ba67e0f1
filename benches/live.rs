//! CPU time per message of the agent on its durable path, against a subscriber that does nothing.
//!
//! Both listen to the same mosquitto at the same time, at QoS 1 and in the same batches; the other one only counts
//! bytes. What the agent does on top (read, decide, write durably) may cost twice that again: goal ≤ 3.
//!
//! `MESSAGES` of the burst (500,000) and `SECONDS` of each steady rate (60) in the environment; `--quick` for a short
//! form.

#![allow(
    clippy::disallowed_methods,
    reason = "a bench measures real time and waits for real processes"
)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::agent::Agent;
use common::broker::Broker;
use common::publisher::{now_ms, publish};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish};
use rumqttc::v5::{AsyncClient, Event, MqttOptions};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

const DEVICES: u64 = 1_000;
/// As the agent's by default.
const IN_FLIGHT: u16 = 10_000;
const COMMIT_INTERVAL: Duration = Duration::from_secs(10);

fn main() {
    if let Some(port) = std::env::args().skip_while(|argument| argument != "null-subscriber").nth(1)
    {
        return null_subscriber(port.parse().expect("a port"));
    }
    let directory = common::directory();
    let directory = directory.path();
    let (devices, central) =
        (Broker::start(directory, "devices"), Broker::start(directory, "central"));
    let mut agent = Agent::start(directory, &directory.join("store"), &devices, &central, WINDOW);
    let null = Null::start(devices.port);
    let burst = common::size("MESSAGES", 500_000, 100_000);
    let seconds = common::size("SECONDS", 60, 12);
    println!("{DEVICES} devices, QoS 1, both at the same broker at the same time");
    println!(
        "{:<16}{:>10}{:>14}{:>14}{:>8}{:>6}{:>10}{:>10}",
        "messages/s",
        "messages",
        "agent µs/msg",
        "null µs/msg",
        "ratio",
        "goal",
        "p50 ms",
        "p99 ms"
    );
    measure(&mut agent, &null, &devices, burst, f64::INFINITY, true); // everything warm
    for (messages, rate) in
        [(1_000 * seconds, 1_000.0), (5_000 * seconds, 5_000.0), (burst, f64::INFINITY)]
    {
        measure(&mut agent, &null, &devices, messages, rate, false);
    }
}

const WINDOW: &str = "[[window]]\nname = \"hour\"\nsize = \"1h\"";

fn measure(
    agent: &mut Agent,
    null: &Null,
    devices: &Broker,
    messages: u64,
    rate: f64,
    warm_up: bool,
) {
    let (commits, committed) = (agent.commits.len(), agent.committed());
    let before = (common::cpu(agent.pid()), common::cpu(null.process.id()));
    publish(devices.port, messages, DEVICES, rate, |_| now_ms());
    agent.wait_until_committed(committed + messages);
    // The null subscriber acknowledges its last batch within the commit interval too.
    std::thread::sleep(Duration::from_secs(1));
    let per_message = |seconds: f64| seconds * 1e6 / messages as f64;
    let agent_us = per_message(common::cpu(agent.pid()) - before.0);
    let null_us = per_message(common::cpu(null.process.id()) - before.1);
    let (p50, p99) = agent.commit_times(commits);
    let rate = if rate.is_finite() { rate.to_string() } else { "burst".to_owned() };
    if !warm_up {
        println!(
            "{rate:<16}{messages:>10}{agent_us:>14.1}{null_us:>14.1}{:>8.2}{:>6}{p50:>10.1}{p99:>10.1}",
            agent_us / null_us,
            "≤ 3"
        );
    }
}

/// The null subscriber, as a process of its own.
struct Null {
    process: Child,
}

impl Null {
    fn start(port: u16) -> Self {
        let own = std::env::current_exe().expect("we were started");
        let mut process = Command::new(own)
            .args(["null-subscriber", &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = String::new();
        let output: &mut dyn Read = process.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut said).expect("it says that it has subscribed");
        Self { process }
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

fn null_subscriber(port: u16) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut options = MqttOptions::new("null", "127.0.0.1", port);
        options
            .set_clean_start(false)
            .set_session_expiry_interval(Some(3_600))
            .set_receive_maximum(Some(IN_FLIGHT))
            .set_outgoing_inflight_upper_limit(16)
            .set_manual_acks(true);
        let (client, mut events) = AsyncClient::new(options, 64);
        client.subscribe("meters/+/+/+", QoS::AtLeastOnce).await.expect("the loop is there");
        let (tell, received) = mpsc::unbounded_channel();
        tokio::spawn(acknowledge(client, received));
        let mut bytes = 0;
        loop {
            match events.poll().await.expect("the broker is there") {
                Event::Incoming(Packet::Publish(publish)) => {
                    bytes += publish.payload.len();
                    tell.send(publish).expect("the other task is there");
                }
                Event::Incoming(Packet::SubAck(_)) => println!("subscribed, {bytes} bytes"),
                _ => {}
            }
        }
    });
}

/// Acknowledges when half the window waits, and the commit interval after the first that waits.
async fn acknowledge(client: AsyncClient, mut received: mpsc::UnboundedReceiver<Publish>) {
    let mut waiting = Vec::new();
    let mut due = Instant::now();
    loop {
        tokio::select! {
            publish = received.recv() => {
                if waiting.is_empty() {
                    due = Instant::now() + COMMIT_INTERVAL;
                }
                waiting.extend(publish.map(|publish| Publish { pkid: publish.pkid, qos: publish.qos, ..Publish::default() }));
                if waiting.len() < usize::from(IN_FLIGHT) / 2 {
                    continue;
                }
            }
            () = sleep_until(due), if !waiting.is_empty() => {}
        }
        for publish in waiting.drain(..) {
            client.ack(&publish).await.expect("the loop is there");
        }
    }
}
