use std::os::unix::net::UnixListener as Listener;

use tempfile::TempDir;

use super::*;
use crate::status::asking::{AskError, ask_at, ask_for};
use crate::status::question::{Device, Page};

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
        server.next().await.status(&status);
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
            server.next().await.status(&status);
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

fn device(number: usize) -> Device {
    Device {
        region: "north".into(),
        device: format!("m-{number}"),
        state: None,
        since: None,
        last_seen: None,
        watermark: None,
        open_windows: number,
        clock_offset: None,
    }
}

fn devices() -> Ask {
    Ask::Devices { store: "here".into(), from: 0 }
}

/// An agent with ten devices, told three at a time, which says so much and then no more.
async fn agent_with_devices(mut server: Server, answers: usize) {
    for _ in 0..answers {
        let request = server.next().await;
        let Ask::Devices { store, from } = request.ask.clone() else { panic!("{request:?}") };
        if store != "here" {
            request.answer(&Answer::OtherStore("here".into()));
            continue;
        }
        let to = (from + 3).min(10);
        let next = Some(to).filter(|to| *to < 10);
        request.answer(&Answer::Devices(Page { devices: (from..to).map(device).collect(), next }));
    }
}

#[tokio::test]
async fn devices_come_in_pages_and_half_of_them_are_no_answer() {
    let (_dir, path) = place();
    let places = [path.clone()];
    let whole = Answer::Devices(Page { devices: (0..10).map(device).collect(), next: None });
    for (answers, is_whole) in [(4, true), (3, false)] {
        let server = Server::start_with(&places, SHORT).await;
        let answering = tokio::spawn(agent_with_devices(server, answers));
        let answer = ask_for(&places, &devices()).await;
        match is_whole {
            true => assert_eq!(answer.unwrap(), whole),
            false => assert!(matches!(answer, Err(AskError::Silent(_))), "{answer:?}"),
        }
        answering.await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_of_another_store_is_nobody() {
    let (_dir, path) = place();
    let places = [path.clone()];
    let server = Server::start(&places).await;
    let answering = tokio::spawn(agent_with_devices(server, 1));
    let ask = Ask::Devices { store: "there".into(), from: 0 };
    let Err(AskError::Nobody(why)) = ask_for(&places, &ask).await else { panic!("somebody") };
    assert!(why[0].ends_with("the agent there has the store here"), "{why:?}");
    answering.await.unwrap();
}

/// What comes for these bytes, after which nothing more is said.
async fn said(path: &Path, question: &[u8], ends: bool) -> serde_json::Value {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(question).await.unwrap();
    if ends {
        stream.shutdown().await.unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[tokio::test]
async fn who_says_nothing_is_told_how_it_is_and_who_says_nonsense_that_it_is() {
    let (_dir, path) = place();
    let answering = tokio::spawn(agent(Server::start(std::slice::from_ref(&path)).await));
    for (question, ends) in
        [(&b""[..], false), (b"", true), (b"\n", false), (b"{\"status\":{}}\n", false)]
    {
        assert_eq!(said(&path, question, ends).await["schema"], 0, "{question:?}");
    }
    for question in [&b"status\n"[..], b"{\"devices\":{}}\n", b"{\"status\":{\"a\":1}}"] {
        let answer = said(&path, question, true).await;
        let why = answer["refused"].as_str().unwrap();
        assert!(why.starts_with("no question: "), "{why}");
    }
    answering.abort();
}
