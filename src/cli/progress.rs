//! How far a replay has come, for who watches it on a terminal.
//!
//! Only with the feature `demo`: packages for gateways come without what draws it.

#[cfg(feature = "demo")]
pub(super) use shown::Progress;

#[cfg(feature = "demo")]
mod shown {
    use std::io::{self, IsTerminal};

    use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

    pub(in crate::cli) struct Progress(ProgressBar);

    impl Progress {
        /// Of so many bytes, where that is known.
        pub(in crate::cli) fn begin(size: Option<u64>) -> Self {
            if !io::stderr().is_terminal() {
                return Self(ProgressBar::hidden());
            }
            let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
            let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(5));
            let style = ProgressStyle::with_template(template).expect("a valid template");
            Self(bar.with_style(style))
        }

        pub(in crate::cli) fn reach(&self, bytes: u64) {
            self.0.set_position(bytes);
        }

        pub(in crate::cli) fn end(self) {
            self.0.finish_and_clear();
        }
    }
}

#[cfg(not(feature = "demo"))]
pub(super) struct Progress;

#[cfg(not(feature = "demo"))]
impl Progress {
    pub(super) fn begin(_size: Option<u64>) -> Self {
        Self
    }

    pub(super) fn reach(&self, _bytes: u64) {}

    pub(super) fn end(self) {}
}
