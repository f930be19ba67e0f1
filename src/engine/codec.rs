//! Small binary records: varints, so that a number costs what it is worth in flash.

/// Writes a record.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// An unsigned number, 7 bits to a byte, least first.
    pub fn unsigned(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.u8(value.to_le_bytes()[0])
    }

    /// A signed number; small ones of either sign are short.
    pub fn signed(&mut self, value: i64) -> &mut Self {
        self.unsigned(((value << 1) ^ (value >> 63)).cast_unsigned())
    }

    /// A float, to the bit.
    pub fn float(&mut self, value: f64) -> &mut Self {
        self.0.extend(value.to_bits().to_le_bytes());
        self
    }

    /// A text with its length.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.unsigned(text.len() as u64);
        self.0.extend(text.as_bytes());
        self
    }
}

/// Reads a record. Every read is `None` once the bytes run out or make no sense.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The inverse of [`Writer::unsigned`].
    pub fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The inverse of [`Writer::signed`].
    pub fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// An unsigned number that fits.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.unsigned()?).ok()
    }

    /// The inverse of [`Writer::float`].
    pub fn float(&mut self) -> Option<f64> {
        let (bytes, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(f64::from_bits(u64::from_le_bytes(*bytes)))
    }

    /// The inverse of [`Writer::text`].
    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.small::<usize>()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(u in any::<u64>(), i in any::<i64>(), f in any::<f64>(), text in ".*") {
            let mut writer = Writer::default();
            writer.unsigned(u).signed(i).float(f).text(&text).u8(7);
            let mut reader = Reader(&writer.0);
            prop_assert_eq!(reader.unsigned(), Some(u));
            prop_assert_eq!(reader.signed(), Some(i));
            prop_assert_eq!(reader.float().map(f64::to_bits), Some(f.to_bits()));
            prop_assert_eq!(reader.text(), Some(text.as_str()));
            prop_assert_eq!(reader.u8(), Some(7));
            prop_assert_eq!(reader.u8(), None);
        }

        #[test]
        fn damaged_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader(&bytes);
            while reader.text().is_some() {}
            while reader.signed().is_some() {}
            while reader.float().is_some() {}
        }
    }
}
