//! Secrets have no place in a configuration, which is copied, mailed and logged. Where somebody wrote one all the same,
//! or for a moment by mistake, it is not shown again.

use super::finding::{KeyPath, Segment};

/// Stands in the place of what is not shown.
pub(super) const HIDDEN: &str = "(not shown)";

/// What to do instead.
pub(super) const REMEDY: &str = "a secret is not written here; put it into a file of its own and name that in [broker] \
                                 or [upstream]: password-file = \"/etc/tidegate/broker.password\"";

/// What a name that tells of a secret has in it, in small letters and without `-` and `_`.
const PARTS: [&str; 9] =
    ["pass", "pwd", "secret", "token", "credential", "apikey", "privatekey", "auth", "psk"];

/// Names that tell of one only as a whole.
const WHOLE: [&str; 4] = ["pw", "pin", "cred", "creds"];

/// Words that one slips with; what is this near to one is taken for it (Damerau-Levenshtein, 1 is equal).
const SLIPS: [&str; 5] = ["password", "passphrase", "secret", "token", "credentials"];
const NEAR: f64 = 0.75;

/// Whether a key of this name holds a secret, or the name of its file.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase().replace(['-', '_'], "");
    let near = |word: &str| strsim::normalized_damerau_levenshtein(&name, word) >= NEAR;
    PARTS.iter().any(|part| name.contains(part))
        || WHOLE.contains(&&*name)
        || SLIPS.iter().any(|word| near(word))
}

/// Whether the name is that of a file which holds the secret.
fn is_file(name: &str) -> bool {
    let name = name.to_lowercase();
    name.ends_with("file") || name.ends_with("path")
}

/// The key on the way to `path` that holds a secret; `key` does outside of sources, where it is that of the windows.
fn secret(path: &KeyPath) -> Option<&str> {
    let mut keys = path.0.iter().filter_map(|segment| match segment {
        Segment::Key(key) => Some(key.as_str()),
        Segment::Index(_) => None,
    });
    let in_source = path.0.first() == Some(&Segment::Key("source".to_owned()));
    keys.find(|key| is_secret(key) || (["key", "key-file"].contains(key) && !in_source))
}

/// What to do about `path` where it is a secret that was written down.
pub(super) fn remedy(path: &KeyPath) -> Option<&'static str> {
    let key = secret(path)?;
    (!is_file(key)).then_some(REMEDY)
}

/// The value at `path` as far as it may be shown.
pub(super) fn shown(path: &KeyPath, value: String) -> String {
    let hide = match secret(path) {
        Some(key) if is_file(key) => !is_path(&value),
        Some(_) => true,
        None => holds_secret(&value),
    };
    if hide { HIDDEN.to_owned() } else { value }
}

/// A password in the place of its file's name is none, and neither is a key.
fn is_path(value: &str) -> bool {
    let value = value.trim_start_matches(['"', '\'']);
    let is_one = value.strip_prefix('/').is_some_and(|rest| rest.contains('/'))
        || ["./", "../", "credential:"].iter().any(|start| value.starts_with(start));
    is_one && !value.contains("-----")
}

/// A table with a secret in it, as TOML or JSON, or an address with a login.
fn holds_secret(value: &str) -> bool {
    let login = value.find(':').is_some_and(|colon| value[colon..].contains('@'));
    login || value.match_indices(['=', ':']).any(|(at, _)| is_secret(last_word(&value[..at])))
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || "\"'\\".contains(c));
    let inside = |c: char| c.is_alphanumeric() || "-_".contains(c);
    &text[text.trim_end_matches(inside).len()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_options_only_those_of_the_password_are_secret() {
        let raw = include_str!("raw.rs");
        let fields = raw.lines().filter_map(|line| line.trim().split_once(": "));
        let names = fields.map(|(name, _)| name.rsplit([' ', '{']).next().unwrap_or_default());
        let secret: Vec<_> = names.filter(|name| is_secret(name)).collect();
        assert_eq!(secret, ["password_file", "password_file"]);
    }

    #[test]
    fn slips_and_other_spellings_are_secret() {
        for name in
            ["pasword", "paswrd", "PassWd", "secert", "tokn", "api_key", "key-passphrase", "pw"]
        {
            assert!(is_secret(name), "{name}");
        }
    }
}
