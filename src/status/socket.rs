//! The socket at which the agent says how it is, and is asked for its devices.
//!
//! One connection brings one question, a line of JSON ([`Ask`]), gets its answer and is closed. Who says nothing is told how
//! the agent is. Nobody who asks can hold the agent up: for how it is it is asked at most five times a second whatever the
//! number of connections, of which it serves eight at a time; a large fleet is told in pages, and no step of a connection
//! may take longer than five seconds. A socket is a file: who may write to it may ask, and forget devices.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::status::Status;
use crate::status::question::{Answer, Ask};

/// Its name in the runtime directory.
const NAME: &str = "tidegate.sock";

/// Owner and group may ask.
const MODE: u32 = 0o660;

/// Connections served at a time; further ones wait in the kernel.
const CONNECTIONS: usize = 8;

/// How long one step of a connection may take, and the agent to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many times as long all of them may take.
const STEPS: u32 = 6;

/// How long somebody may be silent before he is told how the agent is.
const SILENCE: Duration = Duration::from_millis(250);

/// Longest question, in bytes.
const LONGEST: u64 = 64 << 10;

/// How long a document is good for further connections.
const FRESH: Duration = Duration::from_millis(200);

/// Longest path of a socket, in bytes.
pub const LONGEST_PATH: usize = 107;

/// Where the socket is when the configuration does not say: in the runtime directory that systemd gave us, else the
/// first of these in which it can be made, or is found.
pub fn usual_places() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let given = variable("RUNTIME_DIRECTORY");
    if let Some(first) = given.as_deref().and_then(|given| given.split(':').next()) {
        return vec![Path::new(first).join(NAME)];
    }
    let directories = [Some("/run/tidegate".to_owned()), variable("XDG_RUNTIME_DIR")];
    directories.into_iter().flatten().map(|directory| Path::new(&directory).join(NAME)).collect()
}

/// Why a socket cannot be made.
#[derive(Debug, thiserror::Error)]
enum BindError {
    #[error("{0}: another agent listens there")]
    InUse(PathBuf),
    #[error("{0}: there is something that is no socket")]
    NotASocket(PathBuf),
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// The agent's end.
#[derive(Debug, Default)]
pub struct Server {
    listening: Option<Listening>,
}

#[derive(Debug)]
struct Listening {
    asked: mpsc::Receiver<Request>,
    task: JoinHandle<()>,
    path: PathBuf,
    /// Device and inode, so that nobody else's socket is removed.
    file: (u64, u64),
}

/// Somebody wants to know.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub ask: Ask,
    reply: oneshot::Sender<Reply>,
}

/// A line, and where the next begins.
#[derive(Clone, Debug)]
struct Reply {
    line: Arc<[u8]>,
    next: Option<usize>,
}

impl Request {
    /// Tells them how the agent is.
    pub fn status(self, status: &Status) {
        // They may have gone.
        let _ = self.reply.send(Reply { line: line(status), next: None });
    }

    /// Answers what was asked.
    pub fn answer(self, answer: &Answer) {
        let next = match answer {
            Answer::Devices(page) => page.next,
            Answer::Forgotten(_) | Answer::OtherStore(_) | Answer::Refused(_) => None,
        };
        let _ = self.reply.send(Reply { line: line(answer), next });
    }
}

fn line(document: &impl serde::Serialize) -> Arc<[u8]> {
    let mut line = serde_json::to_vec(document).expect("names and numbers only");
    line.push(b'\n');
    line.into()
}

impl Server {
    /// Listens at the first of these places where that is possible. Where it is not the log says so, once, and nobody
    /// ever asks.
    pub async fn start(places: &[PathBuf]) -> Self {
        Self::start_with(places, PATIENCE).await
    }

    async fn start_with(places: &[PathBuf], patience: Duration) -> Self {
        let mut failed = Vec::new();
        for path in places {
            match bind(path).await {
                Ok((listener, file)) => {
                    info!(socket = %path.display(), "listening for `tidegate status`");
                    let (asking, asked) = mpsc::channel(1);
                    let task = tokio::spawn(serve(listener, asking, patience));
                    let listening = Listening { asked, task, path: path.clone(), file };
                    return Self { listening: Some(listening) };
                }
                Err(error) => failed.push(error.to_string()),
            }
        }
        if !failed.is_empty() {
            warn!(
                "no socket for `tidegate status`: {}; make the directory or set status.socket, all else goes on",
                failed.join("; ")
            );
        }
        Self::default()
    }

    /// Somebody asks. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Request {
        if let Some(listening) = &mut self.listening
            && let Some(request) = listening.asked.recv().await
        {
            return request;
        }
        std::future::pending().await
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // What stays is stale, and the next start removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

async fn bind(path: &Path) -> Result<(UnixListener, (u64, u64)), BindError> {
    remove_stale(path).await?;
    let made = || {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        Ok((listener, identity(path)?))
    };
    made().map_err(|error| BindError::Io(path.into(), error))
}

/// Removes a socket at which nobody answers.
async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let io = |error| BindError::Io(path.into(), error);
    let file = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(file) => file,
    };
    if !file.file_type().is_socket() {
        return Err(BindError::NotASocket(path.into()));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(io)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(io(error)),
        // Also where it has no room for us: somebody is there.
        _ => Err(BindError::InUse(path.into())),
    }
}

async fn serve(listener: UnixListener, asking: mpsc::Sender<Request>, patience: Duration) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let desk = Arc::new(Desk { asking, patience, last: Mutex::new(None) });
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left: it will not be better at once.
            sleep(FRESH).await;
            continue;
        };
        let desk = desk.clone();
        tokio::spawn(async move {
            let _place = place;
            let _gone_or_too_slow = timeout(patience * STEPS, desk.serve(stream)).await;
        });
    }
}

/// What the connections have in common.
struct Desk {
    asking: mpsc::Sender<Request>,
    patience: Duration,
    /// How the agent was when it was last asked.
    last: Mutex<Option<(Instant, Reply)>>,
}

impl Desk {
    async fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        match timeout(self.patience, question(&mut stream)).await?? {
            Ok(Ask::Status {}) => {
                // Without an answer they get nothing, which says that the agent is busy.
                let Some(reply) = self.status().await else { return Ok(()) };
                self.send(&mut stream, &reply).await?;
            }
            Ok(mut ask) => loop {
                let Some(reply) = self.ask(ask.clone()).await else { return Ok(()) };
                self.send(&mut stream, &reply).await?;
                let Some(next) = reply.next else { break };
                ask = ask.page(next);
            },
            Err(refused) => {
                let line = line(&Answer::Refused(refused));
                self.send(&mut stream, &Reply { line, next: None }).await?;
            }
        }
        stream.shutdown().await
    }

    async fn status(&self) -> Option<Reply> {
        let mut last = self.last.lock().await;
        if last.as_ref().is_none_or(|(since, _)| since.elapsed() >= FRESH) {
            *last = self.ask(Ask::Status {}).await.map(|reply| (Instant::now(), reply));
        }
        last.as_ref().map(|(_, reply)| reply.clone())
    }

    async fn ask(&self, ask: Ask) -> Option<Reply> {
        let (reply, answered) = oneshot::channel();
        let asked = async {
            self.asking.send(Request { ask, reply }).await.ok()?;
            answered.await.ok()
        };
        timeout(self.patience, asked).await.ok().flatten()
    }

    async fn send(&self, stream: &mut UnixStream, reply: &Reply) -> io::Result<()> {
        timeout(self.patience, stream.write_all(&reply.line)).await?
    }
}

/// What somebody wants, or why that is no question.
async fn question(stream: &mut UnixStream) -> io::Result<Result<Ask, String>> {
    let mut reader = BufReader::new(stream.take(LONGEST));
    match timeout(SILENCE, reader.fill_buf()).await {
        Err(_) => return Ok(Ok(Ask::Status {})),
        Ok(begun) => begun?,
    };
    let mut text = Vec::new();
    reader.read_until(b'\n', &mut text).await?;
    if text.trim_ascii().is_empty() {
        return Ok(Ok(Ask::Status {}));
    }
    Ok(serde_json::from_slice(&text).map_err(|error| format!("no question: {error}")))
}

#[cfg(test)]
mod tests;
