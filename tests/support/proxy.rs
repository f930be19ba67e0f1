//! A TCP link that can be cut, or go silent without a word.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What the link does with connections and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It carries them.
    Open,
    /// It accepts connections and closes them at once.
    Closed,
    /// Bytes of both sides vanish; connections stay.
    Blackhole,
    /// Bytes from the broker vanish.
    Deaf,
    /// Bytes from the broker wait for another mode.
    Held,
}

/// A link from a port of its own to a broker's.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: u16,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mode: Mode,
    ended: bool,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// An open link to `target` on 127.0.0.1.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Mutex::new(State { mode: Mode::Open, ended: false, open: Vec::new() });
        let shared = Arc::new(Shared { target, state, changed: Condvar::new() });
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Self { port, shared }
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes what happens from now on. Bytes that vanished stay vanished: cut before opening again.
    pub fn set(&self, mode: Mode) {
        self.shared.state.lock().expect("no panic inside").mode = mode;
        self.shared.changed.notify_all();
    }

    /// Closes all connections, on both sides.
    pub fn cut(&self) {
        for stream in self.shared.state.lock().expect("no panic inside").open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.shared.state.lock().expect("no panic inside").ended = true;
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().map_while(Result::ok) {
        let mut state = shared.state.lock().expect("no panic inside");
        if state.ended {
            return;
        }
        if state.mode == Mode::Closed {
            continue;
        }
        let Ok(broker) = TcpStream::connect(("127.0.0.1", shared.target)) else { continue };
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        state.open.extend([clone(&client), clone(&broker)]);
        let (to_broker, to_client) = (shared.clone(), shared.clone());
        let (client_too, broker_too) = (clone(&client), clone(&broker));
        thread::spawn(move || {
            carry(client, broker, &to_broker, |_| false, |mode| mode != Mode::Blackhole);
        });
        thread::spawn(move || {
            let waits = |mode| mode == Mode::Held;
            carry(broker_too, client_too, &to_client, waits, |mode| mode == Mode::Open);
        });
    }
}

fn carry(
    mut from: TcpStream,
    mut to: TcpStream,
    shared: &Shared,
    waits: fn(Mode) -> bool,
    passes: fn(Mode) -> bool,
) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let state = shared.state.lock().expect("no panic inside");
        let waiting = |state: &mut State| waits(state.mode) && !state.ended;
        let mode = shared.changed.wait_while(state, waiting).expect("no panic inside").mode;
        if passes(mode) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // A side that closes behind a silent link is not heard of either.
    if shared.state.lock().expect("no panic inside").mode != Mode::Blackhole {
        let _ = to.shutdown(Shutdown::Both);
    }
}
