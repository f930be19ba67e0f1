//! An agent that cannot begin at once.

use crate::fleet::{self, HOUR, heartbeat, sample};
use crate::reference;
use crate::setup::{Options, Setup, block_on, rules};
use crate::support::{Broker, publish_as};
use crate::whole_run::eventually;

#[test]
fn a_devices_broker_that_is_not_there_yet_is_waited_for() {
    let mut setup = Setup::absent(Broker::absent(), &Options::default());
    let mut agent = setup.agent();
    let line = agent.hears("ingress down: cannot be reached");
    assert!(line.contains("check host and port"), "{line}");
    agent.hears("ingress still down");
    setup.devices.run();
    agent.hears("caught up");
    assert_eq!(agent.count(&["WARN", "ingress down"]), 1, "{}", agent.last_words());

    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let messages = [sample("north", "m1", hour, 1.5), heartbeat("north", "m1", hour + HOUR)];
    setup.publish(&messages);
    setup.arrives(&reference::expect(&rules(fleet::Times::around_midnight()), &messages));
    setup.leaves_empty(agent);
}

#[test]
fn a_central_broker_that_is_not_there_yet_is_waited_for() {
    let mut setup = Setup::new();
    setup.broker.stop();
    let mut agent = setup.agent();
    agent.hears("egress down: cannot be reached");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let messages = [sample("north", "m1", hour, 1.5), heartbeat("north", "m1", hour + HOUR)];
    eventually("caught up", || agent.count(&["caught up"]) > 0);
    setup.publish(&messages);
    setup.broker.run();
    setup.arrives(&reference::expect(&rules(fleet::Times::around_midnight()), &messages));
    setup.leaves_empty(agent);
}

#[test]
fn a_wrong_password_is_told_once_with_its_remedy_and_mended_at_the_broker() {
    let mut devices = Broker::absent_with("allow_anonymous false\npassword_file {dir}/passwords");
    devices.set_password("agent", "another");
    devices.run();
    let options = Options {
        broker: "user = \"agent\"\npassword-file = \"{dir}/password\"",
        ..Options::default()
    };
    let mut setup = Setup::absent(devices, &options);
    std::fs::write(setup.dir().join("password"), "right-one\n").expect("the directory is ours");
    let mut agent = setup.agent();
    let line = agent.hears("ingress down: user name or password refused");
    assert!(line.contains("WARN") && line.contains("password_file"), "{line}");
    agent.hears("ingress still down");
    assert_eq!(agent.count(&["WARN", "ingress down"]), 1, "{}", agent.last_words());

    setup.devices.stop();
    setup.devices.set_password("agent", "right-one");
    setup.devices.run();
    agent.hears("caught up");
    assert_eq!(agent.count(&["right-one"]), 0, "a password is never told");
    agent.stop();
}

#[test]
fn a_filter_that_has_left_the_configuration_is_given_up() {
    let setup = Setup::new();
    let mut agent = setup.agent();
    agent.hears("caught up");
    agent.stop();
    let config = std::fs::read_to_string(setup.config()).expect("written by us");
    let (meters, _arrays) = config.rsplit_once("[[source]]").expect("two sources");
    std::fs::write(setup.config(), meters).expect("the directory is ours");

    let mut agent = setup.agent();
    agent.hears("caught up");
    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let array =
        fleet::Message { topic: "arrays/north/a1".into(), payload: "{\"samples\":[]}".into() };
    let messages = [sample("north", "m1", hour, 1.5), heartbeat("north", "m1", hour + HOUR)];
    setup.publish(&[array]);
    setup.publish(&messages);
    setup.arrives(&reference::expect(&rules(fleet::Times::around_midnight()), &messages));
    let left = agent.stop();
    assert_eq!((left.books().of("received"), left.books().of("unmatched")), (2, 0));
}

#[test]
fn under_the_shipped_access_list_all_is_heard_and_nothing_that_is_forged() {
    let (agent, own, other) = (("tidegate", "one"), ("m1", "two"), ("m2", "three"));
    let options = Options {
        broker: "user = \"tidegate\"\npassword-file = \"{dir}/password\"",
        ..Options::default()
    };
    let setup = Setup::absent(Broker::restricted("mosquitto.acl", &[agent, own, other]), &options);
    std::fs::write(setup.dir().join("password"), agent.1).expect("the directory is ours");
    let mut agent = setup.agent();
    agent.hears("caught up");
    assert_eq!(agent.count(&["probe"]), 0, "{}", agent.last_words());

    let hour = fleet::now().div_euclid(HOUR) * HOUR - 2 * HOUR;
    let messages =
        |name, value| [sample("north", name, hour, value), heartbeat("north", name, hour + HOUR)];
    let publish = |login, messages: &[fleet::Message]| {
        let pairs = messages.iter().map(|it| (it.topic.as_str(), it.payload.as_str()));
        block_on(publish_as(login, setup.devices.port(), pairs));
    };
    publish(own, &messages("m2", 9.5));
    publish(own, &messages("m1", 1.5));
    publish(other, &messages("m2", 2.5));
    let honest = [messages("m1", 1.5), messages("m2", 2.5)].concat();
    setup.arrives(&reference::expect(&rules(fleet::Times::around_midnight()), &honest));
    assert_eq!(setup.leaves_empty(agent).books().of("received"), 4);
}
