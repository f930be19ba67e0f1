//! A configuration to be checked, and what is said of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

pub const UNREACHABLE: i32 = 69;
pub const FORBIDDEN: i32 = 77;
pub const CONFIG: i32 = 78;

/// A configuration, part by part; what a test changes is another one.
pub struct Place {
    dir: TempDir,
    pub gateway: String,
    pub clock: String,
    pub broker: String,
    pub upstream: String,
    pub store: String,
    pub more: String,
}

/// What was said, line by line.
pub struct Told {
    pub code: i32,
    pub lines: Vec<String>,
}

impl Place {
    /// Both sides at one broker.
    pub fn at(port: u16) -> Self {
        let dir = TempDir::new().expect("a directory");
        let link = format!("host = \"127.0.0.1\"\nport = {port}\n");
        let store = format!("path = \"{}/store\"\n", dir.path().display());
        Self {
            dir,
            gateway: "gw".to_owned(),
            clock: "trust-host = true\n".to_owned(),
            broker: link.clone(),
            upstream: link,
            store,
            more: String::new(),
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self) -> PathBuf {
        let Self { dir, gateway, clock, broker, upstream, store, more } = self;
        let socket = dir.path().join("socket");
        let text = format!(
            "gateway.id = \"{gateway}\"\nstatus.socket = {socket:?}\n[clock]\n{clock}[broker]\n{broker}[upstream]\n\
             {upstream}[store]\n{store}{more}\n[[source]]\nname = \"meters\"\n\
             topic = \"meters/{{region}}/{{device}}/{{kind}}\"\ntime = {{ from = \"/ts\", as = \"epoch_ms\" }}\n"
        );
        let path = dir.path().join("tidegate.toml");
        fs::write(&path, text).expect("the directory is ours");
        path
    }

    /// `tidegate check --connect`.
    pub fn check(&self) -> Told {
        Self::end(self.command())
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("--config").arg(self.write()).args(["check", "--connect"]);
        command
    }

    /// The same, as this user where this one is root, to whom nothing is forbidden.
    pub fn command_as(&self, uid: u32) -> Command {
        let config = self.write();
        if fs::metadata("/proc/self").expect("Linux").uid() != 0 {
            return self.command();
        }
        // Where he may run it. Copied by another process: a child that another test starts meanwhile would hold ours open
        // for writing, and what is open for writing cannot be run.
        let binary = self.dir().join("tidegate");
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_tidegate")).arg(&binary).status();
        assert!(copied.expect("cp is there").success());
        let mut command = Command::new(binary);
        command.arg("--config").arg(config).args(["check", "--connect"]).uid(uid).gid(uid);
        command
    }

    /// Runs the command to its end.
    pub fn end(mut command: Command) -> Told {
        let ended = command.stdin(Stdio::null()).output().expect("the command is built");
        let output = String::from_utf8_lossy(&ended.stdout).into_owned();
        let code = ended.status.code().unwrap_or_else(|| panic!("{}: {output}", ended.status));
        Told { code, lines: output.lines().map(str::to_owned).collect() }
    }
}

impl Told {
    /// The one line of a section with this outcome and all of these texts.
    #[track_caller]
    pub fn line(&self, section: &str, outcome: &str, texts: &[&str]) -> &str {
        let begins = format!("{section:<8} {outcome:<8} ");
        let fits = |line: &&String| {
            line.starts_with(&begins) && texts.iter().all(|text| line.contains(text))
        };
        let found: Vec<_> = self.lines.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{begins}{texts:?}\n{self}");
        found[0]
    }

    /// How many lines of a section have this outcome.
    pub fn count(&self, section: &str, outcome: &str) -> usize {
        let begins = format!("{section:<8} {outcome:<8} ");
        self.lines.iter().filter(|line| line.starts_with(&begins)).count()
    }

    #[track_caller]
    pub fn leaves_with(&self, code: i32) {
        assert_eq!(self.code, code, "{self}");
    }

    /// The last line sums up what the others say.
    #[track_caller]
    pub fn adds_up(&self) {
        let outcome = |word: &str| {
            let of = |line: &&String| {
                line.split_whitespace().nth(1) == Some(word) && !line.starts_with(' ')
            };
            self.lines[..self.lines.len() - 1].iter().filter(of).count()
        };
        let last = self.lines.last().expect("it says something");
        let counts: Vec<usize> =
            last.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        assert_eq!(counts, ["ok", "warning", "failure"].map(outcome), "{self}");
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {}\n{}", self.code, self.lines.join("\n"))
    }
}
