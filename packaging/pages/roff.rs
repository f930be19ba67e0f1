//! Markdown as we write it into the language of manual pages.
//!
//! A table becomes a list: what its first column names, then the other columns. In a table of options the unit, the range
//! and the default stand behind the name, and the meaning follows.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The first lines of a page that describes `what` in a section of the manual.
pub(crate) fn title(name: &str, section: u8, what: &str) -> String {
    let upper = name.to_uppercase();
    format!(
        ".TH \"{upper}\" {section} \"\" \"tidegate {}\"\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION"),
        escape(name),
        escape(what),
    )
}

/// What stands below a heading of a document, up to the next of any level.
pub(crate) fn section(markdown: &str, heading: &str) -> Option<String> {
    let mut lines = markdown.lines().skip_while(|line| *line != heading);
    lines.next()?;
    Some(lines.take_while(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect())
}

/// A document without its title.
pub(crate) fn body(markdown: &str) -> String {
    let mut page = Page::default();
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.take(event);
    }
    page.out
}

#[derive(Debug, Default)]
struct Page {
    out: String,
    /// The text of the paragraph, heading, item or cell that is open.
    text: String,
    /// Of the table that is open: its heading, and the row so far.
    heading: Vec<String>,
    row: Vec<String>,
    in_item: bool,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text += &escape(&text),
            Event::Code(code) => self.text += &format!("\\fB{}\\fR", escape(&code)),
            Event::SoftBreak | Event::HardBreak => self.text.push(' '),
            other => panic!("the documents have nothing of the kind: {other:?}"),
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Strong => self.text += "\\fB",
            Tag::Emphasis => self.text += "\\fI",
            Tag::Item => self.in_item = true,
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => self.heading_ends(level),
            TagEnd::Strong | TagEnd::Emphasis => self.text += "\\fR",
            TagEnd::CodeBlock => {
                let text = self.text();
                self.out += &format!(".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", lines(text.trim_end()));
            }
            TagEnd::Paragraph if !self.in_item => {
                let text = self.text();
                self.out += &format!(".PP\n{}\n", lines(&text));
            }
            TagEnd::Item => {
                self.in_item = false;
                let text = self.text();
                self.out += &format!(".IP \\(bu 2\n{}\n", lines(&text));
            }
            TagEnd::TableCell => {
                let cell = self.text();
                self.row.push(cell);
            }
            TagEnd::TableHead => self.heading = std::mem::take(&mut self.row),
            TagEnd::TableRow => {
                let row = std::mem::take(&mut self.row);
                self.out += &entry(&self.heading, &row);
            }
            _ => {}
        }
    }

    /// The title of a document is that of the page.
    fn heading_ends(&mut self, level: HeadingLevel) {
        let text = self.text();
        match level {
            HeadingLevel::H1 => {}
            HeadingLevel::H2 => self.out += &format!(".SH \"{}\"\n", text.to_uppercase()),
            _ => self.out += &format!(".SS \"{text}\"\n"),
        }
    }

    fn text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// A row of a table as an entry of a list.
fn entry(heading: &[String], row: &[String]) -> String {
    let Some((name, cells)) = row.split_first() else { return String::new() };
    if heading.first().is_some_and(|first| first == "option") {
        let [unit, range, default, meaning] = cells else { panic!("{row:?}: not an option") };
        let mut about = vec![unit.clone()];
        about.extend(Some(range.clone()).filter(|range| !range.is_empty()));
        about.extend(Some(format!("default: {default}")).filter(|_| !default.is_empty()));
        return format!(".TP\n{name}  ({})\n{}\n", about.join("; "), lines(meaning));
    }
    let cells: Vec<_> = cells.iter().filter(|cell| !cell.is_empty()).cloned().collect();
    format!(".TP\n{name}\n{}\n", lines(&cells.join(": ")))
}

/// Text, with what the language would take for its own written so that it does not.
fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

/// Lines of text, of which none begins like a request.
fn lines(text: &str) -> String {
    let guarded = text.lines().map(|line| match line.starts_with('.') {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    guarded.collect::<Vec<_>>().join("\n")
}
