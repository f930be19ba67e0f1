//! The socket at which the agent says how it is, and the way to ask there.
//!
//! One connection gets one JSON document and is closed; nothing is read from it. Nobody who asks can hold the agent up:
//! it is asked at most five times a second whatever the number of connections, of which it serves eight at a time, each
//! for five seconds at the most. A socket is a file: who may write to it may ask.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::status::Status;

/// Its name in the runtime directory.
const NAME: &str = "tidegate.sock";

/// Owner and group may ask.
const MODE: u32 = 0o660;

/// Connections served at a time; further ones wait in the kernel.
const CONNECTIONS: usize = 8;

/// How long one connection may take, and the agent to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a document is good for further connections.
const FRESH: Duration = Duration::from_millis(200);

/// How long who asks waits for all of it: longer than the agent lets anybody wait.
const ANSWER: Duration = Duration::from_secs(12);

/// Longest answer that is read, in bytes.
const LONGEST: u64 = 4 << 20;

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
pub struct Request(oneshot::Sender<Arc<[u8]>>);

impl Request {
    /// Tells them.
    pub fn answer(self, status: &Status) {
        let mut document = serde_json::to_vec(status).expect("names and numbers only");
        document.push(b'\n');
        // They may have gone.
        let _ = self.0.send(document.into());
    }
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
    let mut last: Option<(Instant, Arc<[u8]>)> = None;
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left: it will not be better at once.
            sleep(FRESH).await;
            continue;
        };
        if last.as_ref().is_none_or(|(since, _)| since.elapsed() >= FRESH) {
            last = ask(&asking, patience).await.map(|document| (Instant::now(), document));
        }
        // Without an answer they get nothing, which says that the agent is busy.
        let Some((_, document)) = last.clone() else { continue };
        tokio::spawn(async move {
            let _place = place;
            let _too_slow = timeout(patience, send(stream, &document)).await;
        });
    }
}

async fn ask(asking: &mpsc::Sender<Request>, patience: Duration) -> Option<Arc<[u8]>> {
    let (answer, answered) = oneshot::channel();
    let asked = async {
        asking.send(Request(answer)).await.ok()?;
        answered.await.ok()
    };
    timeout(patience, asked).await.ok().flatten()
}

async fn send(mut stream: UnixStream, document: &[u8]) -> io::Result<()> {
    stream.write_all(document).await?;
    stream.shutdown().await
}

/// Why nothing is known of the agent.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("the agent cannot be reached: {}", .0.join("; "))]
    Nobody(Vec<String>),
    /// Somebody listens and does not say anything in time.
    #[error("{0}: the agent is there and does not answer; it is busy or hangs")]
    Silent(PathBuf),
    /// What came is no status.
    #[error("{0}: what came is no status: {1}")]
    Unreadable(PathBuf, serde_json::Error),
}

/// Asks at the first of these places at which somebody listens. Returns the document as it came, too.
///
/// # Errors
/// There is no agent, or none that answers.
pub async fn ask_at(places: &[PathBuf]) -> Result<(Status, String), AskError> {
    let mut failed = Vec::new();
    for path in places {
        match timeout(ANSWER, read(path)).await {
            Ok(Ok(text)) if !text.is_empty() => {
                let status = serde_json::from_str(&text);
                let status = status.map_err(|error| AskError::Unreadable(path.clone(), error))?;
                return Ok((status, text));
            }
            Ok(Err(error)) => failed.push(format!("{}: {error}", path.display())),
            Ok(Ok(_)) | Err(_) => return Err(AskError::Silent(path.clone())),
        }
    }
    Err(AskError::Nobody(failed))
}

async fn read(path: &Path) -> io::Result<String> {
    let stream = UnixStream::connect(path).await?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text).await?;
    Ok(text)
}

#[cfg(test)]
mod tests;
