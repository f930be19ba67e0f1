//! From a topic and a payload to items: one per record.
//!
//! Whatever can be read is used: a field that cannot be read is left out and counted, an item
//! without a device or a region is left out and counted, and only a message without any item is
//! malformed. In the steady state nothing is allocated but what serde_json needs to skip containers
//! nested in unwanted ones and to undo escapes.

use std::ops::Range;

use crate::event::{Reason, TimeUnit};
use crate::wire::pointer::{self, Span};
use crate::wire::profile::{Place, Profile, Test};
use crate::wire::scalar::Scalar;
use crate::wire::timestamp::Reading;
use crate::wire::topic::Segments;

pub use crate::wire::timestamp::Stamp;

/// One record as read, not yet judged. Borrows from the message and the [`Scratch`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item<'a> {
    /// The device.
    pub device: &'a str,
    /// Its region.
    pub region: &'a str,
    /// Its device time.
    pub time: Stamp,
    /// How that was written, where the format leaves it open.
    pub unit: Option<TimeUnit>,
    /// It is a heartbeat.
    pub heartbeat: bool,
    /// It marks its partition idle.
    pub idle: bool,
    /// A finite value per metric of the source, in configured order.
    pub values: &'a [Option<f64>],
    /// The bytes that tell this record from others: the payload, or its item of the array.
    pub content: &'a [u8],
}

impl Item<'_> {
    /// Whether any metric has a value.
    pub fn has_value(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }
}

/// What a message turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The topic is not this source's.
    Unmatched,
    /// Ignored by rule, or an empty array of items: nothing to read, nothing wrong.
    Ignored,
    /// Nothing of it could be read.
    Malformed(Reason),
    /// At least one item, now in the scratch.
    Items,
}

/// Reused from message to message, so that reading one allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    spans: Spans,
    found: Found,
}

/// Where in the message the wanted values stand.
#[derive(Debug, Default)]
struct Spans {
    root: Vec<Span>,
    item: Vec<Span>,
    elements: Vec<Span>,
}

/// What the last message gave.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<Entry>,
    /// As many per entry as the source has metrics.
    values: Vec<Option<f64>>,
    metrics: usize,
    /// Devices and regions, one after the other.
    names: String,
    /// Fields and items that could not be read.
    unreadable: u32,
    /// Some item could not be read.
    broken: bool,
}

#[derive(Debug)]
struct Entry {
    device: Range<usize>,
    region: Range<usize>,
    time: Reading,
    heartbeat: bool,
    idle: bool,
    content: Span,
}

impl Scratch {
    /// Forgets the last message.
    pub fn clear(&mut self) {
        self.found.clear(0);
    }

    /// Items of the last message.
    pub fn len(&self) -> usize {
        self.found.entries.len()
    }

    /// Whether the last message had none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One item of the last message; `payload` is that message's.
    ///
    /// # Panics
    /// If there are not that many items.
    pub fn item<'a>(&'a self, index: usize, payload: &'a [u8]) -> Item<'a> {
        let found = &self.found;
        let Entry { device, region, time, heartbeat, idle, content } = &found.entries[index];
        Item {
            device: &found.names[device.clone()],
            region: &found.names[region.clone()],
            time: time.stamp,
            unit: time.unit,
            heartbeat: *heartbeat,
            idle: *idle,
            values: &found.values[index * found.metrics..][..found.metrics],
            content: payload.get(content.clone()).unwrap_or_default(),
        }
    }

    /// Fields and array items of the last message that were there and could not be read.
    pub fn unreadable(&self) -> u32 {
        self.found.unreadable
    }
}

/// Where the fields of one item are read from.
#[derive(Clone, Copy)]
struct Fields<'m> {
    segments: &'m Segments<'m>,
    root: (&'m str, &'m [Span]),
    item: (&'m str, &'m [Span]),
}

impl<'m> Fields<'m> {
    #[inline]
    fn get(&self, place: &'m Place) -> Scalar<'m> {
        let (text, span) = match place {
            Place::Topic(number) => return Scalar::Text(self.segments.get(*number)),
            Place::Const(text) => return Scalar::Text(text),
            Place::Root(slot) => (self.root.0, self.root.1.get(*slot)),
            Place::Item(slot) => (self.item.0, self.item.1.get(*slot)),
        };
        Scalar::of(span.and_then(|span| text.get(span.clone())).unwrap_or_default())
    }

    #[inline]
    fn meets(&self, test: &'m Test) -> bool {
        let scalar = self.get(&test.from);
        let equals = |text: &str| test.equals.iter().any(|value| value == text);
        match scalar.plain() {
            Some(text) => equals(text),
            None => matches!(scalar.text(), Ok(Some(text)) if equals(&text)),
        }
    }

    #[inline]
    fn meets_some(&self, test: Option<&'m Test>) -> bool {
        test.is_some_and(|test| self.meets(test))
    }
}

impl Profile {
    /// Reads one message into `scratch`. `topic` is `None` for a bare payload of this source; its
    /// segments are empty then.
    pub fn decode(&self, topic: Option<&str>, payload: &[u8], scratch: &mut Scratch) -> Decoded {
        let Scratch { spans, found } = scratch;
        found.clear(self.metrics.len());
        let segments =
            topic.map_or(Some(Segments::default()), |topic| self.template.matches(topic));
        let Some(segments) = segments else { return Decoded::Unmatched };
        if self.ignored_by_topic(&segments) {
            return Decoded::Ignored;
        }
        if !self.fields.any() {
            let fields = Fields { segments: &segments, root: ("", &[]), item: ("", &[]) };
            self.read_item(fields, 0..payload.len(), found);
            return found.verdict();
        }
        if payload.trim_ascii().is_empty() {
            return Decoded::Malformed(Reason::Empty);
        }
        match std::str::from_utf8(payload) {
            Ok(text) => self.read(&segments, text, spans, found),
            Err(_) => Decoded::Malformed(Reason::Syntax),
        }
    }

    /// The topic alone can decide this, whatever the payload is.
    fn ignored_by_topic(&self, segments: &Segments<'_>) -> bool {
        let fields = Fields { segments, root: ("", &[]), item: ("", &[]) };
        let by_topic = |test: &&Test| matches!(test.from, Place::Topic(_) | Place::Const(_));
        fields.meets_some(self.ignore.as_ref().filter(by_topic))
    }

    fn read(
        &self,
        segments: &Segments<'_>,
        text: &str,
        spans: &mut Spans,
        found: &mut Found,
    ) -> Decoded {
        if self.fields.root.read(text, &mut spans.root).is_err() {
            return Decoded::Malformed(Reason::Syntax);
        }
        if !self.fields.root.fits(first_byte(text)) {
            found.refuse();
            return found.verdict();
        }
        let Some(slot) = self.fields.items else {
            let fields = Fields { segments, root: (text, &spans.root), item: ("", &[]) };
            self.read_item(fields, 0..text.len(), found);
            return found.verdict();
        };
        if !find_elements(text, spans.root[slot].clone(), &mut spans.elements) {
            return Decoded::Malformed(Reason::Syntax);
        }
        for span in &spans.elements {
            let item = &text[span.clone()];
            let fits = self.fields.item.fits(first_byte(item));
            if !fits || self.fields.item.read(item, &mut spans.item).is_err() {
                found.refuse();
                continue;
            }
            let fields = Fields { segments, root: (text, &spans.root), item: (item, &spans.item) };
            self.read_item(fields, span.clone(), found);
        }
        found.verdict()
    }

    #[inline]
    fn read_item<'m>(&'m self, fields: Fields<'m>, content: Span, found: &mut Found) {
        if fields.meets_some(self.ignore.as_ref()) {
            return;
        }
        let idle = fields.meets_some(self.idle.as_ref());
        let ids = (fields.get(&self.device).id(), fields.get(&self.region).id());
        let (device, region) = match ids {
            (Ok(device), Ok(region)) => (device, region),
            (Err(_), Ok(region)) if idle => ("".into(), region), // it speaks of its partition
            _ => return found.refuse(),
        };
        let entry = Entry {
            device: found.name(&device),
            region: found.name(&region),
            time: self.stamp(&fields, found),
            heartbeat: fields.meets_some(self.heartbeat.as_ref()),
            idle,
            content,
        };
        found.entries.push(entry);
        for metric in &self.metrics {
            let value = fields.get(&metric.from).value(metric.scale);
            found.unreadable += u32::from(value.is_err());
            found.values.push(value.unwrap_or(None));
        }
    }

    #[inline]
    fn stamp<'m>(&'m self, fields: &Fields<'m>, found: &mut Found) -> Reading {
        let none = |stamp| Reading { stamp, unit: None };
        let Some((place, format)) = &self.time else { return none(Stamp::Undeclared) };
        let time = fields.get(place).time(format);
        found.unreadable += u32::from(time.is_err());
        time.ok().flatten().unwrap_or(none(Stamp::Unusable))
    }
}

impl Found {
    fn clear(&mut self, metrics: usize) {
        self.entries.clear();
        self.values.clear();
        self.names.clear();
        self.metrics = metrics;
        self.unreadable = 0;
        self.broken = false;
    }

    fn name(&mut self, name: &str) -> Range<usize> {
        let start = self.names.len();
        self.names.push_str(name);
        start..self.names.len()
    }

    /// Counts an item that cannot be used.
    fn refuse(&mut self) {
        self.unreadable += 1;
        self.broken = true;
    }

    fn verdict(&self) -> Decoded {
        match (self.entries.is_empty(), self.broken) {
            (false, _) => Decoded::Items,
            (true, true) => Decoded::Malformed(Reason::Shape),
            (true, false) => Decoded::Ignored,
        }
    }
}

/// Fills `elements` with the items at `span`: those of an array, a single value as it is, none for
/// nothing or `null`.
fn find_elements(text: &str, span: Span, elements: &mut Vec<Span>) -> bool {
    elements.clear();
    let items = &text[span.clone()];
    match items.as_bytes().first() {
        None | Some(b'n') => true,
        Some(b'[') => pointer::elements(items, span.start, elements).is_ok(),
        Some(_) => {
            elements.push(span);
            true
        }
    }
}

/// The first byte of a JSON value, which says what kind it is.
fn first_byte(text: &str) -> u8 {
    text.trim_ascii_start().bytes().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::DeviceTime;
    use crate::wire::profile::{Condition, MetricField, ProfileSpec, TimeFormat};
    use proptest::prelude::*;

    fn condition(from: &str, equals: &[&str]) -> Option<Condition> {
        let equals = equals.iter().map(|value| (*value).into()).collect();
        Some(Condition { from: from.parse().unwrap(), equals })
    }

    fn metrics(from: &[&str]) -> Vec<MetricField> {
        let metric = |from: &&str| MetricField { from: from.parse().unwrap(), scale: 1.0 };
        from.iter().map(metric).collect()
    }

    /// A meter that says everything in its payload.
    fn meter() -> ProfileSpec {
        ProfileSpec {
            source: "meters".into(),
            subscribe: Vec::new(),
            topic: "meters/{region}/{device}/{kind}".into(),
            device: "/device".parse().unwrap(),
            region: "/region".parse().unwrap(),
            time: Some(("/ts".parse().unwrap(), TimeFormat::EpochMs)),
            heartbeat: condition("/kind", &["heartbeat"]),
            idle: None,
            ignore: None,
            items: None,
            metrics: metrics(&["/power", "/voltage"]),
        }
    }

    /// A gateway that sends arrays of samples, with the device in the topic and the region beside
    /// the array.
    fn batch() -> ProfileSpec {
        ProfileSpec {
            topic: "batch/{device}".into(),
            device: "topic:device".parse().unwrap(),
            region: "root:/site/name".parse().unwrap(),
            heartbeat: None,
            items: Some("/samples".into()),
            metrics: metrics(&["/values/0", "root:/offset"]),
            ..meter()
        }
    }

    struct Read {
        decoded: Decoded,
        unreadable: u32,
        items: Vec<Owned>,
    }

    #[derive(Debug, PartialEq)]
    struct Owned {
        key: (String, String),
        time: Stamp,
        flags: (bool, bool),
        values: Vec<Option<f64>>,
        content: String,
    }

    fn owned(item: Item<'_>) -> Owned {
        Owned {
            key: (item.region.into(), item.device.into()),
            time: item.time,
            flags: (item.heartbeat, item.idle),
            values: item.values.into(),
            content: String::from_utf8_lossy(item.content).into(),
        }
    }

    fn read(spec: ProfileSpec, topic: Option<&str>, payload: &str) -> Read {
        let profile = Profile::new(spec).unwrap();
        let mut scratch = Scratch::default();
        // What earlier messages left behind must not show.
        let full = br#"{"device":"x","region":"y","ts":1,"power":1,"voltage":true}"#;
        profile.decode(None, full, &mut scratch);
        profile.decode(None, b"[1]", &mut scratch);
        let decoded = profile.decode(topic, payload.as_bytes(), &mut scratch);
        let item = |index| owned(scratch.item(index, payload.as_bytes()));
        Read {
            decoded,
            unreadable: scratch.unreadable(),
            items: (0..scratch.len()).map(item).collect(),
        }
    }

    fn one(spec: ProfileSpec, payload: &str) -> Owned {
        let read = read(spec, None, payload);
        assert_eq!((read.decoded, read.items.len()), (Decoded::Items, 1), "{payload}");
        read.items.into_iter().next().unwrap()
    }

    fn fate(spec: ProfileSpec, topic: Option<&str>, payload: &str) -> (Decoded, u32) {
        let read = read(spec, topic, payload);
        (read.decoded, read.unreadable)
    }

    const SYNTAX: (Decoded, u32) = (Decoded::Malformed(Reason::Syntax), 0);
    const EMPTY: (Decoded, u32) = (Decoded::Malformed(Reason::Empty), 0);
    const SHAPE: (Decoded, u32) = (Decoded::Malformed(Reason::Shape), 1);

    fn at(ms: i64) -> Stamp {
        Stamp::At(DeviceTime(ms))
    }

    #[test]
    fn an_object_is_one_record() {
        let payload = r#"{"device":"m-0003","region":"north","ts":1749946087916,"kind":"telemetry",
            "power":2025.75,"extra":{"deep":[[1]]},"voltage":221.375}"#;
        let expected = Owned {
            key: ("north".into(), "m-0003".into()),
            time: at(1_749_946_087_916),
            flags: (false, false),
            values: vec![Some(2025.75), Some(221.375)],
            content: payload.into(),
        };
        assert_eq!(one(meter(), payload), expected);
        assert_eq!(read(meter(), None, payload).unreadable, 0);
    }

    #[test]
    fn a_heartbeat_may_carry_values_or_none() {
        let beat = one(meter(), r#"{"device":"m","region":"r","ts":5,"kind":"heartbeat"}"#);
        assert_eq!((beat.flags, beat.values), ((true, false), vec![None, None]));
        let both =
            one(meter(), r#"{"device":"m","region":"r","ts":5,"kind":"heartbeat","power":1}"#);
        assert_eq!((both.flags.0, both.values[0]), (true, Some(1.0)));
    }

    #[test]
    fn another_topic_is_unmatched_and_segments_can_be_read() {
        let spec = ProfileSpec {
            device: "topic:device".parse().unwrap(),
            region: "topic:region".parse().unwrap(),
            heartbeat: condition("topic:kind", &["hb"]),
            ..meter()
        };
        assert_eq!(fate(spec.clone(), Some("meters/north/m1"), "{}").0, Decoded::Unmatched);
        let read = read(spec.clone(), Some("meters/north/m1/hb"), "{}");
        assert_eq!(read.items[0].key, ("north".into(), "m1".into()));
        assert_eq!((read.items[0].flags.0, read.items[0].time), (true, Stamp::Unusable));
        assert_eq!(fate(spec.clone(), Some("meters/north//hb"), "{}"), SHAPE);
        assert_eq!(fate(spec, None, "{}"), SHAPE);
    }

    #[test]
    fn an_array_gives_one_record_per_item_wherever_the_rest_stands() {
        let payload = r#"{"offset":7,"samples":[{"ts":1,"values":[1.5]}, {"values":["2"],"ts":"2"}],
            "site":{"name":"north"}}"#;
        let read = read(batch(), Some("batch/m1"), payload);
        assert_eq!((read.decoded, read.unreadable), (Decoded::Items, 0));
        assert_eq!(read.items[0].values, [Some(1.5), Some(7.0)]);
        assert_eq!(read.items[1].values, [Some(2.0), Some(7.0)]);
        assert_eq!((read.items[0].time, read.items[1].time), (at(1), at(2)));
        assert_eq!(read.items[0].content, r#"{"ts":1,"values":[1.5]}"#);
        assert_eq!(read.items[1].content, r#"{"values":["2"],"ts":"2"}"#);
        assert!(read.items.iter().all(|item| item.key == ("north".into(), "m1".into())));
    }

    #[test]
    fn a_single_object_in_the_place_of_an_array_is_one_item() {
        let payload = r#"{"site":{"name":"n"},"samples":{"ts":1}}"#;
        let read = read(batch(), Some("batch/m1"), payload);
        assert_eq!((read.decoded, read.items[0].content.as_str()), (Decoded::Items, r#"{"ts":1}"#));
    }

    #[test]
    fn without_items_there_is_nothing_to_read() {
        for payload in
            [r#"{"samples":[]}"#, "{}", r#"{"samples":null}"#, r#"{"samples":[{}],"samples":[ ]}"#]
        {
            assert_eq!(
                fate(batch(), Some("batch/m1"), payload),
                (Decoded::Ignored, 0),
                "{payload}"
            );
        }
    }

    #[test]
    fn an_unreadable_item_does_not_hurt_its_neighbours() {
        let payload = r#"{"site":{"name":"n"},"samples":[5,{"ts":1},"x",[1],{"ts":2},null]}"#;
        let read = read(batch(), Some("batch/m1"), payload);
        assert_eq!((read.decoded, read.unreadable, read.items.len()), (Decoded::Items, 4, 2));
        assert_eq!((read.items[0].time, read.items[1].time), (at(1), at(2)));
        assert_eq!(fate(batch(), Some("batch/m1"), r#"{"samples":[{"ts":1},{"ts":2}]}"#).1, 2);
        assert_eq!(fate(batch(), Some("batch/m1"), r#"{"samples":"x"}"#), SHAPE);
    }

    #[test]
    fn the_payload_itself_may_be_the_array() {
        let spec = ProfileSpec { items: Some("".into()), metrics: Vec::new(), ..meter() };
        let payload = r#" [{"device":"a","region":"r"},{"device":"b","region":"r"}] "#;
        let read = read(spec, None, payload);
        let devices: Vec<&str> = read.items.iter().map(|item| item.key.1.as_str()).collect();
        assert_eq!(devices, ["a", "b"]);
        assert_eq!(read.items[1].content, r#"{"device":"b","region":"r"}"#);
    }

    #[test]
    fn a_bare_value_is_read_by_the_empty_pointer() {
        let spec = ProfileSpec {
            device: "topic:device".parse().unwrap(),
            region: "const:north".parse().unwrap(),
            time: None,
            heartbeat: None,
            metrics: metrics(&[""]),
            ..meter()
        };
        let read = read(spec.clone(), Some("meters/x/m1/power"), " 233.41\n");
        assert_eq!(
            (read.items[0].time, &read.items[0].values[..]),
            (Stamp::Undeclared, &[Some(233.41)][..])
        );
        assert_eq!(fate(spec, Some("meters/x/m1/power"), "{}"), (Decoded::Items, 1));
    }

    #[test]
    fn a_payload_of_another_shape_than_all_pointers_is_malformed() {
        let spec = ProfileSpec {
            device: "topic:device".parse().unwrap(),
            region: "topic:region".parse().unwrap(),
            ..meter()
        };
        for payload in ["5", "\"online\"", "null", "[{}]"] {
            assert_eq!(fate(spec.clone(), Some("meters/r/m/k"), payload), SHAPE, "{payload}");
        }
    }

    #[test]
    fn without_device_or_region_a_message_is_malformed() {
        for payload in [
            "{}",
            r#"{"device":"m"}"#,
            r#"{"region":"r"}"#,
            r#"{"device":"","region":"r"}"#,
            r#"{"device":null,"region":"r"}"#,
            r#"{"device":{},"region":"r"}"#,
            r#"{"device":true,"region":"r"}"#,
        ] {
            assert_eq!(fate(meter(), None, payload), SHAPE, "{payload}");
        }
        assert_eq!(one(meter(), r#"{"device":17,"region":4.0}"#).key, ("4.0".into(), "17".into()));
        let escaped = one(meter(), r#"{"device":"a\/b\u0001","region":"\ud83d\ude00"}"#);
        assert_eq!(escaped.key, ("😀".into(), "a/b\u{1}".into()));
    }

    #[test]
    fn what_is_not_one_json_text_is_a_syntax_error() {
        for payload in [
            "{",
            "{}x",
            "{} {}",
            "nan",
            "{\"a\":NaN}",
            "{\"a\":01}",
            "{'a':1}",
            "\u{feff}{}",
            "{\"a\":\"\n\"}",
        ] {
            assert_eq!(fate(meter(), None, payload), SYNTAX, "{payload}");
        }
        let profile = Profile::new(meter()).unwrap();
        let decoded = profile.decode(None, b"{\"x\":\"\xff\"}", &mut Scratch::default());
        assert_eq!(decoded, SYNTAX.0);
    }

    #[test]
    fn an_empty_payload_is_malformed_unless_nothing_is_read_from_it() {
        assert_eq!(fate(meter(), None, ""), EMPTY);
        assert_eq!(fate(meter(), None, " \r\n"), EMPTY);
        let spec = ProfileSpec {
            device: "topic:device".parse().unwrap(),
            region: "topic:region".parse().unwrap(),
            time: None,
            heartbeat: condition("topic:kind", &["alive"]),
            metrics: metrics(&["const:1.5"]),
            ..meter()
        };
        for payload in ["", "Online", "{"] {
            let read = read(spec.clone(), Some("meters/r/m/alive"), payload);
            assert_eq!((read.decoded, read.items[0].flags.0), (Decoded::Items, true));
            assert_eq!(
                (read.items[0].values[0], read.items[0].content.as_str()),
                (Some(1.5), payload)
            );
        }
    }

    #[test]
    fn values_are_lenient_and_what_cannot_be_read_is_counted() {
        let value = |raw: &str| {
            let payload = format!(r#"{{"device":"m","region":"r","ts":1,"power":{raw}}}"#);
            let read = read(meter(), None, &payload);
            (read.items[0].values[0], read.unreadable)
        };
        assert_eq!(value("12"), (Some(12.0), 0));
        assert_eq!(value("\" 1.2e1 \""), (Some(12.0), 0));
        for absent in ["null", "\"\"", "\" \""] {
            assert_eq!(value(absent), (None, 0), "{absent}");
        }
        for unreadable in [
            "true",
            "\"NaN\"",
            "\"-Infinity\"",
            "\"inf\"",
            "1e400",
            "-1e400",
            "{}",
            "[1]",
            "\"on\"",
        ] {
            assert_eq!(value(unreadable), (None, 1), "{unreadable}");
        }
    }

    #[test]
    fn a_scale_is_applied_and_must_leave_a_finite_value() {
        let mut spec = meter();
        spec.metrics[0].scale = 1e3;
        let payload = |power| format!(r#"{{"device":"m","region":"r","ts":1,"power":{power}}}"#);
        assert_eq!(one(spec.clone(), &payload("1.5")).values[0], Some(1500.0));
        assert_eq!(fate(spec, None, &payload("1e308")), (Decoded::Items, 1));
    }

    #[test]
    fn a_time_is_unusable_when_absent_and_counted_when_unreadable() {
        let time = |raw: &str| {
            let payload = format!(r#"{{"device":"m","region":"r","ts":{raw}}}"#);
            let read = read(meter(), None, &payload);
            (read.items[0].time, read.unreadable)
        };
        assert_eq!(time("9007199254740993"), (at(9_007_199_254_740_993), 0));
        assert_eq!(time("\"1749946087916\""), (at(1_749_946_087_916), 0));
        assert_eq!(time("null"), (Stamp::Unusable, 0));
        assert_eq!(time("\"\""), (Stamp::Unusable, 0));
        for unreadable in ["true", "\"now\"", "1e30", "{}"] {
            assert_eq!(time(unreadable), (Stamp::Unusable, 1), "{unreadable}");
        }
    }

    #[test]
    fn conditions_compare_scalars_as_text() {
        let flags = |raw: &str, equals: &[&str]| {
            let spec = ProfileSpec { idle: condition("/flag", equals), ..meter() };
            one(spec, &format!(r#"{{"device":"m","region":"r","flag":{raw}}}"#)).flags.1
        };
        assert!(
            flags("true", &["true"])
                && flags("1", &["0", "1"])
                && flags("\"i\\u0064le\"", &["idle"])
        );
        assert!(flags("\"\"", &[""]) && flags("\"true\"", &["true"]));
        assert!(
            !flags("1.0", &["1"]) && !flags("null", &["null", ""]) && !flags("{}", &["{}", ""])
        );
    }

    #[test]
    fn a_rule_can_ignore_a_message_by_its_topic_or_items_by_their_content() {
        let by_topic = ProfileSpec { ignore: condition("topic:kind", &["debug"]), ..meter() };
        assert_eq!(
            fate(by_topic.clone(), Some("meters/r/m/debug"), "not json"),
            (Decoded::Ignored, 0)
        );
        assert_eq!(fate(by_topic, Some("meters/r/m/data"), "not json"), SYNTAX);
        let by_field = ProfileSpec { ignore: condition("/test", &["true"]), ..meter() };
        assert_eq!(fate(by_field, None, r#"{"test":true}"#), (Decoded::Ignored, 0));
        let by_item = ProfileSpec { ignore: condition("/test", &["1"]), ..batch() };
        let payload = r#"{"site":{"name":"n"},"samples":[{"test":1},{"ts":2}]}"#;
        assert_eq!(read(by_item.clone(), Some("batch/m1"), payload).items.len(), 1);
        let all = r#"{"samples":[{"test":1},{"test":1}]}"#;
        assert_eq!(fate(by_item, Some("batch/m1"), all), (Decoded::Ignored, 0));
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let item =
            one(meter(), r#"{"device":"a","device":"b","region":"r","power":1,"power":null}"#);
        assert_eq!((item.key.1.as_str(), item.values[0]), ("b", None));
    }

    #[test]
    fn a_scratch_does_not_grow_with_the_number_of_messages() {
        let profile = Profile::new(meter()).unwrap();
        let mut scratch = Scratch::default();
        for _ in 0..100 {
            profile.decode(None, br#"{"device":"m-1","region":"r"}"#, &mut scratch);
        }
        assert_eq!(scratch.found.names, "m-1r");
    }

    #[test]
    fn deep_nesting_is_skipped_without_recursion() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let payload = format!(r#"{{"x":{deep},"device":"m","region":"r","power":{deep}}}"#);
        assert_eq!(fate(meter(), None, &payload), (Decoded::Items, 1));
        assert_eq!(fate(meter(), None, &"[".repeat(200_000)), SYNTAX);
        let nested = format!(r#"{{"site":{{"name":"n"}},"samples":{deep}}}"#);
        assert_eq!(fate(batch(), Some("batch/m1"), &nested), SHAPE);
    }

    /// JSON of the right shape with some bytes changed, cut or doubled.
    fn mutated() -> impl Strategy<Value = Vec<u8>> {
        let whole = prop_oneof![
            Just(r#"{"device":"m-\u0041","region":"n","ts":17.49e11,"kind":"hb","power":"2e5"}"#),
            Just(
                r#"{"offset":7,"samples":[{"ts":1,"values":[1.5]},{"ts":"2"}],"site":{"name":"n"}}"#
            ),
            Just(r#"{"samples":{"ts":1,"values":{"0":"inf"}},"site":{"name":"\ud83d\ude00"}}"#),
        ];
        let change =
            (any::<prop::sample::Index>(), prop::option::of("[\"\\\\{}\\[\\],:0-9eE.truenaf]"));
        (whole, prop::collection::vec(change, 0..6)).prop_map(|(whole, changes)| {
            let mut bytes = whole.as_bytes().to_vec();
            for (place, new) in changes {
                let place = place.index(bytes.len());
                match new {
                    Some(new) => bytes[place] = new.as_bytes()[0],
                    None => drop(bytes.remove(place)),
                }
            }
            bytes
        })
    }

    fn holds_together(spec: ProfileSpec, payload: &[u8]) -> Result<(), TestCaseError> {
        let profile = Profile::new(spec).unwrap();
        let mut scratch = Scratch::default();
        let decoded = profile.decode(Some("batch/m1"), payload, &mut scratch);
        prop_assert_eq!(decoded == Decoded::Items, !scratch.is_empty());
        let valid = serde_json::from_slice::<serde::de::IgnoredAny>(payload).is_ok();
        prop_assert!(
            valid || matches!(decoded, Decoded::Malformed(Reason::Syntax | Reason::Empty))
        );
        for index in 0..scratch.len() {
            let item = scratch.item(index, payload);
            prop_assert!(!item.device.is_empty() && !item.region.is_empty());
            prop_assert!(item.values.iter().flatten().all(|value| value.is_finite()));
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(item.content).is_ok());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in any::<Vec<u8>>(),
            text in "[\"\\\\{}\\[\\],:0-9eE.truenlfas ]*",
            changed in mutated(),
        ) {
            for payload in [bytes.as_slice(), text.as_bytes(), &changed] {
                holds_together(ProfileSpec { topic: "batch/{device}".into(), ..meter() }, payload)?;
                holds_together(batch(), payload)?;
                let bare = ProfileSpec { metrics: metrics(&["", "/0", "/0/1", "/"]), ..batch() };
                holds_together(ProfileSpec { items: Some("".into()), ..bare.clone() }, payload)?;
                holds_together(ProfileSpec { items: None, ..bare }, payload)?;
            }
        }
    }
}
