//! From a topic and a payload to items: one per record.

use crate::time::DeviceTime;
use crate::wire::profile::Profile;

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
    Malformed(crate::event::Reason),
    /// At least one item, now in the scratch.
    Items,
}

/// Reused from message to message, so that reading one allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {}

impl Scratch {
    /// Items of the last message.
    pub fn len(&self) -> usize {
        0
    }

    /// Whether the last message had none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One item of the last message; `payload` is that message's.
    pub fn item<'a>(&'a self, _index: usize, _payload: &'a [u8]) -> Item<'a> {
        unimplemented!()
    }

    /// Fields and array items of the last message that were there and could not be read.
    pub fn unreadable(&self) -> u32 {
        0
    }
}

impl Profile {
    /// Reads one message into `scratch`. `topic` is `None` for a bare payload of this source.
    pub fn decode(&self, _topic: Option<&str>, _payload: &[u8], _scratch: &mut Scratch) -> Decoded {
        Decoded::Unmatched
    }
}
