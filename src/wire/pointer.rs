//! Many JSON Pointers read from one text in one pass.
//!
//! The wanted pointers (RFC 6901) form a trie that walks along while the text is parsed, by a quick
//! scanner where the text is plain and else by serde_json; what no pointer wants is skipped, not
//! built. A value that is wanted is kept as the span of its text:
//! numbers keep every digit, strings stay where they are, and one number out of a double's range
//! does not spoil the message around it.

use std::fmt;
use std::ops::Range;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::wire::scan::Scanner;

/// Where in the text a value stands; empty where there is none (a JSON value is never empty).
pub(super) type Span = Range<usize>;

/// Deepest pointer, in levels; far below the depth at which serde_json gives up.
pub(super) const MAX_DEPTH: usize = 32;

/// What is wrong with a JSON Pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// Neither empty nor starting with a slash.
    #[error("a JSON Pointer starts with `/`, as in `/energy/power`")]
    Start,
    /// A `~` that is neither `~0` nor `~1`.
    #[error("`~` is written `~0` and `/` inside a key `~1`")]
    Escape,
    /// More than 32 levels.
    #[error("at most {MAX_DEPTH} levels are read")]
    Deep,
}

/// A set of pointers, compiled. Each has a slot; equal pointers share one.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    root: Node,
    slots: usize,
}

/// A place that is wanted, or has wanted places below it.
#[derive(Debug, Default)]
struct Node {
    slot: Option<usize>,
    children: Vec<Child>,
}

#[derive(Debug)]
struct Child {
    key: Box<str>,
    /// The key as an array index.
    index: Option<usize>,
    node: Node,
}

/// Checks a pointer.
pub fn check(pointer: &str) -> Result<(), PointerError> {
    if pointer.is_empty() {
        return Ok(());
    }
    let tokens = pointer.strip_prefix('/').ok_or(PointerError::Start)?;
    if tokens.split('/').count() > MAX_DEPTH {
        return Err(PointerError::Deep);
    }
    tokens.split('/').try_for_each(|token| unescape(token).map(drop))
}

fn unescape(token: &str) -> Result<Box<str>, PointerError> {
    let plain = token.replace("~0", "").replace("~1", "");
    if plain.contains('~') {
        return Err(PointerError::Escape);
    }
    Ok(token.replace("~1", "/").replace("~0", "~").into())
}

impl Pointers {
    /// Wants one more pointer; returns its slot.
    pub(super) fn insert(&mut self, pointer: &str) -> Result<usize, PointerError> {
        check(pointer)?;
        let mut node = &mut self.root;
        for token in pointer.split('/').skip(1) {
            node = node.child(unescape(token)?);
        }
        if node.slot.is_none() {
            node.slot = Some(self.slots);
            self.slots += 1;
        }
        Ok(node.slot.unwrap_or_default())
    }

    /// Whether nothing is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Whether a value that starts with this byte can have something that is wanted: scalars can
    /// only be wanted themselves, arrays by index.
    pub(super) fn fits(&self, first: u8) -> bool {
        let inside = &self.root.children;
        let below = match first {
            b'{' => !inside.is_empty(),
            b'[' => inside.iter().any(|child| child.index.is_some()),
            _ => false,
        };
        below || self.root.slot.is_some() || self.is_empty()
    }

    /// Finds every wanted value of `text`, which must be one JSON value and nothing else. Where a
    /// key occurs twice the last one counts.
    pub(super) fn read(&self, text: &str, spans: &mut Vec<Span>) -> Result<(), serde_json::Error> {
        spans.clear();
        spans.resize(self.slots, 0..0);
        if self.scan(text, spans).is_some() {
            return Ok(());
        }
        spans.fill(0..0);
        self.parse(text, spans)
    }

    /// The quick way; `None` where it cannot be gone.
    fn scan(&self, text: &str, spans: &mut [Span]) -> Option<()> {
        let mut scanner = Scanner::new(text);
        self.root.scan(&mut scanner, spans)?;
        scanner.is_at_end().then_some(())
    }

    fn parse(&self, text: &str, spans: &mut [Span]) -> Result<(), serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_str(text);
        let walk = Walk { node: &self.root, base: address(text), spans };
        walk.deserialize(&mut parser)?;
        parser.end()
    }
}

/// The spans of the elements of `text`, which must be a JSON array; `offset` is where `text` itself
/// stands.
pub(super) fn elements(
    text: &str,
    offset: usize,
    spans: &mut Vec<Span>,
) -> Result<(), serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let elements = Elements { base: address(text).wrapping_sub(offset), spans };
    parser.deserialize_seq(elements)?;
    parser.end()
}

impl Node {
    fn child(&mut self, key: Box<str>) -> &mut Self {
        let found = self.children.iter().position(|child| child.key == key);
        let place = found.unwrap_or_else(|| {
            let index = key.parse().ok().filter(|index: &usize| index.to_string() == *key);
            self.children.push(Child { key, index, node: Self::default() });
            self.children.len() - 1
        });
        &mut self.children[place].node
    }

    /// The place of the child with this key. Devices send their keys in the same order every time,
    /// mostly the one in which they are configured, so the search goes on where the last one ended.
    #[inline]
    fn find(&self, key: &str, next: usize) -> Option<usize> {
        let is = |child: &Child| *child.key == *key;
        if self.children.get(next).is_some_and(is) {
            return Some(next);
        }
        let (before, after) = self.children.split_at_checked(next)?;
        let found = after.iter().position(is).map(|place| place + next);
        found.or_else(|| before.iter().position(is))
    }

    /// Finds what is wanted here and below, as [`Walk`] does.
    fn scan(&self, scanner: &mut Scanner<'_>, spans: &mut [Span]) -> Option<()> {
        if self.children.is_empty() {
            return self.scan_leaf(scanner, spans);
        }
        let start = scanner.start();
        let mut next = 0;
        scanner.object(|scanner, key| {
            let Some(place) = self.find(key, next) else { return scanner.value().map(drop) };
            next = place + 1;
            let node = &self.children[place].node;
            if node.children.is_empty() {
                return node.scan_leaf(scanner, spans);
            }
            node.forget(spans);
            node.scan(scanner, spans)
        })?;
        if let Some(slot) = self.slot {
            spans[slot] = start..scanner.position();
        }
        Some(())
    }

    #[inline]
    fn scan_leaf(&self, scanner: &mut Scanner<'_>, spans: &mut [Span]) -> Option<()> {
        spans[self.slot?] = scanner.value()?;
        Some(())
    }

    #[inline]
    fn forget(&self, spans: &mut [Span]) {
        for child in &self.children {
            if let Some(slot) = child.node.slot {
                spans[slot] = 0..0;
            }
            child.node.forget(spans);
        }
    }
}

fn address(text: &str) -> usize {
    text.as_ptr().addr()
}

fn span(text: &str, base: usize) -> Span {
    let start = address(text).wrapping_sub(base);
    start..start + text.len()
}

/// Reads one value at a node.
struct Walk<'n, 's> {
    node: &'n Node,
    /// Address of the whole text, so that addresses of its parts become positions.
    base: usize,
    spans: &'s mut [Span],
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        let Some(slot) = self.node.slot else { return parser.deserialize_any(self) };
        let raw = <&RawValue>::deserialize(parser)?.get();
        self.spans[slot] = span(raw, self.base);
        if self.node.children.is_empty() {
            return Ok(());
        }
        let mut parser = serde_json::Deserializer::from_str(raw);
        parser.deserialize_any(self).map_err(D::Error::custom)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut next = 0;
        while let Some(found) = map.next_key_seed(Key { node: self.node, next })? {
            let Some(place) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let node = &self.node.children[place].node;
            node.forget(self.spans);
            map.next_value_seed(Walk { node, base: self.base, spans: &mut *self.spans })?;
            next = place + 1;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for index in 0.. {
            let child = self.node.children.iter().find(|child| child.index == Some(index));
            let more = match child {
                Some(Child { node, .. }) => {
                    let walk = Walk { node, base: self.base, spans: &mut *self.spans };
                    seq.next_element_seed(walk)?.is_some()
                }
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads a key: the place of the child it names.
struct Key<'n> {
    node: &'n Node,
    next: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Option<usize>, D::Error> {
        parser.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    #[inline]
    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.node.find(key, self.next))
    }
}

struct Elements<'s> {
    base: usize,
    spans: &'s mut Vec<Span>,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(raw) = seq.next_element::<&RawValue>()? {
            self.spans.push(span(raw.get(), self.base));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(pointers: &[&str], text: &str) -> Vec<String> {
        let mut compiled = Pointers::default();
        let slots: Vec<usize> = pointers.iter().map(|p| compiled.insert(p).unwrap()).collect();
        let mut spans = Vec::new();
        compiled.read(text, &mut spans).unwrap();
        slots.iter().map(|slot| text[spans[*slot].clone()].to_owned()).collect()
    }

    #[test]
    fn values_are_found_by_key_and_index_at_any_depth() {
        let text = r#" {"a":{"b":[10,{"c":"x"}, 30]},"":1,"m~n":2,"p/q":3,"é":true,"0":4} "#;
        let pointers = ["/a/b/0", "/a/b/1/c", "/a/b/3", "/", "/m~0n", "/p~1q", "/é", "/0", "/a/x"];
        assert_eq!(found(&pointers, text), ["10", "\"x\"", "", "1", "2", "3", "true", "4", ""]);
    }

    #[test]
    fn a_wanted_value_may_have_wanted_values_inside() {
        let text = r#"{"a":{"b":1},"c":[[5]]}"#;
        assert_eq!(found(&["/a", "/a/b", "", "/c/0/0", "/c/0"], text)[..2], [r#"{"b":1}"#, "1"]);
        assert_eq!(found(&["", "/c/0/0", "/c/0"], text), [text, "5", "[5]"]);
    }

    #[test]
    fn an_escaped_tilde_does_not_begin_another_escape() {
        assert_eq!(found(&["/a~01"], r#"{"a~1":1,"a/":2}"#), ["1"]);
    }

    #[test]
    fn the_last_of_equal_keys_counts_with_all_that_is_below_it() {
        assert_eq!(found(&["/a"], r#"{"a":1,"a":2}"#), ["2"]);
        assert_eq!(found(&["/a/b", "/a/c"], r#"{"a":{"b":1},"a":{"c":2}}"#), ["", "2"]);
        assert_eq!(found(&["/a/b"], r#"{"a":{"b":1},"a":5}"#), [""]);
        assert_eq!(found(&["/a/b", "/a"], r#"{"a":{"b":1},"a":null}"#), ["", "null"]);
    }

    #[test]
    fn an_escaped_key_is_the_key_it_says() {
        assert_eq!(found(&["/a\"b"], r#"{"a\"b":1}"#), ["1"]);
        assert_eq!(found(&["/é"], "{\"\\u00e9\":1}"), ["1"]);
    }

    #[test]
    fn an_array_index_is_written_without_leading_zeros() {
        assert_eq!(found(&["/00", "/01", "/-", "/+1"], "[1,2]"), ["", "", "", ""]);
        assert_eq!(found(&["/18446744073709551616"], "[1,2]"), [""]);
    }

    #[test]
    fn bad_pointers_say_why() {
        assert_eq!(check("power"), Err(PointerError::Start));
        assert_eq!(check("/a~2"), Err(PointerError::Escape));
        assert_eq!(check("/a~"), Err(PointerError::Escape));
        assert_eq!(check(&"/a".repeat(MAX_DEPTH)), Ok(()));
        assert_eq!(check(&"/a".repeat(MAX_DEPTH + 1)), Err(PointerError::Deep));
    }

    #[test]
    fn numbers_out_of_range_and_deep_nesting_spoil_nothing() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let text = format!(r#"{{"x":{deep},"huge":1e999,"deep":{deep},"a":1}}"#);
        assert_eq!(found(&["/huge", "/a", "/deep/0/0/y"], &text), ["1e999", "1", ""]);
    }

    #[test]
    fn elements_are_the_spans_of_an_array() {
        let text = r#"xx[1, {"a":[2]} ,"s"]"#;
        let mut spans = Vec::new();
        elements(&text[2..], 2, &mut spans).unwrap();
        let texts: Vec<&str> = spans.iter().map(|span| &text[span.clone()]).collect();
        assert_eq!(texts, ["1", r#"{"a":[2]}"#, "\"s\""]);
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "[a\"\\\\é]{0,3}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let array = prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into);
            let object = prop::collection::btree_map("[a-c0-2/~]?", inner, 0..4);
            prop_oneof![array, object.prop_map(|map| map.into_iter().collect())]
        })
    }

    proptest! {
        #[test]
        fn every_pointer_finds_what_serde_json_finds(
            value in any_json(),
            pointers in prop::collection::vec("(/([a-c0-2]|~0|~1)?){0,4}", 1..5),
        ) {
            let text = value.to_string();
            let wanted: Vec<&str> = pointers.iter().map(String::as_str).collect();
            for (pointer, raw) in wanted.iter().zip(found(&wanted, &text)) {
                let expected = value.pointer(pointer).map(ToString::to_string);
                prop_assert_eq!(raw, expected.unwrap_or_default(), "{} in {}", pointer, text);
            }
        }

        #[test]
        fn the_quick_way_finds_what_the_long_way_finds(
            value in any_json(),
            pointers in prop::collection::vec("(/([a-c0-2]|~0|~1)?){0,4}", 1..5),
            again in "[a-c]", number in "-?[0-9]{1,2}(\\.[0-9]?)?(e999)?", blank in "[ \n\t]?",
        ) {
            let text = format!("{{\"{again}\":{value}{blank},\"{again}\":{number}{blank},\"b\":{value}}}");
            let mut compiled = Pointers::default();
            for pointer in &pointers {
                compiled.insert(pointer).unwrap();
            }
            let (mut quick, mut long) = (vec![0..0; compiled.slots], vec![0..0; compiled.slots]);
            if compiled.scan(&text, &mut quick).is_some() {
                prop_assert!(compiled.parse(&text, &mut long).is_ok(), "{}", text);
                prop_assert_eq!(quick, long, "{}", text);
            }
        }
    }
}
