//! What the devices send, at QoS 1, at a steady rate.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::Packet;
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use tokio::time::{Instant, sleep_until};

use super::meters;

/// The wall clock in ms.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292,000,000")
}

/// Publishes `messages` events, of `devices` devices in turn, `rate` a second; `time` says when the nth was taken.
/// Returns when the broker has acknowledged all of them.
pub fn publish(port: u16, messages: u64, devices: u64, rate: f64, time: impl Fn(u64) -> i64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let id = format!("meters-{}", fastrand::u64(..));
        let mut options = MqttOptions::new(id, "127.0.0.1", port);
        options.set_keep_alive(Duration::from_secs(30)).set_outgoing_inflight_upper_limit(500);
        let (client, events) = AsyncClient::new(options, 100);
        let acknowledged = tokio::spawn(acknowledged(events, messages));
        let mut rng = Rng::with_seed(messages);
        let start = Instant::now();
        for number in 0..messages {
            let due = start + Duration::from_secs_f64(number as f64 / rate);
            if due > Instant::now() {
                sleep_until(due).await;
            }
            let device = (number % devices) as usize;
            let event = meters::Event { device, region: meters::region(device), ts: time(number) };
            let mut payload = String::new();
            meters::payload(&event, &mut rng, &mut payload);
            let topic = format!("meters/{}/{}/telemetry", event.region, meters::name(device));
            client
                .publish(topic, QoS::AtLeastOnce, false, payload)
                .await
                .expect("the broker is there");
        }
        acknowledged.await.expect("no panic");
    });
}

async fn acknowledged(mut events: EventLoop, messages: u64) {
    let mut acknowledged = 0;
    while acknowledged < messages {
        if let Event::Incoming(Packet::PubAck(_)) =
            events.poll().await.expect("the broker is there")
        {
            acknowledged += 1;
        }
    }
}
