//! The agent as a process, on a host whose clock is wrong, and that somebody sets.

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;

use crate::agent::{Agent, PATIENCE, command};
use crate::authority::Authority;
use crate::contract::CONTRACT;
use crate::support::{self, Broker, Manner, Seconds, Subscriber, TimeServer};

pub const HOUR: i64 = 3_600_000;

/// Between two brokers, with a configuration.
pub struct Stage {
    pub devices: Broker,
    pub central: Broker,
    dir: TempDir,
}

/// Further lines of a configuration.
#[derive(Default)]
pub struct Lines<'a> {
    /// For `[clock]`.
    pub clock: &'a str,
    /// For `[upstream]`, where `{dir}` is the central broker's directory.
    pub upstream: &'a str,
    /// For the source of meters.
    pub source: &'a str,
    /// Further tables.
    pub tables: &'a str,
}

impl Stage {
    pub fn new(central: Broker, lines: &Lines<'_>) -> Self {
        let Lines { clock, upstream, source, tables } = lines;
        let (devices, dir) = (Broker::start(), TempDir::new().expect("a directory"));
        let path = dir.path().display();
        let upstream = upstream.replace("{dir}", &central.dir().display().to_string());
        let text = format!(
            r#"
gateway.id = "gw"
store = {{ path = "{path}/store", commit-interval = "100ms" }}
status.socket = "{path}/status.sock"
[clock]
{clock}
[broker]
host = "127.0.0.1"
port = {}
[upstream]
host = "localhost"
port = {}
{upstream}
[[source]]
name = "meters"
topic = "meters/{{region}}/{{device}}"
{source}
time = {{ from = "/ts", as = "epoch_ms" }}
metric = [{{ name = "power", from = "/power" }}]
{tables}
"#,
            devices.port(),
            central.port()
        );
        fs::write(dir.path().join("tidegate.toml"), text).expect("the directory is ours");
        Self { devices, central, dir }
    }

    fn plain(clock: &str) -> Self {
        Self::new(Broker::start(), &Lines { clock, ..Lines::default() })
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("tidegate.toml")
    }

    /// The agent on a host that shows another time; `None` without faketime.
    fn agent(&self, faketime: &[(&str, &str)]) -> Option<Agent> {
        let Some(library) = support::faketime() else {
            println!("skipped: faketime is not installed");
            return None;
        };
        let mut run = command(&self.config(), "run");
        run.env("LD_PRELOAD", library).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        run.envs(faketime.iter().copied());
        Some(Agent::spawn(run))
    }

    /// `tidegate status --json`; null where nobody answers.
    fn status(&self) -> Value {
        let asked = command(&self.config(), "status").arg("--json").output();
        serde_json::from_slice(&asked.expect("the command is built").stdout).unwrap_or_default()
    }

    pub fn until(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if so(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "never {what}: {status:#}");
        }
    }

    pub fn synchronised(&self) -> Value {
        self.until("synchronised", |status| status["clock"] == "synchronised")
    }

    /// The agent's clock is the machine's, within 10 ms.
    pub fn is_right(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = machine();
            let shown = self.status()["at"].as_i64().expect("a time");
            let off = (before - shown).max(shown - machine());
            if off <= 10 {
                return;
            }
            // The document may be the one that was made for who asked before.
            assert!(off <= 10 + 200 && Instant::now() < deadline, "{off} ms");
        }
    }
}

pub fn machine() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("in range")
}

/// chrony as a server of the machine's time, on loopback. It ends with its owner.
struct Chrony {
    process: Child,
    port: u16,
    _dir: TempDir,
}

impl Chrony {
    /// `None` where it is not installed.
    fn start() -> Option<Self> {
        let binary = ["/usr/sbin/chronyd", "/usr/bin/chronyd"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let Some(binary) = binary else {
            println!("skipped: chrony is not installed");
            return None;
        };
        let dir = TempDir::new().expect("a directory");
        let port = support::free_port();
        let path = dir.path().display();
        let text = format!(
            "local stratum 8\nallow 127.0.0.1\nbindaddress 127.0.0.1\nport {port}\ncmdport 0\nbindcmdaddress /\n\
             pidfile {path}/pid\ndriftfile {path}/drift\n"
        );
        fs::write(dir.path().join("conf"), text).expect("the directory is ours");
        let process = Command::new(binary)
            .args(["-x", "-n", "-u", "root", "-f"])
            .arg(dir.path().join("conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it is there");
        let chrony = Self { process, port, _dir: dir };
        chrony.answers();
        Some(chrony)
    }

    fn answers(&self) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let mut question = [0; 48];
        question[0] = 0o43;
        let deadline = Instant::now() + PATIENCE;
        let mut answer = [0; 48];
        loop {
            let _ = socket.send_to(&question, ("127.0.0.1", self.port));
            match socket.recv(&mut answer) {
                Ok(48) if answer[0] >> 6 != 3 => return,
                Err(error) if error.kind() != ErrorKind::WouldBlock => {}
                _ => {}
            }
            assert!(Instant::now() < deadline, "chrony does not answer");
        }
    }
}

impl Drop for Chrony {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn the_agent_follows_chrony_on_a_host_that_is_hours_away_and_the_centre_is_told() {
    let Some(chrony) = Chrony::start() else { return };
    let name = format!("127.0.0.1:{}", chrony.port);
    for (host, hours) in [("-3h", 3), ("+5h", -5)] {
        let stage = Stage::plain(&format!("servers = [\"{name}\"]"));
        let mut centre = Subscriber::to(stage.central.port(), "tidegate/gw/clock").await;
        let Some(agent) = stage.agent(&[("FAKETIME", host)]) else { return };
        let status = stage.synchronised();
        stage.is_right();
        let time = &status["timekeeping"];
        assert_eq!(time["reference"], *name, "{time:#}");
        assert!(time["bound"].as_i64().is_some_and(|bound| bound < 100), "{time:#}");
        let told = centre.next().await.expect("it is told");
        let body: Value = serde_json::from_slice(&told.payload).expect("JSON");
        assert_eq!(CONTRACT.check("clock", &body), Ok(()));
        let shift = body["shift"].as_i64().expect("a span");
        assert!((shift - hours * HOUR).abs() < 2_000, "{body}");
        assert_eq!((&body["source"], &body["initial"]), (&name.as_str().into(), &true.into()));
        agent.stop();
    }
}

#[test]
fn a_host_whose_clock_is_set_by_hours_moves_nothing() {
    let server = TimeServer::start(Manner::ahead(0));
    let stage = Stage::plain(&format!("source = \"sntp\"\nservers = [\"{}\"]", server.name()));
    let file = stage.dir.path().join("faketime");
    let set = |offset: &str| {
        let new = file.with_extension("new");
        fs::write(&new, format!("{offset}\n")).expect("the directory is ours");
        fs::rename(new, &file).expect("the directory is ours");
    };
    set("+0");
    let path = file.display().to_string();
    let fake = [("FAKETIME_TIMESTAMP_FILE", path.as_str()), ("FAKETIME_NO_CACHE", "1")];
    let Some(agent) = stage.agent(&fake) else { return };
    stage.synchronised();
    for offset in ["+2h", "-2h", "+0"] {
        set(offset);
        stage.is_right();
        assert_eq!(stage.status()["clock"], "synchronised");
    }
    let left = agent.stop();
    let jumps = left.log.iter().filter(|line| line.contains("clock was set"));
    assert_eq!(jumps.count(), 0);
}

const TLS: &str = "cafile {dir}/ca.pem\ncertfile {dir}/server.pem\nkeyfile {dir}/server.key";

fn secure(clock: &str) -> Lines<'_> {
    Lines { clock, upstream: "ca-file = \"{dir}/ca.pem\"", ..Lines::default() }
}

/// A central broker with a certificate, and a time server that says nothing.
fn in_the_dark() -> (Stage, TimeServer) {
    let mut central = Broker::absent_with(TLS);
    let authority = Authority::new("ours");
    authority.write(&central.dir().join("ca.pem"));
    authority.sign(central.dir(), "server", &["localhost"], 2080);
    central.run();
    let server = TimeServer::start(Manner::silent());
    let clock = format!("servers = [\"{}\"]", server.name());
    (Stage::new(central, &secure(&clock)), server)
}

#[tokio::test]
async fn a_host_of_1970_listens_says_why_the_centre_is_away_and_is_there_as_soon_as_it_knows_the_time()
 {
    let (stage, server) = in_the_dark();
    let Some(mut agent) = stage.agent(&[("FAKETIME", "@1970-01-02 00:00:00")]) else { return };
    agent.hears("caught up");
    // Beyond the first short pauses: the next one alone would not do.
    while agent.count(&["egress still down", "clock is not synchronised"]) < 3 {
        agent.hears("egress still down");
    }
    support::publish(stage.devices.port(), [("meters/north/m1", r#"{"ts":1,"power":1}"#)]).await;
    let status = stage.until("heard", |status| status["books"]["received"] == 1);
    let (error, remedy) = (&status["upstream"]["error"], &status["upstream"]["remedy"]);
    assert!(error.as_str().is_some_and(|text| text.contains("not synchronised")), "{error}");
    assert!(remedy.as_str().is_some_and(|text| text.contains("tidegate status")), "{remedy}");
    let reasons = status["health"]["reasons"].to_string();
    assert!(reasons.contains("\"clock\""), "{reasons}");
    assert_eq!(status["broker"]["state"], "connected");
    assert_eq!((&status["held"]["messages"], &status["books"]["held"]), (&1.into(), &1.into()));

    server.set(Manner::ahead(0));
    agent.hears("the gateway's clock is synchronised");
    let since = Instant::now();
    agent.hears("egress connected");
    let took = since.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    stage.is_right();
    let status = stage.status();
    for since in ["/since", "/broker/since", "/upstream/since"] {
        let since = status.pointer(since).and_then(Value::as_i64).expect("a time");
        let ago = machine() - since;
        assert!((0..HOUR).contains(&ago), "{status:#}");
    }
    let status = stage.until("let go", |status| status["books"]["held"] == 0);
    assert_eq!(status["books"]["stamped"], 1, "{status:#}");
    agent.stop();
}

/// 2036-02-07 06:28:16, when the seconds of packets begin again, lies between the host and the server.
#[tokio::test]
async fn a_host_of_1970_finds_itself_in_2037_with_what_it_has_held() {
    const AHEAD: Seconds = 4_000 * 24 * 3_600;
    let (stage, server) = in_the_dark();
    let Some(mut agent) = stage.agent(&[("FAKETIME", "@1970-01-01 00:00:00")]) else { return };
    agent.hears("caught up");
    let hour = (machine() + AHEAD * 1_000).div_euclid(HOUR) * HOUR - 3 * HOUR;
    let readings = [hour, hour + 1, hour + 2 * HOUR]
        .map(|ts| ("meters/north/m1", format!(r#"{{"ts":{ts},"power":1}}"#)));
    support::publish(stage.devices.port(), readings).await;
    let status = stage.until("held", |status| status["held"]["messages"] == 3);
    assert_ne!(status["upstream"]["state"], "connected");

    server.set(Manner::ahead(AHEAD));
    stage.until("connected", |status| status["upstream"]["state"] == "connected");
    let status = stage.until("let go", |status| status["books"]["aggregated"] == 3);
    let shown = status["at"].as_i64().expect("a time");
    assert!((shown - machine() - AHEAD * 1_000).abs() < HOUR / 60, "{status:#}");
    let books = &status["books"];
    assert_eq!([&books["held"], &books["late"], &books["quarantined"]], [0; 3], "{books:#}");
    let left = agent.stop();
    assert!(left.log.iter().any(|line| line.contains("was set") && line.contains("first=true")));
}
