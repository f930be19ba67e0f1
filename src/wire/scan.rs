//! A quick reader of the JSON that machines write.
//!
//! It is sure of what it accepts and gives up (`None`) on everything else: faults, keys with escapes, exponents, deep
//! nesting. Whoever asks it then turns to serde_json, which has the last word on what is JSON and what is wrong with it.

use std::ops::Range;

/// Deepest nesting that is read.
const LEVELS: u32 = 32;

/// Bytes of a string that do not stand for themselves.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        special[control] = true;
        control += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

/// A text and how far it is read.
#[derive(Debug)]
pub struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    /// At the start of `text`.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Position after what was read last.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes to what comes after blanks: its position.
    #[inline]
    pub fn start(&mut self) -> usize {
        self.next();
        self.at
    }

    /// Whether nothing is left but blanks.
    pub fn is_at_end(&mut self) -> bool {
        self.start() == self.text.len()
    }

    /// Reads an object; `field` is told each key and reads its value.
    #[inline]
    pub fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, &'t str) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let key = self.key()?;
            self.take(b':')?;
            field(self, key)?;
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    /// Reads any value and says where it stands.
    #[inline]
    pub fn value(&mut self) -> Option<Range<usize>> {
        let start = self.start();
        match self.next() {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.skip(LEVELS),
        }?;
        Some(start..self.at)
    }

    /// Reads a string and appends what it says to `text`.
    pub fn text(&mut self, text: &mut String) -> Option<()> {
        self.take(b'"')?;
        let mut start = self.at;
        loop {
            let special = self.special()?;
            text.push_str(self.text.get(start..self.at - 1)?);
            if special == b'"' {
                return Some(());
            }
            start = self.at; // what is escaped mostly stands for itself, and begins the next piece
            let says = self.escape(special)?;
            if self.text.as_bytes()[start] != says {
                text.push(char::from(says));
                start = self.at;
            }
        }
    }

    /// A string without escapes.
    #[inline]
    fn key(&mut self) -> Option<&'t str> {
        self.take(b'"')?;
        let start = self.at;
        match self.special()? {
            b'"' => self.text.get(start..self.at - 1),
            _ => None,
        }
    }

    fn skip(&mut self, levels: u32) -> Option<()> {
        match self.next() {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b'{' => {
                let inside = levels.checked_sub(1)?;
                self.object(|scanner, _| scanner.skip(inside))
            }
            b'[' => self.array(levels.checked_sub(1)?),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => None,
        }
    }

    fn array(&mut self, levels: u32) -> Option<()> {
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.skip(levels)?;
            if self.take(b',').is_none() {
                return self.take(b']');
            }
        }
    }

    #[inline]
    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            match self.special()? {
                b'"' => return Some(()),
                special => self.escape(special)?,
            };
        }
    }

    /// Goes past the next byte of a string that does not stand for itself.
    #[inline]
    fn special(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            if SPECIAL[usize::from(byte)] {
                self.at = at;
                return Some(byte);
            }
        }
    }

    /// What an escape of two bytes stands for, the first of which was read.
    #[inline]
    fn escape(&mut self, first: u8) -> Option<u8> {
        let says = match (first, self.text.as_bytes().get(self.at)?) {
            (b'\\', says @ (b'"' | b'\\' | b'/')) => *says,
            (b'\\', b'b') => b'\x08',
            (b'\\', b'f') => b'\x0c',
            (b'\\', b'n') => b'\n',
            (b'\\', b'r') => b'\r',
            (b'\\', b't') => b'\t',
            _ => return None,
        };
        self.at += 1;
        Some(says)
    }

    #[inline]
    fn number(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        self.at += usize::from(bytes.get(self.at) == Some(&b'-'));
        let leading_zero = bytes.get(self.at) == Some(&b'0');
        if self.digits()? > 1 && leading_zero {
            return None;
        }
        if bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        // What follows is not looked at here: it is no comma, brace or end where the number goes on.
        Some(())
    }

    /// Goes past digits, at least one; says how many.
    #[inline]
    fn digits(&mut self) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        let count = at - std::mem::replace(&mut self.at, at);
        (count > 0).then_some(count)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    /// Goes past blanks, then past `byte` if it is there.
    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next() == byte).then(|| self.at += 1)
    }

    /// Goes past blanks; the byte after them, 0 at the end.
    #[inline]
    fn next(&mut self) -> u8 {
        match self.text.as_bytes().get(self.at) {
            Some(byte) if *byte > b' ' => *byte,
            _ => self.after_blanks(),
        }
    }

    #[cold]
    fn after_blanks(&mut self) -> u8 {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\n', '\r', '\t']).len();
        self.text.as_bytes().get(self.at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    fn reads(text: &str) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.value().is_some() && scanner.is_at_end()
    }

    #[test]
    fn what_machines_write_is_read() {
        for text in ["{}", " [ ] ", "-0.5", "null", r#"{"a":[1,{"b":"\"\n"}],"é":true}"#] {
            assert!(reads(text), "{text}");
        }
    }

    #[test]
    fn a_text_says_what_serde_json_says() {
        let text = r#""{\"a\":\"\\\/\b\f\n\r\té\"}""#;
        let mut said = String::new();
        Scanner::new(text).text(&mut said).unwrap();
        assert_eq!(said, serde_json::from_str::<String>(text).unwrap());
        assert_eq!(Scanner::new(r#""\u0041""#).text(&mut said), None);
    }

    proptest! {
        #[test]
        fn a_fault_in_json_is_not_read(
            numbers in prop::collection::vec("-?[0-9]{1,3}(\\.[0-9]{0,2})?([eE][0-9])?", 0..3),
            words in prop::collection::vec("[a\\\\\"/nu0\u{1}]{0,3}", 0..3),
            at in 0..40_usize, fault in "[ ,:\"\\]}x]?",
        ) {
            let words: Vec<_> = words.iter().map(|word| format!("{{\"k\":\"{word}\"}}")).collect();
            let mut text = format!("[{}]", [numbers, words].concat().join(","));
            if text.is_char_boundary(at) && at < text.len() {
                text.insert_str(at, &fault);
            }
            if reads(&text) {
                prop_assert!(serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{}", text);
            }
        }
    }
}
