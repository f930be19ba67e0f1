//! mosquitto, as an operator would run it: from `config/mosquitto.conf`, on a port of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::client::Login;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/mosquitto.conf");
const START: Duration = Duration::from_secs(10);

/// A broker that can be stopped, killed and started again on the same port, with the same files.
/// It ends with its owner.
pub struct Broker {
    dir: TempDir,
    port: u16,
    lines: String,
    process: Option<Child>,
}

impl Broker {
    /// A running broker.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// A running broker with further configuration, where `{dir}` is its directory.
    pub fn start_with(lines: &str) -> Self {
        let mut broker = Self::absent_with(lines);
        broker.run();
        broker
    }

    /// A broker that does not run yet.
    pub fn absent() -> Self {
        Self::absent_with("")
    }

    /// A broker with further configuration that does not run yet.
    pub fn absent_with(lines: &str) -> Self {
        let dir = TempDir::new().expect("a directory for the broker");
        let lines = lines.replace("{dir}", &dir.path().display().to_string());
        Self { dir, port: free_port(), lines, process: None }
    }

    /// Replaces the further configuration, from the next start on.
    pub fn set_lines(&mut self, lines: &str) {
        self.lines = lines.replace("{dir}", &self.dir.path().display().to_string());
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts it; returns when it listens.
    pub fn run(&mut self) {
        assert!(self.process.is_none(), "the broker runs already");
        let mut child = Command::new(binary())
            .arg("-c")
            .arg(self.write_config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mosquitto is installed");
        let log = BufReader::new(child.stderr.take().expect("a pipe"));
        self.process = Some(child);
        wait_until_running(log);
    }

    /// Stops it as the system would: it writes its file first.
    pub fn stop(&mut self) {
        let child = self.process.as_mut().expect("the broker runs");
        let signalled = Command::new("kill").arg(child.id().to_string()).status();
        assert!(signalled.expect("kill is installed").success());
        self.wait();
    }

    /// Stops it as a power cut would.
    pub fn kill(&mut self) {
        self.process.as_mut().expect("the broker runs").kill().expect("a child can be killed");
        self.wait();
    }

    /// Deletes its sessions, queues and retained messages. To be called while it does not run.
    pub fn forget(&self) {
        assert!(self.process.is_none(), "it would write them again");
        let _ = fs::remove_file(self.dir.path().join("mosquitto.db"));
    }

    /// A running broker that asks for a login, with the shipped access list of this name.
    pub fn restricted(access_list: &str, users: &[Login<'_>]) -> Self {
        let mut broker = Self::absent_with(
            "allow_anonymous false\npassword_file {dir}/passwords\nacl_file {dir}/acl",
        );
        let shipped = Path::new(CONFIG).with_file_name(access_list);
        fs::copy(shipped, broker.dir.path().join("acl")).expect("the sample access list");
        broker.set_passwords(users);
        broker.run();
        broker
    }

    /// Replaces the password file, to be used with `password_file {dir}/passwords`.
    pub fn set_password(&self, user: &str, password: &str) {
        self.set_passwords(&[(user, password)]);
    }

    fn set_passwords(&self, users: &[Login<'_>]) {
        let file = self.dir.path().join("passwords");
        fs::write(&file, "").expect("the directory is ours");
        for (user, password) in users {
            let mut command = Command::new("mosquitto_passwd");
            command.arg("-b").arg(&file).args([user, password]).stderr(Stdio::null());
            assert!(command.status().expect("mosquitto_passwd is installed").success());
        }
    }

    fn wait(&mut self) {
        self.process.take().expect("the broker runs").wait().expect("it is our child");
    }

    /// The shipped file, with the port, the directory and the log of a test.
    fn write_config(&self) -> PathBuf {
        let shipped = fs::read_to_string(CONFIG).expect("the sample configuration");
        // What the test says itself is said once.
        let anonymous = match self.lines.contains("allow_anonymous") {
            true => "allow_anonymous ",
            false => "persistence_location ",
        };
        let ours = ["listener ", "persistence_location ", anonymous];
        let kept = |line: &&str| !ours.iter().any(|setting| line.starts_with(setting));
        let mut text = shipped.lines().filter(kept).collect::<Vec<_>>().join("\n");
        let (port, dir) = (self.port, self.dir.path().display());
        // As root, mosquitto would become a user who cannot read the directory.
        text += &format!(
            "\nlistener {port} 127.0.0.1\npersistence_location {dir}/\nlog_dest stderr\nuser root\n{}\n",
            self.lines
        );
        let path = self.dir.path().join("mosquitto.conf");
        fs::write(&path, text).expect("the directory is ours");
        path
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Below the ports that the system gives to outgoing connections, so that a broker which is away for
/// a while finds its port free again.
pub fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(10_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn binary() -> &'static str {
    // Not on everybody's path on Debian.
    if Path::new("/usr/sbin/mosquitto").exists() { "/usr/sbin/mosquitto" } else { "mosquitto" }
}

fn wait_until_running(log: BufReader<impl std::io::Read + Send + 'static>) {
    let (running, started) = mpsc::channel();
    thread::spawn(move || {
        let mut seen = Vec::new();
        for line in log.lines().map_while(Result::ok) {
            if line.ends_with("running") {
                let _ = running.send(Ok(()));
            }
            seen.push(line);
        }
        let _ = running.send(Err(seen.join("\n")));
    });
    match started.recv_timeout(START) {
        Ok(Ok(())) => {}
        Ok(Err(log)) => panic!("the broker ended:\n{log}"),
        Err(_) => panic!("the broker does not start"),
    }
}
