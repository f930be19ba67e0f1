//! A store that has lost something.

use std::time::{Duration, Instant};

use crate::fleet::{self, HOUR, heartbeat, sample};
use crate::setup::Setup;

/// Takes a record of the engine's out of the store of an agent that has ended.
fn lose(setup: &Setup, key: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let database = loop {
        // sled lets go of its lock a moment after its process is gone.
        match sled::open(setup.dir().join("store")) {
            Ok(database) => break database,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    };
    let state = database.open_tree("state").expect("the engine's state");
    assert!(state.remove([&[0], key].concat()).expect("readable").is_some());
    database.flush().expect("writable");
}

#[test]
fn an_agent_whose_store_lost_a_device_says_so_and_goes_on_with_the_others_under_a_new_generation() {
    let setup = Setup::new();
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let mut agent = setup.agent();
    let opened = agent.hears("store open");
    agent.hears("caught up");
    for device in ["m0", "m1", "m2"] {
        setup.publish(&[sample("north", device, hour, 1.5)]);
    }
    setup.round_trip();
    agent.hears("committed");
    assert_eq!(agent.stop().books().of("received"), 3);
    let identity_of_the_second = [4, 0, 0, 0, 1];
    lose(&setup, &identity_of_the_second);

    let mut agent = setup.agent();
    let line = agent.hears("the store has lost something");
    assert!(line.contains("ERROR") && line.contains("device number 1"), "{line}");
    agent.hears("carried on with the rest");
    let reopened = agent.hears("store open");
    let generation = |line: &str| {
        let (_, rest) = line.split_once("generation=").expect("it is in the line");
        rest.split_whitespace().next().map(str::to_owned)
    };
    assert_ne!(generation(&reopened), generation(&opened));
    agent.hears("caught up");
    setup.publish(&["m0", "m1", "m2"].map(|device| heartbeat("north", device, hour + HOUR)));
    for device in ["m0", "m2"] {
        let topic = format!("window/hour/north/{device}");
        setup.central.until(&topic, |arrived| {
            let last = arrived.last();
            last.get(&(topic.as_str(), hour)).is_some_and(|it| it["partial"] == true)
        });
    }
    let books = setup.leaves_empty(agent).books();
    assert_eq!((books.of("lost"), books.of("received")), (1, 6), "{books:?}");
    let arrived = setup.central.arrived();
    assert!(!arrived.last().keys().any(|(topic, _)| topic.ends_with("hour/north/m1")));
}
