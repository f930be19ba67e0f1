//! Both brokers: what is well with the shipped configuration of mosquitto, and what each fault is told as.

use std::fs;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::agent::Agent;
use crate::authority::Authority;
use crate::place::{CONFIG, FORBIDDEN, Place, UNREACHABLE};
use crate::support::{Broker, Mode, Proxy, Subscriber, free_port};

const LATER: i32 = 2080;
const TLS: &str = "cafile {dir}/ca.pem\ncertfile {dir}/server.pem\nkeyfile {dir}/server.key";

#[test]
fn with_the_shipped_configuration_of_mosquitto_all_is_well_in_either_version() {
    let broker = Broker::start();
    for version in ["version = 5\n", "version = \"3.1.1\"\nin-flight = 1000\n"] {
        let mut place = Place::at(broker.port());
        place.broker += version;
        place.upstream += version;
        let told = place.check();
        told.leaves_with(0);
        assert_eq!(
            told.count("devices", "warning") + told.count("central", "warning"),
            0,
            "{told}"
        );
        told.line("devices", "ok", &["(127.0.0.1): let in without a login, MQTT"]);
        told.line("devices", "ok", &["subscribed at QoS 1 to meters/+/+/+"]);
        told.line("devices", "ok", &["burst: 2,000 messages", "all came back"]);
        told.line("devices", "ok", &["the broker is mosquitto version 2."]);
        told.line("central", "ok", &["tidegate/gw/check: published at QoS 1 and acknowledged"]);
        told.adds_up();
    }
}

#[test]
fn a_broker_that_drops_silently_what_it_acknowledged_is_found_out_in_either_version() {
    // The shipped file says it once: what is said last holds.
    let broker = Broker::start_with("max_queued_messages 1000");
    for version in ["version = 5\n", "version = \"3.1.1\"\nin-flight = 1000\n"] {
        let mut place = Place::at(broker.port());
        place.broker += version;
        let told = place.check();
        told.leaves_with(0);
        let line =
            told.line("devices", "warning", &["burst: the broker acknowledged 2,000 messages"]);
        for text in
            ["1,000 came back", "max_queued_messages", "max_queued_bytes", "config/mosquitto.conf"]
        {
            assert!(line.contains(text), "{line}");
        }
    }
}

#[test]
fn nothing_stays_at_the_broker_and_nothing_is_retained() {
    let broker = Broker::start_with("sys_interval 1");
    let runtime = runtime();
    let mut heard = runtime.block_on(Subscriber::to(broker.port(), "tidegate/#"));
    for version in ["version = 5\n", "version = \"3.1.1\"\nin-flight = 1000\n"] {
        let mut place = Place::at(broker.port());
        place.broker += version;
        place.check().leaves_with(0);
    }
    let (all, kept) = runtime.block_on(async {
        let all = heard.drain(Duration::from_millis(500)).await;
        let mut late = Subscriber::to(broker.port(), "tidegate/#").await;
        (all, late.drain(Duration::from_millis(500)).await)
    });
    let other = all.iter().find(|message| {
        let probe = message.topic.starts_with("tidegate/probe/tidegate-gw-check-");
        !probe && message.topic != "tidegate/gw/check"
    });
    assert!(other.is_none() && all.len() > 4_000, "{other:?} of {}", all.len());
    assert!(kept.is_empty(), "{kept:?}");
    assert_eq!(sessions(&broker, &runtime), 0, "a session stayed");
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Clients that the broker keeps a session for and that are away. It says so each second, by the line of the test.
fn sessions(broker: &Broker, runtime: &Runtime) -> u32 {
    runtime.block_on(async {
        let mut told = Subscriber::to(broker.port(), "$SYS/#").await;
        let (mut seconds, mut away) = (0, None);
        // The first is an old one, and the second may be about to be.
        while seconds < 3 || away.is_none() {
            let message = told.next().await.expect("it is told again and again");
            match message.topic.as_str() {
                "$SYS/broker/uptime" => seconds += 1,
                "$SYS/broker/clients/disconnected" => {
                    away = String::from_utf8_lossy(&message.payload).parse().ok();
                }
                _ => {}
            }
        }
        away.expect("it was told")
    })
}

#[test]
fn a_running_agent_is_said_and_not_disturbed() {
    let broker = Broker::start();
    let place = Place::at(broker.port());
    let mut agent = Agent::run(&place.write());
    agent.hears("caught up");
    let told = place.check();
    told.leaves_with(0);
    told.line("store", "ok", &["an agent runs on it"]);
    told.line("status", "ok", &["the agent answers, and is"]);
    told.line("devices", "ok", &["burst: 2,000 messages"]);
    let left = agent.stop();
    let down = left.log.iter().find(|line| line.contains(" down: "));
    assert_eq!(down, None, "a connection of the agent's ended");
    let books = left.books();
    assert_eq!(books.of("received"), 0, "{books:?}");
}

#[test]
fn a_source_that_would_hear_the_burst_spares_it() {
    let broker = Broker::start();
    let mut place = Place::at(broker.port());
    place.more = "[[source]]\nname = \"all\"\ntopic = \"{a}/{b}/{device}\"\n".to_owned();
    let told = place.check();
    told.leaves_with(0);
    told.line("devices", "warning", &["burst: not tried, since +/+/+ would bring it"]);
    assert_eq!(told.count("devices", "warning"), 1, "{told}");
}

#[test]
fn a_wrong_password_is_not_allowed_and_never_shown() {
    let mut broker = Broker::absent_with("allow_anonymous false\npassword_file {dir}/passwords");
    broker.set_password("gw", "the right one");
    broker.run();
    let mut place = Place::at(broker.port());
    let file = place.dir().join("password");
    fs::write(&file, "hush-hush\n").expect("ours");
    for side in [&mut place.broker, &mut place.upstream] {
        *side += &format!("user = \"gw\"\npassword-file = {file:?}\n");
    }
    let told = place.check();
    told.leaves_with(FORBIDDEN);
    for side in ["devices", "central"] {
        told.line(
            side,
            "failure",
            &["user name or password refused; check user and password-file"],
        );
    }
    assert!(!told.to_string().contains("hush-hush"), "a secret is told");
    for option in ["broker.password-file", "upstream.password-file"] {
        told.line("files", "warning", &[option, "can be read by everybody", "chmod o="]);
    }
    fs::write(&file, "the right one\n").expect("ours");
    let private = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(&file, private).expect("ours");
    let told = place.check();
    told.leaves_with(0);
    told.line("devices", "ok", &["let in as user \"gw\""]);
    assert_eq!(told.count("files", "ok"), 2, "{told}");
}

#[test]
fn a_credential_that_only_the_service_has_is_no_fault() {
    let broker = Broker::start();
    let mut place = Place::at(broker.port());
    place.upstream += "user = \"gw\"\npassword-file = \"credential:upstream\"\n";
    let mut command = place.command();
    command.env_remove("CREDENTIALS_DIRECTORY");
    let told = Place::end(command);
    told.leaves_with(0);
    told.line(
        "central",
        "warning",
        &["password-file is a credential of the service", "systemd-run"],
    );
    assert_eq!(told.count("central", "ok"), 0, "{told}");
    let mut command = place.command();
    fs::write(place.dir().join("upstream"), "any").expect("ours");
    command.env("CREDENTIALS_DIRECTORY", place.dir());
    Place::end(command).line("central", "ok", &["let in as user \"gw\""]);
}

#[test]
fn brokers_that_are_away_and_names_that_are_none() {
    let mut place = Place::at(free_port());
    place.upstream = "host = \"nowhere.invalid\"\n".to_owned();
    let told = place.check();
    told.leaves_with(UNREACHABLE);
    told.line("devices", "failure", &["cannot be reached", "check host and port"]);
    told.line("central", "failure", &["\"nowhere.invalid\" cannot be resolved", "DNS"]);
    told.adds_up();
}

#[test]
fn a_broker_that_says_nothing_is_given_up_soon() {
    let broker = Broker::start();
    let proxy = Proxy::to(broker.port());
    proxy.set(Mode::Blackhole);
    let began = std::time::Instant::now();
    let told = Place::at(proxy.port()).check();
    told.leaves_with(UNREACHABLE);
    told.line("devices", "failure", &["no answer within 5s"]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// A broker with a certificate, and who checks it.
fn with_tls(hosts: &[&str], to_year: i32) -> (Broker, Place) {
    let mut broker = Broker::absent_with(TLS);
    let authority = Authority::new("ours");
    authority.write(&broker.dir().join("ca.pem"));
    authority.sign(broker.dir(), "server", hosts, to_year);
    broker.run();
    let mut place = Place::at(broker.port());
    for side in [&mut place.broker, &mut place.upstream] {
        *side += &format!("ca-file = {:?}\n", broker.dir().join("ca.pem"));
    }
    (broker, place)
}

#[test]
fn certificates_that_fit_and_such_as_do_not() {
    let (broker, place) = with_tls(&["127.0.0.1"], LATER);
    let told = place.check();
    told.leaves_with(0);
    told.line("devices", "ok", &["mqtts://127.0.0.1:", "let in"]);
    told.line("central", "ok", &["is good for 30 days and more"]);
    told.line("files", "ok", &["broker.ca-file", "good until 2090-06-15"]);
    Authority::new("another").write(&broker.dir().join("ca.pem"));
    let told = place.check();
    told.leaves_with(CONFIG);
    for side in ["devices", "central"] {
        told.line(
            side,
            "failure",
            &["signed by an unknown authority; name the certificate", "ca-file"],
        );
    }
}

#[test]
fn a_certificate_for_another_host_and_one_that_has_expired() {
    let (_broker, place) = with_tls(&["broker.example"], LATER);
    let told = place.check();
    told.leaves_with(CONFIG);
    told.line("devices", "failure", &["is for another host: broker.example; set host to a name"]);
    let (_broker, place) = with_tls(&["127.0.0.1"], 2026);
    let told = place.check();
    told.leaves_with(UNREACHABLE);
    told.line("central", "failure", &["expired on 2026-06-15; renew the broker's certificate"]);
}

#[test]
fn an_access_list_that_refuses_is_told_as_that_and_not_as_loss() {
    let mut broker = Broker::absent_with("acl_file {dir}/acl");
    for (acl, texts) in [
        // Everything but our own topics.
        ("topic readwrite meters/#\ntopic read $SYS/#\n", "is not allowed: NotAuthorized (0x87)"),
        (
            "topic write #\ntopic read meters/#\ntopic read $SYS/#\n",
            "does not come back: an access list",
        ),
    ] {
        fs::write(broker.dir().join("acl"), acl).expect("ours");
        broker.run();
        let mut place = Place::at(broker.port());
        place.upstream += "version = 5\n";
        let told = place.check();
        told.line("devices", "warning", &["burst: not tried", texts, "tidegate/probe/#"]);
        assert!(!told.to_string().contains("is lost"), "{told}");
        if acl.contains("write #") {
            told.leaves_with(0);
        } else {
            told.leaves_with(FORBIDDEN);
            told.line(
                "central",
                "failure",
                &["tidegate/gw/check is not allowed: NotAuthorized (0x87)", "ACL"],
            );
        }
        broker.stop();
    }
}

#[test]
fn a_broker_that_gives_the_session_of_the_user_is_left_alone() {
    let mut broker = Broker::absent_with(
        "allow_anonymous false\npassword_file {dir}/passwords\nuse_username_as_clientid true",
    );
    broker.set_password("gw", "right");
    broker.run();
    let mut place = Place::at(broker.port());
    let file = place.dir().join("password");
    fs::write(&file, "right").expect("ours");
    let login = format!("user = \"gw\"\npassword-file = {file:?}\n");
    place.broker += &login;
    place.upstream = format!("host = \"127.0.0.1\"\nport = {}\n", free_port());
    let mut agent = Agent::run(&place.write());
    agent.hears("caught up");
    agent.stop();
    // What comes for the agent meanwhile is in its session.
    let told = place.check();
    told.line("devices", "warning", &["use_username_as_clientid", "nothing further is tried"]);
    assert_eq!(told.count("devices", "ok"), 1, "{told}");
    let mut agent = Agent::run(&place.write());
    let line = agent.hears("session_present=");
    assert!(line.contains("session_present=true"), "the agent's session is gone: {line}");
}

#[test]
fn an_interrupted_check_takes_back_what_it_began() {
    let broker = Broker::start_with("sys_interval 1");
    let mut place = Place::at(broker.port());
    place.broker += "version = \"3.1.1\"\nin-flight = 1000\n";
    let runtime = runtime();
    let mut heard = runtime.block_on(Subscriber::to(broker.port(), "tidegate/probe/#"));
    let mut command = crate::agent::command(&place.write(), "check");
    command.arg("--connect");
    let checking = Agent::spawn(command);
    // It is in the middle of the burst.
    runtime.block_on(async {
        for _ in 0..3 {
            heard.next().await.expect("the burst");
        }
    });
    checking.signal("INT");
    let left = checking.end();
    let interrupted = left.log.iter().any(|line| line.contains("interrupted; what was begun"));
    assert!(interrupted || left.status.success(), "{:?}", left.log);
    assert_eq!(sessions(&broker, &runtime), 0, "a session stayed");
}
