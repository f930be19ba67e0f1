//! One output waiting to be sent, and its bytes on the disk.
//!
//! | bytes | |
//! |---|---|
//! | 1 | version, 2 |
//! | 1 | class |
//! | 4 | length of all |
//! | 8 | supersedes, 0 for none |
//! | 4 | queued, seconds since the epoch, 0 where nobody knows |
//! | 4 | length of the topic |
//! | | topic, payload |
//!
//! Integers are big-endian. The length of all comes early so that the first chunk tells the size. Version 1 had no
//! `queued`; it is read, not written.

use crate::event::Class;
use crate::time::ArrivalTime;
use crate::wire::encode::Encoded;

const VERSION: u8 = 2;
const HEADER: usize = 22;

/// The version without `queued`, and the length of its header.
const UNDATED: (u8, usize) = (1, 18);

/// One output waiting to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is published, in full.
    pub topic: String,
    /// What is published.
    pub payload: Vec<u8>,
    /// What it is worth when there is no room.
    pub class: Class,
    /// Entries with the same number here are revisions of one thing: a new one replaces one that
    /// is not sent yet. A 64-bit hash of what the thing is; zero counts as `None`.
    pub supersedes: Option<u64>,
    /// When it was appended, for people; kept to the second.
    pub queued: ArrivalTime,
}

impl Entry {
    /// An output as it was encoded, appended at `queued`.
    pub fn of(encoded: Encoded, queued: ArrivalTime) -> Self {
        let Encoded { topic, payload, class, supersedes } = encoded;
        Self { topic, payload, class, supersedes, queued }
    }
}

/// What the outbox remembers of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Length of the encoded entry in bytes.
    pub size: u32,
    /// What it is worth.
    pub class: Class,
    /// See [`Entry::supersedes`].
    pub supersedes: Option<u64>,
    /// When it was appended, in seconds since the epoch; 0 where nobody knows.
    pub queued: u32,
}

impl Entry {
    /// What the outbox remembers of it.
    pub fn summary(&self) -> Summary {
        let size = HEADER + self.topic.len() + self.payload.len();
        Summary {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            class: self.class,
            supersedes: self.supersedes.filter(|&key| key != 0),
            queued: u32::try_from(self.queued.0 / 1_000).unwrap_or(0),
        }
    }

    /// Its bytes on the disk.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Summary { size, class, supersedes, queued } = self.summary();
        let topic_length = u32::try_from(self.topic.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER + self.topic.len() + self.payload.len());
        bytes.extend([VERSION, class_code(class)]);
        bytes.extend(size.to_be_bytes());
        bytes.extend(supersedes.unwrap_or(0).to_be_bytes());
        bytes.extend(queued.to_be_bytes());
        bytes.extend(topic_length.to_be_bytes());
        bytes.extend(self.topic.as_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// Reads what [`Self::encode`] wrote; `None` if these are not its bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let Summary { size, class, supersedes, queued } = Summary::decode(bytes)?;
        if bytes.len() != size as usize {
            return None;
        }
        let (topic_length, rest) = bytes[header(bytes[0])? - 4..].split_first_chunk()?;
        let (topic, payload) = rest.split_at_checked(u32::from_be_bytes(*topic_length) as usize)?;
        let topic = String::from_utf8(topic.to_vec()).ok()?;
        let queued = ArrivalTime(i64::from(queued) * 1_000);
        Some(Self { topic, payload: payload.to_vec(), class, supersedes, queued })
    }
}

impl Summary {
    /// Reads the header of an encoded entry, of which `bytes` is a beginning.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([version, class], rest) = bytes.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (supersedes, rest) = rest.split_first_chunk()?;
        let supersedes = u64::from_be_bytes(*supersedes);
        let dated = *version == VERSION;
        let queued = if dated { u32::from_be_bytes(*rest.first_chunk()?) } else { 0 };
        let summary = Self {
            size: u32::from_be_bytes(*size),
            class: class_of(*class)?,
            supersedes: Some(supersedes).filter(|&key| key != 0),
            queued,
        };
        (bytes.len() >= header(*version)?).then_some(summary)
    }
}

/// Length of what precedes the topic; `None` of an unknown version.
fn header(version: u8) -> Option<usize> {
    [(VERSION, HEADER), UNDATED].into_iter().find(|known| known.0 == version).map(|known| known.1)
}

// Numbers on the disk are written out: reordering the enum must not re-value what is stored.
fn class_code(class: Class) -> u8 {
    match class {
        Class::Malformed => 1,
        Class::Quarantined => 2,
        Class::Late => 3,
        Class::Watermark => 4,
        Class::Window => 5,
        Class::Alert => 6,
        Class::Presence => 7,
    }
}

fn class_of(code: u8) -> Option<Class> {
    CLASSES.into_iter().find(|&class| class_code(class) == code)
}

/// All classes, the least valuable first.
pub(super) const CLASSES: [Class; 7] = [
    Class::Watermark,
    Class::Malformed,
    Class::Quarantined,
    Class::Late,
    Class::Window,
    Class::Alert,
    Class::Presence,
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::store) fn any_entry() -> impl Strategy<Value = Entry> {
        let payload = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            (4_000..10_000_usize).prop_map(|length| vec![b'x'; length]),
        ];
        let queued = (0..u32::MAX).prop_map(|seconds| ArrivalTime(i64::from(seconds) * 1_000));
        ("[a-z/é]{0,20}", payload, 0..7_usize, prop::option::of(1..20_u64), queued).prop_map(
            |(topic, payload, class, supersedes, queued)| Entry {
                topic,
                payload,
                class: CLASSES[class],
                supersedes,
                queued,
            },
        )
    }

    #[test]
    fn classes_are_listed_by_value_and_each_has_its_code() {
        assert!(CLASSES.is_sorted());
        for class in CLASSES {
            assert_eq!(class_of(class_code(class)), Some(class));
        }
    }

    #[test]
    fn an_unknown_version_is_refused() {
        let mut bytes = late().encode();
        bytes[0] = 3;
        assert_eq!(Entry::decode(&bytes), None);
    }

    fn late() -> Entry {
        let (topic, payload) = ("t".to_owned(), vec![1]);
        Entry { topic, payload, class: Class::Late, supersedes: None, queued: ArrivalTime(7_999) }
    }

    #[test]
    fn an_entry_of_the_first_version_is_read_without_its_time() {
        let mut bytes = late().encode();
        bytes.drain(14..18);
        (bytes[0], bytes[5]) = (1, bytes.len() as u8);
        assert_eq!(Entry::decode(&bytes), Some(Entry { queued: ArrivalTime(0), ..late() }));
        let kept = Entry::decode(&late().encode()).map(|entry| entry.queued);
        assert_eq!(kept, Some(ArrivalTime(7_000)), "to the second");
    }

    proptest! {
        #[test]
        fn an_entry_encoded_is_the_entry_decoded(entry in any_entry()) {
            let bytes = entry.encode();
            prop_assert_eq!(bytes.len(), entry.summary().size as usize);
            prop_assert_eq!(Summary::decode(&bytes), Some(entry.summary()));
            prop_assert_eq!(Entry::decode(&bytes), Some(entry));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(entry) = Entry::decode(&bytes) {
                let again = entry.encode();
                prop_assert!(bytes[0] == UNDATED.0 || again == bytes);
            }
        }

        #[test]
        fn a_truncated_entry_is_refused(entry in any_entry(), cut in 1..30_usize) {
            let bytes = entry.encode();
            let cut = cut.min(bytes.len());
            prop_assert_eq!(Entry::decode(&bytes[..bytes.len() - cut]), None);
        }
    }
}
