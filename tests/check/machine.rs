//! What is on this machine: its clock, its disk, its files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::authority::Authority;
use crate::place::{CONFIG, FORBIDDEN, Place, Told, UNREACHABLE};
use crate::support::{Broker, Manner, TimeServer, faketime, free_port};

/// With these time servers, and no brokers: those have failures of their own.
fn asked(servers: &[String], more: &str) -> Told {
    let mut place = Place::at(free_port());
    place.clock = format!("servers = {servers:?}\n{more}");
    place.check()
}

fn named(servers: &[&TimeServer]) -> Vec<String> {
    servers.iter().map(|server| server.name()).collect()
}

#[test]
fn time_servers_that_agree_and_one_that_lies() {
    let good = || TimeServer::start(Manner::ahead(0));
    let (a, b, liar) = (good(), good(), TimeServer::start(Manner::ahead(3 * 3_600)));
    let told = asked(&named(&[&a, &b, &liar]), "");
    told.line("time", "warning", &[&liar.name(), "behind", "most others say otherwise"]);
    told.line("time", "ok", &["2 of 3 servers agree"]);
    told.line("time", "ok", &[&a.name(), "stratum 2, the host's clock is"]);
    assert_eq!(told.count("time", "failure"), 0, "{told}");
}

#[test]
fn time_servers_that_contradict_each_other_or_are_silent() {
    let ahead = |seconds| TimeServer::start(Manner::ahead(seconds));
    let (a, b) = (ahead(0), ahead(3_600));
    let told = asked(&named(&[&a, &b]), "source = \"sntp\"\n");
    told.line("time", "failure", &["contradict each other", "three or more"]);
    let silent = TimeServer::start(Manner::silent());
    let told = asked(&named(&[&silent]), "source = \"sntp\"\n");
    told.line("time", "warning", &[&silent.name(), "no answer", "(silent)"]);
    told.line("time", "failure", &["no time server answers"]);
    told.leaves_with(UNREACHABLE);
    let told = asked(&["nowhere.invalid".to_owned()], "trust-host = true\n");
    told.line("time", "warning", &["nowhere.invalid", "its name has no address", "(name)"]);
    told.line("time", "warning", &["no time server answers; the host's clock stands in"]);
}

/// A broker whose certificate ends with this year, and who signed it.
fn with_tls(until: i32) -> (Broker, Authority) {
    let mut broker = Broker::absent_with(
        "cafile {dir}/ca.pem\ncertfile {dir}/server.pem\nkeyfile {dir}/server.key",
    );
    let authority = Authority::new("ours");
    authority.write(&broker.dir().join("ca.pem"));
    authority.sign(broker.dir(), "server", &["127.0.0.1"], until);
    broker.run();
    (broker, authority)
}

#[test]
fn a_host_whose_clock_is_off_is_told_and_certificates_are_judged_by_the_right_time() {
    let Some(library) = faketime() else {
        println!("skipped: faketime is not installed");
        return;
    };
    let (broker, _) = with_tls(2080);
    let servers: Vec<_> = (0..3).map(|_| TimeServer::start(Manner::ahead(0))).collect();
    let mut place = Place::at(broker.port());
    for side in [&mut place.broker, &mut place.upstream] {
        *side += &format!("ca-file = {:?}\n", broker.dir().join("ca.pem"));
    }
    let check = |place: &Place| {
        let mut command = place.command();
        command
            .env("LD_PRELOAD", &library)
            .env("FAKETIME", "@2000-01-01 00:00:00")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Place::end(command)
    };
    place.clock = format!("servers = {:?}\n", named(&servers.iter().collect::<Vec<_>>()));
    let told = check(&place);
    told.line("time", "warning", &["the host's clock is", "h behind", "goes by the servers"]);
    told.leaves_with(0);
    // Nobody says what time it is: then it is the clock's fault, and not the certificate's.
    place.clock = "source = \"system\"\n".to_owned();
    let told = check(&place);
    told.line("devices", "failure", &["clock is not synchronised", "2025-06-15"]);
}

#[test]
fn certificates_that_end_within_a_month_are_told_before() {
    let Some(library) = faketime() else {
        println!("skipped: faketime is not installed");
        return;
    };
    let (broker, authority) = with_tls(2077);
    authority.sign(broker.dir(), "client", &["gw"], 2077);
    let mut place = Place::at(broker.port());
    let file = |name: &str| broker.dir().join(name);
    for side in [&mut place.broker, &mut place.upstream] {
        *side += &format!("ca-file = {:?}\n", file("ca.pem"));
    }
    let (certificate, key) = (file("client.pem"), file("client.key"));
    place.upstream += &format!("cert-file = {certificate:?}\nkey-file = {key:?}\n");
    let on = |day: &str| {
        let mut command = place.command();
        command
            .env("LD_PRELOAD", &library)
            .env("FAKETIME", format!("@{day} 00:00:00"))
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Place::end(command)
    };
    let told = on("2077-06-01");
    told.leaves_with(0);
    for side in ["devices", "central"] {
        told.line(side, "warning", &["certificate", "expires on 2077-06-15; renew it before"]);
    }
    told.line("files", "warning", &["upstream.cert-file: expires on 2077-06-15"]);
    let told = on("2077-05-01");
    assert!(!told.to_string().contains("expires on"), "{told}");
}

#[test]
fn a_store_below_a_file_and_one_with_too_little_room() {
    let mut place = Place::at(free_port());
    let file = place.dir().join("file");
    fs::write(&file, "").expect("ours");
    place.store = format!("path = \"{}/store\"\n", file.display());
    let told = place.check();
    told.leaves_with(CONFIG);
    told.line("store", "failure", &["file: not a directory; write another store.path"]);
    place.store =
        format!("path = \"{}/store\"\noutbox-quota = \"1000 GiB\"\n", place.dir().display());
    let told = place.check();
    told.line("store", "ok", &["does not exist, and can be made by"]);
    told.line("store", "warning", &["are free", "make room, or lower the quotas"]);
    assert!(!place.dir().join("store").exists(), "it was only looked at");
}

/// Nobody, on Debian and most others.
const NOBODY: u32 = 65_534;

fn mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_store_that_this_user_may_not_write_or_see_is_told_as_that() {
    let mut place = Place::at(free_port());
    let dir = place.dir().to_owned();
    mode(&dir, 0o755);
    let (read_only, closed) = (dir.join("read-only"), dir.join("closed"));
    for (made, bits) in [(&read_only, 0o555), (&closed, 0o700)] {
        fs::create_dir(made).expect("ours");
        mode(made, bits);
    }
    if fs::metadata(&closed).expect("it is there").uid() != 0 {
        // This user's own: he may not look into what nobody may.
        mode(&closed, 0o000);
    }
    for (store, told) in [
        (&read_only, "read-only/store: does not exist, and cannot be made by"),
        (&closed, "may not be looked at by this user; check as root"),
    ] {
        place.store = format!("path = \"{}/store\"\n", store.display());
        let ended = Place::end(place.command_as(NOBODY));
        ended.leaves_with(FORBIDDEN);
        ended.line("store", "failure", &[told]);
    }
    mode(&closed, 0o700);
}

#[test]
fn root_checks_for_the_user_of_the_service() {
    let mut place = Place::at(free_port());
    let store = place.dir().join("store");
    fs::create_dir(&store).expect("ours");
    if fs::metadata(&store).expect("it is there").uid() != 0 {
        println!("skipped: only root checks for others");
        return;
    }
    std::os::unix::fs::chown(&store, Some(NOBODY), Some(NOBODY)).expect("root may");
    let secret = place.dir().join("password");
    fs::write(&secret, "any").expect("ours");
    mode(&secret, 0o600);
    place.broker += &format!("user = \"gw\"\npassword-file = {secret:?}\n");
    mode(&store, 0o700);
    let told = place.check();
    told.line("store", "ok", &["can be written by nobody, as whom the agent runs"]);
    told.line(
        "files",
        "warning",
        &["broker.password-file", "cannot be read by nobody", "LoadCredential="],
    );
    mode(&store, 0o500);
    std::os::unix::fs::chown(&secret, Some(NOBODY), None).expect("root may");
    let told = place.check();
    told.leaves_with(FORBIDDEN);
    told.line("store", "failure", &["cannot be written by nobody"]);
    assert_eq!(told.count("files", "warning"), 0, "{told}");
}

#[test]
fn a_certificate_of_ours_that_has_expired_and_a_key_that_everybody_can_read() {
    let mut place = Place::at(free_port());
    let authority = Authority::new("ours");
    authority.sign(place.dir(), "client", &["gw"], 2026);
    let (certificate, key) = (place.dir().join("client.pem"), place.dir().join("client.key"));
    mode(&key, 0o644);
    place.upstream += &format!("cert-file = {certificate:?}\nkey-file = {key:?}\n");
    let told = place.check();
    told.leaves_with(CONFIG);
    told.line("files", "failure", &["upstream.cert-file: expired on 2026-06-15; renew it"]);
    told.line("files", "warning", &["upstream.key-file", "can be read by everybody", "chmod o="]);
}
