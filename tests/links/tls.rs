//! TLS and logins: each fault is told in one line that names the remedy, tried again, and right after the fix without a
//! restart.

use std::fs;
use std::path::{Path, PathBuf};

use crate::agent::{self, Agent};
use crate::authority::Authority;
use crate::support::Broker;

const TLS: &str = "cafile {dir}/ca.pem\ncertfile {dir}/server.pem\nkeyfile {dir}/server.key";
const BOTH_SIDES: [&str; 2] = ["ingress", "egress"];
const LATER: i32 = 2080;

/// A broker with TLS for both sides of the agent, which speaks MQTT 5 on one and 3.1.1 on the other.
struct Stage {
    authority: Authority,
    broker: Broker,
}

impl Stage {
    /// All is well, until the test changes something; then it is to be opened.
    fn new() -> Self {
        let stage = Self { authority: Authority::new("ours"), broker: Broker::absent_with(TLS) };
        stage.authority.write(&stage.file("ca.pem"));
        stage.authority.sign(stage.broker.dir(), "server", &["localhost", "127.0.0.1"], LATER);
        stage.authority.sign(stage.broker.dir(), "client", &["gw"], LATER);
        stage
    }

    fn file(&self, name: &str) -> PathBuf {
        self.broker.dir().join(name)
    }

    /// The agent, with these lines for both connections.
    fn agent(&self, lines: &str) -> Agent {
        Agent::run(&self.configure("localhost", lines))
    }

    fn configure(&self, host: &str, lines: &str) -> PathBuf {
        let (port, dir) = (self.broker.port(), self.broker.dir().display().to_string());
        let lines = lines.replace("{dir}", &dir);
        let text = format!(
            "gateway.id = \"gw\"\nclock.trust-host = true\nstore.path = \"{dir}/store\"\n\
             [broker]\nhost = \"{host}\"\nport = {port}\n{lines}\n\
             [upstream]\nhost = \"{host}\"\nport = {port}\n{lines}\n\
             [[source]]\nname = \"meters\"\ntopic = \"meters/{{device}}\"\n"
        );
        let path = self.file("tidegate.toml");
        fs::write(&path, text).expect("the directory is ours");
        path
    }

    fn restart(&mut self, lines: &str) {
        self.broker.stop();
        self.broker.set_lines(lines);
        self.broker.run();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).expect("the directory is ours");
}

/// Both sides have been let in, for the first time.
fn connected(agent: &mut Agent) {
    connected_times(1, agent);
}

fn connected_times(times: usize, agent: &mut Agent) {
    for side in BOTH_SIDES {
        while agent.count(&[side, " connected"]) < times {
            agent.hears(" connected");
        }
    }
}

/// Each side has said this, once, and nothing else, and goes on trying.
fn told_once(agent: &mut Agent, texts: &[&str]) {
    for side in BOTH_SIDES {
        while agent.count(&[side, "still down"]) < 2 {
            agent.hears("still down");
        }
        let down = format!("{side} down: ");
        let all: Vec<&str> = [&[down.as_str()], texts].concat();
        assert_eq!(agent.count(&all), 1, "{side} {texts:?}:\n{}", agent.last_words());
        let [warnings, errors] = ["WARN", "ERROR"].map(|level| agent.count(&[level, side, "down"]));
        assert_eq!(warnings + errors, 1, "{side}:\n{}", agent.last_words());
    }
}

const WITH_CA: &str = "ca-file = \"{dir}/ca.pem\"";
const MUTUAL: &str =
    "ca-file = \"{dir}/ca.pem\"\ncert-file = \"{dir}/client.pem\"\nkey-file = \"{dir}/client.key\"";

#[test]
fn both_sides_connect_with_tls_in_either_version() {
    for versions in ["version = 5", "version = \"3.1.1\""] {
        let mut stage = Stage::new();
        stage.broker.run();
        let mut agent = stage.agent(&format!("{WITH_CA}\n{versions}"));
        connected(&mut agent);
        assert_eq!(agent.count(&["connecting", "mqtts://localhost:"]), 1);
        agent.hears("caught up");
        agent.stop();
    }
}

#[test]
fn an_address_is_good_where_the_certificate_has_it() {
    let mut stage = Stage::new();
    stage.broker.run();
    connected(&mut Agent::run(&stage.configure("127.0.0.1", WITH_CA)));
}

#[test]
fn without_a_ca_file_the_authorities_of_the_system_are_trusted() {
    let mut stage = Stage::new();
    stage.broker.run();
    let mut command = agent::command(&stage.configure("localhost", "tls = true"), "run");
    command.env("SSL_CERT_FILE", stage.file("ca.pem"));
    connected(&mut Agent::spawn(command));
    let mut agent = stage.agent("tls = true");
    told_once(&mut agent, &["authorit", "ca-file"]);
}

#[test]
fn both_sides_connect_with_a_certificate_of_ours() {
    let mut stage = Stage::new();
    stage.broker.set_lines(&format!("{TLS}\nrequire_certificate true"));
    stage.broker.run();
    connected(&mut stage.agent(MUTUAL));
}

#[test]
fn a_wrong_authority() {
    for name in ["another", "ours"] {
        let mut stage = Stage::new();
        Authority::new(name).write(&stage.file("trusted.pem"));
        stage.broker.run();
        let mut agent = stage.agent("ca-file = \"{dir}/trusted.pem\"");
        told_once(&mut agent, &["signed by an unknown authority", "ca-file"]);
        copy(&stage.file("ca.pem"), &stage.file("trusted.pem"));
        connected(&mut agent);
    }
}

#[test]
fn a_wrong_host_name() {
    let mut stage = Stage::new();
    stage.authority.sign(stage.broker.dir(), "server", &["broker.example"], LATER);
    stage.broker.run();
    let mut agent = stage.agent(WITH_CA);
    told_once(&mut agent, &["is for another host: broker.example;", "set host to a name"]);
    stage.authority.sign(stage.broker.dir(), "server", &["localhost"], LATER);
    stage.restart(TLS);
    connected(&mut agent);
}

#[test]
fn an_expired_certificate() {
    let mut stage = Stage::new();
    stage.authority.sign(stage.broker.dir(), "server", &["localhost"], 2026);
    stage.broker.run();
    let mut agent = stage.agent(WITH_CA);
    told_once(&mut agent, &["expired on 2026-06-15; renew the broker's certificate"]);
    stage.authority.sign(stage.broker.dir(), "server", &["localhost"], LATER);
    stage.restart(TLS);
    connected(&mut agent);
}

#[test]
fn no_certificate_of_ours() {
    let mut stage = Stage::new();
    stage.broker.set_lines(&format!("{TLS}\nrequire_certificate true"));
    stage.broker.run();
    let mut agent = stage.agent(WITH_CA);
    told_once(&mut agent, &["asks for a certificate of ours", "cert-file and key-file"]);
    stage.restart(TLS);
    connected(&mut agent);
}

#[test]
fn no_certificate_of_ours_in_tls_1_2() {
    let mut stage = Stage::new();
    stage.broker.set_lines(&format!("{TLS}\nrequire_certificate true\ntls_version tlsv1.2"));
    stage.broker.run();
    let mut agent = stage.agent(WITH_CA);
    told_once(&mut agent, &["asks for a certificate of ours", "cert-file and key-file"]);
}

#[test]
fn a_certificate_of_ours_that_has_expired_or_is_signed_by_somebody_else() {
    for wrong in ["expired", "by another"] {
        let mut stage = Stage::new();
        match wrong {
            "expired" => stage.authority.sign(stage.broker.dir(), "client", &["gw"], 2026),
            _ => Authority::new(wrong).sign(stage.broker.dir(), "client", &["gw"], LATER),
        }
        stage.broker.set_lines(&format!("{TLS}\nrequire_certificate true"));
        stage.broker.run();
        let mut agent = stage.agent(MUTUAL);
        told_once(&mut agent, &["does not accept our certificate", "renew cert-file"]);
        stage.authority.sign(stage.broker.dir(), "client", &["gw"], LATER);
        connected(&mut agent);
    }
}

#[test]
fn a_port_that_does_not_speak_tls() {
    let mut stage = Stage::new();
    stage.broker.set_lines("");
    stage.broker.run();
    let mut agent = stage.agent(WITH_CA);
    told_once(&mut agent, &["does not answer in TLS", "port", "tls = false"]);
    stage.restart(TLS);
    connected(&mut agent);
}

#[test]
fn a_port_that_speaks_tls_and_is_not_asked_to() {
    let mut stage = Stage::new();
    stage.broker.run();
    let mut agent = stage.agent("");
    told_once(&mut agent, &["set tls = true"]);
    stage.restart("");
    connected(&mut agent);
}

#[test]
fn a_wrong_password() {
    let mut stage = Stage::new();
    stage
        .broker
        .set_lines(&format!("{TLS}\nallow_anonymous false\npassword_file {{dir}}/passwords"));
    stage.broker.set_password("gw", "the right one");
    fs::write(stage.file("password"), "hush-hush\n").expect("ours");
    stage.broker.run();
    let login = format!("{WITH_CA}\nuser = \"gw\"\npassword-file = \"{{dir}}/password\"");
    let mut agent = stage.agent(&login);
    told_once(&mut agent, &["user name or password refused", "password-file"]);
    fs::write(stage.file("password"), "the right one\n").expect("ours");
    connected(&mut agent);
    assert_eq!(
        agent.count(&["hush-hush"]) + agent.count(&["the right one"]),
        0,
        "a secret is told"
    );
}

#[test]
fn a_password_that_systemd_hands_over() {
    let mut stage = Stage::new();
    stage.broker.set_lines("allow_anonymous false\npassword_file {dir}/passwords");
    stage.broker.set_password("gw", "right");
    stage.broker.run();
    let lines = "user = \"gw\"\npassword-file = \"credential:broker\"";
    let credentials = stage.file("credentials");
    fs::create_dir(&credentials).expect("ours");
    fs::write(credentials.join("broker"), "right").expect("ours");
    let config = stage.configure("localhost", lines);
    let mut command = agent::command(&config, "run");
    command.env("CREDENTIALS_DIRECTORY", &credentials);
    let mut with = Agent::spawn(command);
    connected(&mut with);
    with.stop();
    let mut command = agent::command(&config, "run");
    command.env_remove("CREDENTIALS_DIRECTORY");
    told_once(&mut Agent::spawn(command), &["password-file cannot be read", "LoadCredential="]);
}

#[test]
fn files_that_go_bad_while_it_runs() {
    for (file, texts) in [
        ("ca.pem", ["ca-file holds no certificate in PEM", "mend the file"]),
        ("client.pem", ["cert-file holds no certificate in PEM", "mend the file"]),
        ("client.key", ["key-file holds no private key in PEM", "mend the file"]),
        (
            "server.key",
            ["key-file is not the key of the certificate in cert-file", "mend the file"],
        ),
    ] {
        let mut stage = Stage::new();
        let dir = stage.broker.dir().to_owned();
        for name in ["ca.pem", "client.pem", "client.key"] {
            copy(&dir.join(name), &dir.join(format!("our-{name}")));
        }
        let ours = MUTUAL.replace("{dir}/", "{dir}/our-");
        stage.broker.run();
        let mut agent = stage.agent(&ours);
        connected(&mut agent);
        let kept = if file == "server.key" { "client.key" } else { file };
        match file {
            "server.key" => copy(&dir.join(file), &dir.join("our-client.key")),
            file => fs::write(dir.join(format!("our-{file}")), "nothing").expect("ours"),
        }
        // Its end is told too, and is another matter.
        let before = BOTH_SIDES.map(|side| agent.count(&[side, " down: "]));
        stage.restart(TLS);
        for side in BOTH_SIDES {
            while agent.count(&[side, "down: ", texts[0], texts[1]]) == 0 {
                agent.hears(texts[0]);
            }
            while agent.count(&[side, "still down: ", texts[0]]) < 1 {
                agent.hears("still down");
            }
            assert_eq!(agent.count(&["WARN", side, texts[0]]), 1, "{}", agent.last_words());
        }
        assert_eq!(before, [0, 0]);
        copy(&dir.join(kept), &dir.join(format!("our-{kept}")));
        connected_times(2, &mut agent);
    }
}

#[test]
fn a_clock_that_was_never_set_is_at_fault_and_not_the_certificate() {
    let Some(library) = crate::support::faketime() else {
        println!("skipped: faketime is not installed");
        return;
    };
    let mut stage = Stage::new();
    stage.broker.run();
    let mut command = agent::command(&stage.configure("localhost", WITH_CA), "run");
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME", "@2000-01-01 00:00:00")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let mut agent = Agent::spawn(command);
    told_once(&mut agent, &["clock is not synchronised", "2025-06-15", "tidegate status"]);
}
