//! A mosquitto of our own, from the configuration that is shipped.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Runs until it is dropped.
pub struct Broker {
    process: Child,
    pub port: u16,
}

impl Broker {
    /// Starts one that keeps its files in `directory`.
    pub fn start(directory: &Path, name: &str) -> Self {
        let port = free_port();
        let home = directory.join(name);
        fs::create_dir(&home).expect("writable");
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mosquitto.conf");
        let text = fs::read_to_string(shipped).expect("it is there");
        let text = text.replace("listener 1883", &format!("listener {port}"));
        let config = home.join("mosquitto.conf");
        // Without a user it could not write where only we may.
        let more =
            format!("\nuser root\nlog_type error\npersistence_location {}/\n", home.display());
        fs::write(&config, text + &more).expect("writable");
        let process = Command::new("mosquitto")
            .arg("-c")
            .arg(&config)
            .stderr(Stdio::null())
            .env("PATH", "/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
            .spawn()
            .expect("mosquitto is installed");
        let broker = Self { process, port };
        broker.wait();
        broker
    }

    fn wait(&self) {
        for _ in 0..100 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("mosquitto does not listen on {}", self.port);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it has one").port()
}
