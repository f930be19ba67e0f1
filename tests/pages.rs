//! The manual pages of the package: all that the documents say is in them, and nothing is taken for a request.

#![cfg(feature = "shell")]
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../packaging/pages/roff.rs"]
mod roff;

use std::io::Write;
use std::process::{Command, Stdio};

const CONFIGURATION: &str = include_str!("../docs/configuration.md");
const OPERATIONS: &str = include_str!("../docs/operations.md");

/// What a reader sees, without the breaks of lines.
fn shown(page: &str) -> Option<String> {
    let mut groff = Command::new("groff")
        .args(["-man", "-ww", "-Tutf8", "-Kutf8", "-P-c", "-P-bou", "-rLL=999n", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    groff.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let ended = groff.wait_with_output().unwrap();
    let complaints = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(complaints, "", "groff complains");
    let text = String::from_utf8(ended.stdout).unwrap();
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn every_option_is_in_the_manual_with_what_is_said_of_it() {
    let page = roff::title("tidegate.toml", 5, "configuration") + &roff::body(CONFIGURATION);
    let rows =
        CONFIGURATION.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let mut seen = 0;
    for cells in rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()) {
        let [option, _, _, _, meaning] = cells[..] else { continue };
        let option = option.trim_end_matches('`').replace('-', "\\-");
        let entry = format!("\n.TP\n\\fB{option}\\fR  (");
        assert!(page.contains(&entry), "{option} is missing");
        let words = meaning.split([' ', '`', '(', ')', '[', ']', '*']).next().unwrap_or_default();
        assert!(
            page.contains(&words.replace('-', "\\-").replace('\'', "\\(aq")),
            "{option}: {words}"
        );
        seen += 1;
    }
    assert!(seen > 90, "only {seen} options were found");
    for heading in CONFIGURATION.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(page.contains(&format!(".SH \"{}\"", heading.to_uppercase())), "{heading}");
    }
    let Some(shown) = shown(&page) else {
        println!("skipped: no groff to read the manual page with");
        return;
    };
    for said in ["commit-interval (duration; 0 to 10 min; default: \"10s\")", "'", "[[SOURCE]]"] {
        assert!(shown.contains(said), "{said:?} is not shown");
    }
}

#[test]
fn exit_codes_are_those_of_the_operations_manual() {
    let codes = roff::section(OPERATIONS, "## Exit codes").unwrap();
    let page = roff::body(&codes);
    for code in ["0", "64", "65", "66", "69", "74", "78"] {
        assert!(page.contains(&format!(".TP\n{code}\n")), "{code} is missing in {page}");
    }
    assert!(roff::section(OPERATIONS, "## Nothing of the kind").is_none());
}

#[test]
fn text_is_not_taken_for_requests() {
    let page = roff::body("Two lines:\n.TP is one, \\n none, it's - so.\n\n    .nf\n");
    assert_eq!(
        page,
        ".PP\nTwo lines: .TP is one, \\en none, it\\(aqs \\- so.\n.PP\n.RS 4\n.nf\n\\&.nf\n.fi\n.RE\n"
    );
}
