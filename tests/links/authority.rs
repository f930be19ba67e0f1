//! An authority and what it signs, made anew for each test.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority of this name; two of one name have different keys.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// From 2025 to this year.
fn valid(to_year: i32, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.not_before = date_time_ymd(2025, 6, 15);
    params.not_after = date_time_ymd(to_year, 6, 15);
    params
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = valid(2090, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("ring makes keys");
        let pem = params.self_signed(&key).expect("it signs itself").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Writes its own certificate.
    pub fn write(&self, file: &Path) {
        fs::write(file, &self.pem).expect("the directory is ours");
    }

    /// Writes `NAME.pem` and `NAME.key`, for hosts of these names, valid to this year.
    pub fn sign(&self, directory: &Path, name: &str, hosts: &[&str], to_year: i32) {
        let mut params = valid(to_year, hosts);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("ring makes keys");
        let certificate = params.signed_by(&key, &self.issuer).expect("it signs");
        let write = |ending: &str, pem: String| {
            fs::write(directory.join(name).with_extension(ending), pem).expect("ours");
        };
        write("pem", certificate.pem());
        write("key", key.serialize_pem());
    }
}
