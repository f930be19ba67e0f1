//! What of the alerts the log says too: what has to be looked at beside the devices, and comes once.

use tracing::warn;

use crate::event::{Alert, AlertKind, Output};

/// Tells an alert about how a device writes its times.
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
        // Seen upstream, and nothing has to be done at the device.
        AlertKind::HeldOut
        | AlertKind::BackIn
        | AlertKind::ClockCorrected(_)
        | AlertKind::ClockWrong(_)
        | AlertKind::ClockRight(_) => {}
    }
}
