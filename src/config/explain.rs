//! The words of serde, turned into the words of an operator.

/// How far a word may be from a known one to be taken for a slip of the pen (Damerau-Levenshtein, 1 is equal).
const NEAR: f64 = 0.6;

/// Says what is wrong and what would be right.
pub(super) fn explain(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown field `") {
        return unknown(rest, "unknown key");
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        return unknown(rest, "unknown word");
    }
    match message.split_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            format!("expected {}", plain(expected))
        }
        _ => message.to_owned(),
    }
}

/// The known word that is nearest to `word`, when one is near.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(word, known, NEAR)
}

/// The same, with another likeness (1 is equal) that counts as near.
pub(super) fn nearest_within<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    near: f64,
) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::normalized_damerau_levenshtein(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= near)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `did you mean …`, or all that is known.
pub(super) fn suggest(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "nothing is known here".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// `rest` is `latness`, expected one of `lateness`, `interval``, as serde writes it after the opening backtick.
fn unknown(rest: &str, what: &str) -> String {
    let mut quoted = rest.split('`').step_by(2);
    let word = quoted.next().unwrap_or_default();
    let known: Vec<&str> = rest.split('`').skip(2).step_by(2).collect();
    format!("{what} `{word}`; {}", suggest(word, &known))
}

fn plain(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false",
        "a sequence" => "an array: [ … ], or [[ … ]] for tables",
        "f64" => "a number",
        "path string" => "a path",
        expected => expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_key_names_the_nearest_known_one() {
        let message = "unknown field `latness`, expected one of `name`, `lateness`, `interval`";
        assert_eq!(explain(message), "unknown key `latness`; did you mean `lateness`?");
    }

    #[test]
    fn unknown_key_that_resembles_nothing_lists_what_is_known() {
        let message = "unknown field `colour`, expected `regions`";
        assert_eq!(explain(message), "unknown key `colour`; known here: regions");
    }

    #[test]
    fn wrong_type_is_told_by_what_is_expected() {
        let message = "invalid type: string \"yes\", expected a boolean";
        assert_eq!(explain(message), "expected true or false");
    }
}
