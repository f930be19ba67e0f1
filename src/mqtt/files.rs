//! Files that a connection needs: passwords, certificates, keys. They are read at each attempt to connect, so that
//! mending one needs no restart, and nothing secret stays in memory longer than it has to.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What a name begins with that stands for a credential of the service.
const CREDENTIAL: &str = "credential:";

/// Where systemd puts the credentials of a service.
const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// The name of a file: a path, or `credential:NAME` for one that systemd hands to the service (`LoadCredential=NAME:…`).
#[derive(Clone, PartialEq, Eq)]
pub struct FileName(PathBuf);

impl FileName {
    /// From what was configured.
    pub fn new(name: impl Into<PathBuf>) -> Self {
        Self(name.into())
    }

    /// The name of the credential, if it is one.
    pub fn credential(&self) -> Option<&str> {
        self.0.to_str()?.strip_prefix(CREDENTIAL)
    }

    /// Whether it can be looked up in this process: a credential only inside of its service.
    pub fn is_within_reach(&self) -> bool {
        self.credential().is_none() || directory().is_some()
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// It cannot be read, or is a credential and this process has none.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        std::fs::read(self.path()?)
    }

    /// Where it is.
    ///
    /// # Errors
    /// It is a credential, and this process has none.
    pub(crate) fn path(&self) -> io::Result<PathBuf> {
        let Some(name) = self.credential() else { return Ok(self.0.clone()) };
        let message = "systemd gave this process no credentials (LoadCredential= in the unit)";
        let directory =
            directory().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, message))?;
        Ok(Path::new(&directory).join(name))
    }
}

fn directory() -> Option<OsString> {
    std::env::var_os(DIRECTORY).filter(|directory| !directory.is_empty())
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// User name, and the file that holds the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User name.
    pub user: String,
    /// Where the password is; none is sent without.
    pub password_file: Option<FileName>,
}

impl Credentials {
    /// Reads the password; a newline at its end is not part of it.
    ///
    /// # Errors
    /// The file cannot be read, or is no text.
    pub fn password(&self) -> io::Result<String> {
        let Some(file) = &self.password_file else { return Ok(String::new()) };
        let text = String::from_utf8(file.read()?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_told_from_a_path_and_needs_its_service() {
        let credential = FileName::new("credential:broker");
        assert_eq!(credential.credential(), Some("broker"));
        assert_eq!(FileName::new("/etc/tidegate/broker").credential(), None);
        // Tests are no service of systemd.
        if !credential.is_within_reach() {
            let error = credential.read().unwrap_err();
            assert!(error.to_string().contains("LoadCredential="), "{error}");
        }
    }

    #[test]
    fn the_newline_of_a_password_file_is_not_part_of_the_password() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = Some(FileName::new(file.path()));
        let credentials = Credentials { user: "gw".into(), password_file: name };
        for (written, read) in [("a b\r\n", "a b"), ("a\n\n", "a"), (" a", " a"), ("", "")] {
            std::fs::write(file.path(), written).unwrap();
            assert_eq!(credentials.password().unwrap(), read);
        }
        std::fs::write(file.path(), [0xff, 0xfe]).unwrap();
        assert!(credentials.password().is_err());
    }
}
