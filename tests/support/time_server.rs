//! A time server that says what a test wants, and lies where it is told to.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Length of a packet.
pub const PACKET: usize = 48;

/// Seconds from the beginning of the first era of packets to that of the usual one.
const ERA: u64 = 2_208_988_800;

/// How it answers.
#[derive(Clone, Copy)]
pub struct Manner {
    /// How far its time is from the machine's.
    pub ahead: Seconds,
    /// What is done to an answer before it goes out; `None`: there is no answer.
    pub change: Option<fn(&mut [u8; PACKET])>,
    /// How long it is held back.
    pub late: Duration,
    /// From another port than the one that was asked.
    pub elsewhere: bool,
}

/// So many.
pub type Seconds = i64;

impl Manner {
    /// A good answer, by a clock that is so far ahead.
    pub fn ahead(seconds: Seconds) -> Self {
        Self { ahead: seconds, change: Some(|_| {}), late: Duration::ZERO, elsewhere: false }
    }

    /// The right time, in a packet that something is done to.
    pub fn changed(change: fn(&mut [u8; PACKET])) -> Self {
        Self { change: Some(change), ..Self::ahead(0) }
    }

    /// Nothing.
    pub fn silent() -> Self {
        Self { change: None, ..Self::ahead(0) }
    }
}

/// A kiss of death of this kind.
pub fn kiss(packet: &mut [u8; PACKET], code: [u8; 4]) {
    (packet[0], packet[1]) = (0o344, 0);
    packet[12..16].copy_from_slice(&code);
}

/// Listens until it is dropped.
pub struct TimeServer {
    address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    asked: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TimeServer {
    /// On 127.0.0.1.
    pub fn start(manner: Manner) -> Self {
        Self::start_at("127.0.0.1:0", manner)
    }

    /// At this address.
    pub fn start_at(address: &str, manner: Manner) -> Self {
        let socket = UdpSocket::bind(address).expect("loopback");
        let patience = Some(Duration::from_millis(50));
        socket.set_read_timeout(patience).expect("a timeout");
        let address = socket.local_addr().expect("it is bound");
        let (manner, asked) = (Arc::new(Mutex::new(manner)), Arc::new(AtomicU64::new(0)));
        let ended = Arc::new(AtomicBool::new(false));
        let shared = (manner.clone(), asked.clone(), ended.clone());
        let thread = std::thread::spawn(move || serve(&socket, &shared.0, &shared.1, &shared.2));
        Self { address, manner, asked, ended, thread: Some(thread) }
    }

    /// As it is written in a configuration.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Answers like this from now on.
    pub fn set(&self, manner: Manner) {
        *self.manner.lock().expect("nobody panics with it") = manner;
    }

    /// How often it was asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for TimeServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, manner: &Mutex<Manner>, asked: &AtomicU64, ended: &AtomicBool) {
    let mut question = [0; PACKET];
    while !ended.load(Ordering::SeqCst) {
        let Ok((PACKET, from)) = socket.recv_from(&mut question) else { continue };
        asked.fetch_add(1, Ordering::SeqCst);
        let manner = *manner.lock().expect("nobody panics with it");
        let Some(change) = manner.change else { continue };
        let mut answer = [0; PACKET];
        (answer[0], answer[1], answer[3]) = (0o44, 2, 0xEC);
        answer[24..32].copy_from_slice(&question[40..48]);
        let time = time(manner.ahead).to_be_bytes();
        answer[32..40].copy_from_slice(&time);
        answer[40..48].copy_from_slice(&time);
        change(&mut answer);
        let socket = match manner.elsewhere {
            true => UdpSocket::bind((socket.local_addr().expect("bound").ip(), 0)),
            false => socket.try_clone(),
        };
        let socket = socket.expect("a socket");
        if manner.late.is_zero() {
            let _ = socket.send_to(&answer, from);
        } else {
            std::thread::spawn(move || {
                std::thread::sleep(manner.late);
                let _ = socket.send_to(&answer, from);
            });
        }
    }
}

/// The machine's time and so many seconds, as a packet says it.
fn time(ahead: Seconds) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seconds = now.as_secs().wrapping_add_signed(ahead).wrapping_add(ERA);
    let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    (seconds << 32) | fraction
}
