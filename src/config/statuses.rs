//! The topics of a source that tell who is there.

use super::check::Review;
use super::finding::KeyPath;
use super::raw;
use crate::wire::reference::Reference;
use crate::wire::status::{Scope, StatusSpec, StatusTopic};

/// The status topics of a source, checked.
pub(super) fn statuses(
    review: &mut Review<'_>,
    path: &KeyPath,
    raw: &raw::Source,
) -> Vec<StatusSpec> {
    let all = raw.status.iter().flatten().enumerate();
    all.filter_map(|(at, raw)| status(review, &path.key("status").index(at), raw)).collect()
}

fn status(review: &mut Review<'_>, path: &KeyPath, raw: &raw::SourceStatus) -> Option<StatusSpec> {
    let Some(topic) = raw.topic.clone().filter(|topic| !topic.is_empty()) else {
        let message =
            "missing; write the topic with its named levels: \"meters/{region}/{device}/status\"";
        review.refuse(&path.key("topic"), message);
        return None;
    };
    let words = |given: Option<&super::values::Scalars>, usual: &str| {
        given.map_or_else(|| vec![usual.to_owned()], |words| words.0.clone())
    };
    let scope = match raw.scope {
        Some(raw::StatusScope::Region) => Scope::Region,
        Some(raw::StatusScope::Source) => Scope::Source,
        Some(raw::StatusScope::Device) | None => Scope::Device,
    };
    let named = |place: &Option<super::values::Place>, usual: &str| {
        let named =
            || super::sources::names(&topic, usual).then(|| Reference::Topic(usual.to_owned()));
        place.as_ref().map(|place| place.0.clone()).or_else(named)
    };
    let device = named(&raw.device, "device").unwrap_or(Reference::Topic("device".to_owned()));
    let region = named(&raw.region, "region").unwrap_or(Reference::Const("all".to_owned()));
    let spec = StatusSpec {
        from: raw.from.as_ref().map(|place| place.0.clone()),
        online: words(raw.online.as_ref(), "online"),
        offline: words(raw.offline.as_ref(), "offline"),
        topic,
        scope,
        device,
        region,
    };
    if let Err(error) = StatusTopic::new(&spec) {
        let message = error.to_string();
        let (field, rest) = message.split_once(": ").unwrap_or(("topic", &message));
        review.refuse(&path.key(field), rest);
        return None;
    }
    Some(spec)
}
