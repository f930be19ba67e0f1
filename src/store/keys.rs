//! Keys and chunks: how values of any length lie in trees that hold short ones.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `state` | `00` key | number of further chunks (u16), first chunk |
//! | `state` | `01` key, index (u16, from 1) | further chunk |
//! | `outbox` | seq (u64) | number of further chunks (u16), first chunk |
//! | `outbox` | seq (u64), index (u16, from 1) | further chunk |
//! | `meta` | `format`, `generation`, `created`, `next-seq` | an integer |
//!
//! Integers are big-endian, so that keys sort as numbers do. Heads of state keys lie together and
//! sort as the engine's keys do; the index has a fixed width, so no two keys share a chunk.

use crate::ids::OutboxSeq;

/// Most bytes of a value that one key holds.
pub const CHUNK: usize = 4096;
/// Longest state key in bytes. A leaf of 17 of them with full chunks stays below sled's limit.
pub const MAX_KEY: usize = 1024;
/// Longest value in bytes.
pub const MAX_VALUE: usize = CHUNK * u16::MAX as usize;

pub(super) const STATE_HEAD: u8 = 0;
pub(super) const STATE_CHUNK: u8 = 1;

pub(super) const FORMAT: &[u8] = b"format";
pub(super) const GENERATION: &[u8] = b"generation";
pub(super) const CREATED: &[u8] = b"created";
pub(super) const NEXT_SEQ: &[u8] = b"next-seq";

/// Where the first chunk of a state value lies.
pub(super) fn state_head(key: &[u8]) -> Vec<u8> {
    [&[STATE_HEAD], key].concat()
}

/// Where its further chunk `index` lies.
pub(super) fn state_chunk(key: &[u8], index: u16) -> Vec<u8> {
    [&[STATE_CHUNK], key, &index.to_be_bytes()].concat()
}

/// Where the first chunk of an outbox entry lies.
pub(super) fn outbox_head(seq: OutboxSeq) -> Vec<u8> {
    seq.0.to_be_bytes().to_vec()
}

/// Where its further chunk `index` lies.
pub(super) fn outbox_chunk(seq: OutboxSeq, index: u16) -> Vec<u8> {
    [&seq.0.to_be_bytes()[..], &index.to_be_bytes()].concat()
}

/// The entry that a key of the outbox tree begins; `None` for a further chunk.
pub(super) fn outbox_seq(key: &[u8]) -> Option<OutboxSeq> {
    key.try_into().ok().map(|bytes| OutboxSeq(u64::from_be_bytes(bytes)))
}

/// A value as it is laid out: the head, and the further chunks.
///
/// # Panics
/// If `value` is longer than [`MAX_VALUE`].
pub(super) fn split(value: &[u8]) -> (Vec<u8>, std::slice::Chunks<'_, u8>) {
    let (first, rest) = value.split_at(value.len().min(CHUNK));
    let chunks = rest.chunks(CHUNK);
    let further = u16::try_from(chunks.len()).expect("the length was checked");
    ([&further.to_be_bytes()[..], first].concat(), chunks)
}

/// The number of further chunks and the first one; `None` if `head` is not a head.
pub(super) fn parse_head(head: &[u8]) -> Option<(u16, &[u8])> {
    let (count, first) = head.split_first_chunk()?;
    Some((u16::from_be_bytes(*count), first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_leaf_of_the_longest_keys_and_chunks_stays_out_of_sleds_blob_files() {
        let segment = 512 * 1024;
        let (leaf_items, overhead) = (17, 64);
        assert!(leaf_items * (CHUNK + MAX_KEY + overhead) < segment / 4);
    }

    #[test]
    fn outbox_keys_sort_by_number_and_chunks_follow_their_head() {
        let mut keys = [
            outbox_head(OutboxSeq(256)),
            outbox_chunk(OutboxSeq(255), 2),
            outbox_chunk(OutboxSeq(255), 1),
            outbox_head(OutboxSeq(255)),
        ];
        keys.sort();
        let heads: Vec<_> = keys.iter().map(|key| outbox_seq(key)).collect();
        assert_eq!(heads, [Some(OutboxSeq(255)), None, None, Some(OutboxSeq(256))]);
    }

    proptest! {
        #[test]
        fn a_value_split_is_the_value_joined(
            value in prop::collection::vec(any::<u8>(), 0..20_000)
        ) {
            let (head, further) = split(&value);
            let (count, first) = parse_head(&head).unwrap();
            prop_assert_eq!(usize::from(count), further.len());
            let joined: Vec<u8> = first.iter().chain(further.flatten()).copied().collect();
            prop_assert_eq!(joined, value);
        }

        #[test]
        fn no_two_state_keys_share_a_chunk(
            a in prop::collection::vec(0..3_u8, 0..5), i in 1..4_u16,
            b in prop::collection::vec(0..3_u8, 0..5), j in 1..4_u16,
        ) {
            let same = a == b && i == j;
            prop_assert_eq!(state_chunk(&a, i) == state_chunk(&b, j), same);
            prop_assert_ne!(state_chunk(&a, i), state_head(&b));
        }
    }
}
