//! Asking an agent at its socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::status::Status;
use crate::status::question::{Answer, Ask, Page};

/// How long who asks waits for each line: longer than the agent lets anybody wait.
const ANSWER: Duration = Duration::from_secs(12);

/// Longest line that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// Why nothing is known of the agent.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens who is meant.
    #[error("the agent cannot be reached: {}; does it run? systemctl status tidegate", .0.join("; "))]
    Nobody(Vec<String>),
    /// Somebody listens at one of these places, and not to this user.
    #[error("only root, and the user and group of the agent, may ask it: {}", .0.join("; "))]
    Denied(Vec<String>),
    /// Somebody listens and does not say anything in time.
    #[error("{0}: the agent is there and does not answer; it is busy or hangs")]
    Silent(PathBuf),
    /// What came is not what was asked for.
    #[error("{0}: what came is no answer: {1}; is the agent of another version?")]
    Unreadable(PathBuf, serde_json::Error),
}

/// Asks at the first of these places at which somebody listens. Returns the document as it came, too.
///
/// # Errors
/// There is no agent, or none that answers.
pub async fn ask_at(places: &[PathBuf]) -> Result<(Status, String), AskError> {
    let mut nobody = Failed::default();
    for path in places {
        match Conversation::begin(path, &Ask::Status {}).await {
            Ok(mut conversation) => return conversation.line().await,
            Err(error) => nobody.add(path, &error),
        }
    }
    Err(nobody.into_error())
}

/// Asks something else, at the first of these places at which the agent that is meant listens. Pages are put together.
///
/// # Errors
/// There is no such agent, or none that answers.
pub async fn ask_for(places: &[PathBuf], ask: &Ask) -> Result<Answer, AskError> {
    let mut nobody = Failed::default();
    for path in places {
        let mut conversation = match Conversation::begin(path, ask).await {
            Ok(conversation) => conversation,
            Err(error) => {
                nobody.add(path, &error);
                continue;
            }
        };
        match conversation.answer().await? {
            Answer::OtherStore(store) => {
                let message = format!("{}: the agent there has the store {store}", path.display());
                nobody.places.push(message);
            }
            answer => return Ok(answer),
        }
    }
    Err(nobody.into_error())
}

/// Places at which nobody answered.
#[derive(Default)]
struct Failed {
    places: Vec<String>,
    denied: bool,
}

impl Failed {
    fn add(&mut self, path: &Path, error: &io::Error) {
        self.denied |= error.kind() == io::ErrorKind::PermissionDenied;
        self.places.push(format!("{}: {error}", path.display()));
    }

    fn into_error(self) -> AskError {
        let error = if self.denied { AskError::Denied } else { AskError::Nobody };
        error(self.places)
    }
}

/// A connection on which something was asked.
struct Conversation<'a> {
    path: &'a Path,
    stream: BufReader<UnixStream>,
}

impl<'a> Conversation<'a> {
    async fn begin(path: &'a Path, ask: &impl Serialize) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path).await?;
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        // Who does not read it may answer all the same.
        let _ = stream.write_all(&line).await;
        Ok(Self { path, stream: BufReader::new(stream) })
    }

    /// The next line, and what it means.
    async fn line<T: DeserializeOwned>(&mut self) -> Result<(T, String), AskError> {
        let mut text = String::new();
        let mut limited = (&mut self.stream).take(LONGEST);
        let read = timeout(ANSWER, limited.read_line(&mut text)).await;
        if !matches!(read, Ok(Ok(_))) || text.is_empty() {
            return Err(AskError::Silent(self.path.into()));
        }
        let meaning = serde_json::from_str(&text);
        Ok((meaning.map_err(|error| AskError::Unreadable(self.path.into(), error))?, text))
    }

    async fn answer(&mut self) -> Result<Answer, AskError> {
        let mut devices = Vec::new();
        loop {
            match self.line().await?.0 {
                Answer::Devices(page) => {
                    devices.extend(page.devices);
                    if page.next.is_none() {
                        return Ok(Answer::Devices(Page { devices, next: None }));
                    }
                }
                answer => return Ok(answer),
            }
        }
    }
}
