//! The demonstration against itself: when all is well it says so, and it cannot say so when something was lost.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use tidegate::demo::{self, DemoError, Options, Report};
use tokio::sync::mpsc;

fn run(options: Options) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_interrupt, interrupts) = mpsc::channel(1);
    runtime.block_on(demo::run(options, interrupts)).unwrap()
}

fn options(seed: u64) -> Options {
    Options { seed, duration: Duration::from_secs(12), show: false, ..Options::default() }
}

#[test]
fn what_was_injected_is_what_was_reported() {
    for seed in [1, 2, 3] {
        let report = run(options(seed));
        println!("{report}");
        assert!(report.is_equal(), "{report}");
        assert_eq!(report.exit_code(), 0);
    }
}

#[test]
fn a_message_lost_on_the_way_to_the_centre_is_a_difference() {
    let lose = Some("late/north/m-6".to_owned());
    let report = run(Options { lose, patience: Duration::from_secs(1), ..options(1) });
    assert_eq!(report.exit_code(), 1, "{report}");
    let [difference] = report.differences() else { panic!("{report}") };
    assert!(difference.starts_with("north/m-6, 0"), "{difference}");
    assert!(report.to_string().contains("differs"), "{report}");
}

#[test]
fn asked_twice_it_ends_without_a_report() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (interrupt, interrupts) = mpsc::channel(2);
    interrupt.try_send(()).unwrap();
    interrupt.try_send(()).unwrap();
    let forever = Options { forever: true, ..options(1) };
    let ended = runtime.block_on(demo::run(forever, interrupts));
    assert!(matches!(ended, Err(DemoError::Interrupted)), "{ended:?}");
}
