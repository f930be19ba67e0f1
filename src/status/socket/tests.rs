use std::os::unix::net::UnixListener as Listener;

use tempfile::TempDir;

use super::*;

const SHORT: Duration = Duration::from_secs(1);

fn place() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(NAME);
    (dir, path)
}

/// An agent that answers, as often as it is asked, with the number of the answer.
async fn agent(mut server: Server) {
    for number in 1.. {
        let status = Status { at: number, ..Status::default() };
        server.next().await.answer(&status);
    }
}

async fn ask(path: &Path) -> Result<Status, AskError> {
    ask_at(&[path.to_owned()]).await.map(|(status, _)| status)
}

#[tokio::test]
async fn who_asks_gets_the_document_and_the_socket_is_for_owner_and_group() {
    let (_dir, path) = place();
    let server = Server::start(std::slice::from_ref(&path)).await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let answering = tokio::spawn(agent(server));
    assert_eq!(ask(&path).await.unwrap().at, 1);
    answering.abort();
    assert!(answering.await.is_err());
    assert!(!path.exists(), "it goes with the agent");
    assert!(matches!(ask(&path).await, Err(AskError::Nobody(_))));
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_one_at_which_somebody_answers_is_not() {
    let (_dir, path) = place();
    drop(Listener::bind(&path).unwrap());
    assert!(path.exists(), "a listener that dies leaves its file");
    let first = Server::start(std::slice::from_ref(&path)).await;
    assert!(first.listening.is_some());
    let second = Server::start(std::slice::from_ref(&path)).await;
    assert!(second.listening.is_none());
    drop(second);
    assert!(path.exists(), "it is the first one's");
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let (_dir, path) = place();
    fs::write(&path, "mine").unwrap();
    assert!(Server::start(std::slice::from_ref(&path)).await.listening.is_none());
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[tokio::test]
async fn the_first_place_that_can_be_had_is_taken_and_found() {
    let (dir, path) = place();
    let places = [dir.path().join("absent").join(NAME), path];
    let answering = tokio::spawn(agent(Server::start(&places).await));
    assert_eq!(ask_at(&places).await.unwrap().0.at, 1);
    answering.abort();
}

#[tokio::test]
async fn many_who_ask_at_once_ask_the_agent_once() {
    let (_dir, path) = place();
    let answering = tokio::spawn(agent(Server::start(std::slice::from_ref(&path)).await));
    ask(&path).await.unwrap();
    let began = Instant::now();
    let mut last = 0;
    while began.elapsed() < FRESH * 3 {
        last = ask(&path).await.unwrap().at;
    }
    assert!((2..=5).contains(&last), "{last} answers");
    answering.abort();
}

#[tokio::test]
async fn those_who_never_read_are_left_after_a_while_and_the_others_get_their_answer() {
    let (_dir, path) = place();
    let mut server = Server::start_with(std::slice::from_ref(&path), SHORT).await;
    let answering = tokio::spawn(async move {
        // More than the kernel takes for somebody who does not read.
        let gateway = "x".repeat(1 << 20);
        let status = Status { gateway, ..Status::default() };
        loop {
            server.next().await.answer(&status);
        }
    });
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS * 2 {
        idle.push(UnixStream::connect(&path).await.unwrap());
    }
    assert_eq!(ask(&path).await.unwrap().gateway.len(), 1 << 20);
    answering.abort();
}

#[tokio::test]
async fn an_agent_that_does_not_answer_is_told_from_one_that_is_not_there() {
    let (_dir, path) = place();
    let _busy = Server::start_with(std::slice::from_ref(&path), SHORT).await;
    assert!(matches!(ask(&path).await, Err(AskError::Silent(_))));
}
