//! Until when a certificate is good: the one field of X.509 that the TLS library does not show.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::time::ArrivalTime;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version, which is there from the second one on.
const VERSION: u8 = 0xa0;

/// The ends of all certificates of a file in PEM that can be read.
pub(super) fn ends(pem: &[u8]) -> Vec<ArrivalTime> {
    CertificateDer::pem_slice_iter(pem).filter_map(|found| end(&found.ok()?)).collect()
}

/// `notAfter` of a certificate (RFC 5280, 4.1).
fn end(der: &[u8]) -> Option<ArrivalTime> {
    let (certificate, _) = take(der, SEQUENCE)?;
    let (signed, _) = take(certificate, SEQUENCE)?;
    let signed = take(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_, rest) = take(signed, INTEGER)?;
    let (_, rest) = take(rest, SEQUENCE)?;
    let (_, rest) = take(rest, SEQUENCE)?;
    let (validity, _) = take(rest, SEQUENCE)?;
    let (_, _, not_after) = any(validity)?;
    let (tag, text, _) = any(not_after)?;
    moment(tag, std::str::from_utf8(text).ok()?)
}

/// `490615000000Z` or `20900615000000Z`: two digits of a year are from 1950 on.
fn moment(tag: u8, text: &str) -> Option<ArrivalTime> {
    let text = match tag {
        UTC_TIME if *text.as_bytes().first()? < b'5' => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let moment = chrono::NaiveDateTime::parse_from_str(&text, "%Y%m%d%H%M%SZ").ok()?;
    Some(ArrivalTime(moment.and_utc().timestamp_millis()))
}

/// What is in the first element, which has this tag, and what follows it.
fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any(der).filter(|(found, ..)| *found == tag).map(|(_, inside, rest)| (inside, rest))
}

/// Tag and content of the first element, and what follows it.
fn any(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
            (bytes.iter().try_fold(0, add)?, rest)
        }
    };
    let (inside, rest) = rest.split_at_checked(length)?;
    Some((*tag, inside, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn made(to_year: i32) -> String {
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(to_year, 6, 15);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_a_time() {
        let both = made(2049) + &made(2090);
        let day = |ends: &ArrivalTime| {
            chrono::DateTime::from_timestamp_millis(ends.0).unwrap().to_string()
        };
        let ends: Vec<_> = ends(both.as_bytes()).iter().map(day).collect();
        assert_eq!(ends, ["2049-06-15 00:00:00 UTC", "2090-06-15 00:00:00 UTC"]);
    }

    #[test]
    fn what_is_cut_or_no_certificate_has_no_end_and_harms_nobody() {
        let der = CertificateDer::from_pem_slice(made(2049).as_bytes()).unwrap();
        assert!(end(&der).is_some());
        for length in 0..der.len() {
            let _ = end(&der[..length]);
        }
        for at in 0..der.len().min(200) {
            let mut spoilt = der.to_vec();
            spoilt[at] ^= 0xff;
            let _ = end(&spoilt);
        }
        assert_eq!(end(&[0x30, 0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1]), None);
        assert!(ends(b"nothing").is_empty());
    }
}
