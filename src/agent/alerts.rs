//! What of the alerts the log says too: what has to be looked at beside the devices, and comes once.

use tracing::{info, warn};

use crate::event::{Alert, AlertKind, Output};

/// Tells an alert about a device's times.
pub(super) fn log(output: &Output) {
    let Output::Alert(Alert { kind, region, device, .. }) = output else { return };
    match kind {
        AlertKind::UnitChanged { before, unit } => {
            let (before, unit) = (before.as_str(), unit.as_str());
            warn!(%region, %device, before, unit, "a device writes its times in another unit; they are read as what they are");
        }
        AlertKind::SkippedHour { .. } => warn!(
            %region, %device,
            "a device wrote a local time that its zone leaves out: it does not change its clock, or `zone` is another"
        ),
        AlertKind::ClockCorrected(offset) => {
            info!(%region, %device, offset_ms = offset.0, "a device's clock is off; its times are corrected by this");
        }
        AlertKind::ClockWrong(offset) => {
            info!(%region, %device, offset_ms = offset.0, "a device's clock is off; with correct = \"flag\" nothing is moved");
        }
        AlertKind::ClockRight(_) => info!(%region, %device, "a device's clock is right again"),
        AlertKind::HeldOut | AlertKind::BackIn => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::TimeUnit;
    use crate::time::{ClockQuality, EventTime};
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(kind: AlertKind) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let (region, device, watermark) = ("north".into(), "m-1".into(), EventTime(5));
        let clock = ClockQuality::Synchronised;
        let alert = Output::Alert(Alert { kind, region, device, watermark, clock });
        tracing::subscriber::with_default(subscriber, || log(&alert));
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn how_a_device_writes_its_times_is_one_line_each() {
        let changed =
            AlertKind::UnitChanged { before: TimeUnit::Seconds, unit: TimeUnit::Milliseconds };
        let line = logged(changed);
        assert_eq!(line.lines().count(), 1, "{line}");
        let words = ["WARN", "region=north", "device=m-1", "\"seconds\"", "\"milliseconds\""];
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
        let line = logged(AlertKind::SkippedHour { time: EventTime(1) });
        assert!(line.lines().count() == 1 && line.contains("m-1"), "{line}");
        assert_eq!(logged(AlertKind::HeldOut) + &logged(AlertKind::BackIn), "");
    }
}
