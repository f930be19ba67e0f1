//! Who listens at the central broker: keeps the last revision of everything, and watches for contradictions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rumqttc::{Client, Event, MqttOptions, Packet, QoS};
use serde_json::Value;

use crate::contract::CONTRACT;

/// What has arrived.
#[derive(Debug, Default)]
pub struct Arrived {
    /// Results of windows and regions by topic, generation and start, then by revision.
    pub results: BTreeMap<(String, String, i64), BTreeMap<u64, Value>>,
    /// Late records: topic, time, content.
    pub late: BTreeSet<(String, i64, String)>,
    /// Everything else, in order.
    pub others: Vec<(String, Value)>,
    /// Messages in all.
    pub messages: u64,
    /// Results that came again with the same content.
    pub repeated: u64,
    /// Identities that came with two contents, and messages that are not what their schema says.
    pub contradictions: Vec<String>,
    subscriptions: u32,
    changes: u64,
    ended: bool,
}

/// A subscriber with a session of its own, which connects again whenever the broker is back.
pub struct Central {
    arrived: Arc<(Mutex<Arrived>, Condvar)>,
}

impl Central {
    /// Subscribes to everything below the gateway's prefix; returns when the broker has confirmed it.
    pub fn at(port: u16) -> Self {
        let mut options = MqttOptions::new("central", "127.0.0.1", port);
        options.set_clean_session(false).set_max_packet_size(4 << 20, 4 << 20);
        let (client, mut connection) = Client::new(options, 100);
        let arrived = Arc::<(Mutex<Arrived>, Condvar)>::default();
        let arriving = arrived.clone();
        thread::spawn(move || {
            loop {
                let event = connection.recv_timeout(Duration::from_millis(200));
                // Poisoned by a test that has failed.
                let Ok(mut state) = arriving.0.lock() else { return };
                if state.ended {
                    return;
                }
                match event {
                    Ok(Ok(Event::Incoming(Packet::ConnAck(_)))) => {
                        client.try_subscribe("tidegate/#", QoS::AtLeastOnce).expect("room for one");
                    }
                    Ok(Ok(Event::Incoming(Packet::SubAck(_)))) => state.subscriptions += 1,
                    Ok(Ok(Event::Incoming(Packet::Publish(publish)))) => {
                        state.take(&publish.topic, &publish.payload);
                    }
                    Ok(Err(_)) => {
                        drop(state);
                        thread::sleep(Duration::from_millis(20));
                        continue;
                    }
                    Ok(Ok(_)) | Err(_) => continue,
                }
                state.changes += 1;
                arriving.1.notify_all();
            }
        });
        let central = Self { arrived };
        central.subscribed(1);
        central
    }

    /// Waits until it has subscribed for the `times`-th time.
    pub fn subscribed(&self, times: u32) {
        self.until("a subscription", |arrived| arrived.subscriptions >= times);
    }

    /// What has arrived so far.
    pub fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.0.lock().expect("no panic inside")
    }

    /// Waits until what has arrived is as it should be.
    pub fn until(&self, what: &str, mut so: impl FnMut(&Arrived) -> bool) {
        self.agrees(|arrived| if so(arrived) { Ok(()) } else { Err(format!("{what} is missing")) });
    }

    /// Waits until `judge` has nothing to object.
    pub fn agrees(&self, mut judge: impl FnMut(&Arrived) -> Result<(), String>) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut arrived = self.arrived();
        let mut judged = None;
        let mut objection = String::new();
        loop {
            if judged.replace(arrived.changes) != Some(arrived.changes) {
                match judge(&arrived) {
                    Ok(()) => return,
                    Err(why) => objection = why,
                }
            }
            assert!(Instant::now() < deadline, "after {} messages: {objection}", arrived.messages);
            let tick = Duration::from_millis(50);
            arrived = self.arrived.1.wait_timeout(arrived, tick).expect("no panic inside").0;
        }
    }
}

impl Drop for Central {
    fn drop(&mut self) {
        if let Ok(mut arrived) = self.arrived.0.lock() {
            arrived.ended = true;
        }
    }
}

impl Arrived {
    fn take(&mut self, topic: &str, payload: &[u8]) {
        let Some((_, topic)) = topic.split_once('/').and_then(|(_, rest)| rest.split_once('/'))
        else {
            return;
        };
        if topic.starts_with("client") {
            return; // a probe of the intake, where both sides share a broker
        }
        let body: Value = serde_json::from_slice(payload).expect("JSON");
        self.messages += 1;
        self.contradictions.extend(CONTRACT.check(topic, &body).err());
        let topic = topic.to_owned();
        let number = |name: &str| body[name].as_i64().expect("a number");
        match topic.split('/').next() {
            Some("window" | "region") => {
                let generation = body["generation"].as_str().expect("a generation").to_owned();
                let revision = body["revision"].as_u64().expect("a revision");
                let key = (topic, generation, number("start"));
                let revisions = self.results.entry(key.clone()).or_default();
                match revisions.get(&revision) {
                    None => {
                        revisions.insert(revision, body);
                    }
                    Some(first) if *first == body => self.repeated += 1,
                    Some(first) => {
                        self.contradictions.push(format!("{key:?}\n{first}\n{body}"));
                    }
                }
            }
            Some("late") => {
                self.late.insert((topic, number("time"), body["record"].to_string()));
            }
            _ => self.others.push((topic, body)),
        }
    }

    /// The last revision of each result. There is one generation only, or it fails.
    pub fn last(&self) -> BTreeMap<(&str, i64), &Value> {
        let mut last = BTreeMap::new();
        for ((topic, _, start), revisions) in &self.results {
            let result = revisions.values().next_back().expect("never empty");
            let other = last.insert((topic.as_str(), *start), result);
            assert!(other.is_none(), "two generations of {topic} {start}");
        }
        last
    }
}
