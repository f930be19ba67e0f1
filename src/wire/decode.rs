//! From a topic and a payload to items: one per record.
//!
//! Whatever can be read is used: a field that cannot be read is left out and counted, an item without a device or a
//! region is left out and counted, and only a message without any item is malformed. In the steady state nothing is
//! allocated but what serde_json needs to skip containers nested in unwanted ones and to undo escapes.

use std::borrow::Cow;
use std::ops::Range;

use crate::event::Reason;
use crate::time::DeviceTime;
use crate::wire::pointer::{self, Span};
use crate::wire::profile::{Place, Profile, Test};
use crate::wire::scalar::Scalar;
use crate::wire::topic::Segments;

/// The device time of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The source declares none: the arrival time is the event time.
    Undeclared,
    /// Declared but absent, null, empty or unreadable.
    Unusable,
    /// As the device wrote it.
    At(DeviceTime),
}

/// One record as read, not yet judged. Borrows from the message and the [`Scratch`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item<'a> {
    /// The device.
    pub device: &'a str,
    /// Its region.
    pub region: &'a str,
    /// Its device time.
    pub time: Stamp,
    /// It is a heartbeat.
    pub heartbeat: bool,
    /// It marks its partition idle.
    pub idle: bool,
    /// A finite value per metric of the source, in configured order.
    pub values: &'a [Option<f64>],
    /// The bytes that tell this record from others: the payload, or its item of the array.
    pub content: &'a [u8],
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
    time: Stamp,
    heartbeat: bool,
    idle: bool,
    content: Span,
}

impl Scratch {
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
            time: *time,
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
    /// Reads one message into `scratch`. `topic` is `None` for a bare payload of this source; its segments are empty
    /// then.
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
        let ids = (fields.get(&self.device).id(), fields.get(&self.region).id());
        let (Ok(device), Ok(region)) = ids else { return found.refuse() };
        let entry = Entry {
            device: found.name(&device),
            region: found.name(&region),
            time: self.stamp(&fields, found),
            heartbeat: fields.meets_some(self.heartbeat.as_ref()),
            idle: fields.meets_some(self.idle.as_ref()),
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
    fn stamp<'m>(&'m self, fields: &Fields<'m>, found: &mut Found) -> Stamp {
        let Some((place, format)) = &self.time else { return Stamp::Undeclared };
        let time = fields.get(place).time(*format);
        found.unreadable += u32::from(time.is_err());
        time.ok().flatten().map_or(Stamp::Unusable, Stamp::At)
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

    fn name(&mut self, name: &Cow<'_, str>) -> Range<usize> {
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

/// Fills `elements` with the items at `span`: those of an array, a single value as it is, none for nothing or `null`.
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
