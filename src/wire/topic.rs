//! Topic templates, MQTT filters, and ids inside topics.
//!
//! A template names the levels of a topic: `meters/{region}/{device}/{kind}`. A level is either
//! literal or one whole segment; one segment may be written `{name...}` and spans one level or
//! more, at the start, in the middle or at the end. Empty levels and a leading slash are real
//! levels, as in MQTT.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Most named segments that one template may have.
pub const MAX_SEGMENTS: usize = 8;

/// Longest topic or filter that MQTT can carry, in bytes.
pub const MAX_TOPIC: usize = 65_535;

/// A compiled topic template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    levels: Vec<Level>,
    names: Vec<Box<str>>,
    /// Position of the `{name...}` level.
    rest: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Level {
    Literal(Box<str>),
    /// Any one level; the number of the segment.
    One(usize),
    /// One level or more; the number of the segment.
    Rest(usize),
}

/// What is wrong with a topic template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Empty, too long, or with characters that brokers refuse.
    #[error("`{0}` is not a topic: it must have 1 to 65535 bytes and no control characters")]
    Topic(String),
    /// `+` or `#` in a level.
    #[error(
        "level `{0}` has a wildcard: name the level instead, `{{name}}` for one level or \
         `{{name...}}` for the rest"
    )]
    Wildcard(String),
    /// Braces that are not a whole level.
    #[error(
        "level `{0}` is not a segment: a segment is a whole level, `{{name}}` or `{{name...}}`"
    )]
    Segment(String),
    /// The same name twice.
    #[error("segment `{0}` occurs twice: each name may occur once")]
    Twice(String),
    /// More than one rest segment.
    #[error("`{{{0}...}}` is a second rest segment: only one may span several levels")]
    SecondRest(String),
    /// More than [`MAX_SEGMENTS`].
    #[error("more than {MAX_SEGMENTS} named segments: write literal levels where they do not vary")]
    TooMany,
}

/// The named segments of one topic, by their number in the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Segments<'t> {
    values: [&'t str; MAX_SEGMENTS],
}

impl<'t> Segments<'t> {
    /// The text of one segment; empty where there is none.
    pub fn get(&self, number: usize) -> &'t str {
        self.values.get(number).copied().unwrap_or_default()
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        if !is_sendable(text) {
            return Err(TemplateError::Topic(text.into()));
        }
        let mut template = Self { levels: Vec::new(), names: Vec::new(), rest: None };
        text.split('/').try_for_each(|level| template.push(level))?;
        Ok(template)
    }
}

impl Template {
    /// Number of the segment with this name.
    pub fn segment(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| &**known == name)
    }

    /// Names of the segments, in the order of the topic.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The named segments of `topic`, or `None` where it is not of this form. Allocates nothing.
    pub fn matches<'t>(&self, topic: &'t str) -> Option<Segments<'t>> {
        let mut segments = Segments::default();
        let front = self.rest.unwrap_or(self.levels.len());
        let mut left = Some(topic);
        for level in &self.levels[..front] {
            let (text, tail) = first_level(left?);
            level.take(text, &mut segments)?;
            left = tail;
        }
        let Some(rest) = self.rest else { return left.is_none().then_some(segments) };
        for level in self.levels[rest + 1..].iter().rev() {
            let (text, head) = last_level(left?);
            level.take(text, &mut segments)?;
            left = head;
        }
        self.levels[rest].take(left?, &mut segments)?;
        Some(segments)
    }

    /// Whether every topic of the form of `other` is of this form too.
    pub fn covers(&self, other: &Self) -> bool {
        let (least, needed) = (other.levels.len(), self.levels.len());
        let Some(rest) = self.rest else {
            return other.rest.is_none()
                && least == needed
                && self.levels.iter().zip(&other.levels).all(|(mine, level)| mine.takes(level));
        };
        // Levels before (and, from the end, after) the other's rest are what they are; further ones can be anything.
        let before = other.rest.unwrap_or(least);
        let after = other.rest.map_or(least, |rest| least - rest - 1);
        let (front, back) = (&self.levels[..rest], &self.levels[rest + 1..]);
        let fronts = other.levels[..before].iter().map(Some).chain(std::iter::repeat(None));
        let backs = other.levels[least - after..].iter().rev().map(Some);
        let backs = backs.chain(std::iter::repeat(None));
        let takes = |(mine, level): (&Level, Option<&Level>)| match level {
            Some(level) => mine.takes(level),
            None => !matches!(mine, Level::Literal(_)),
        };
        least >= needed
            && front.iter().zip(fronts).all(takes)
            && back.iter().rev().zip(backs).all(takes)
    }

    /// The narrowest MQTT filter that delivers every topic of this form: `{x}` becomes `+`, and a
    /// rest segment with all that follows it becomes `#`.
    pub fn filter(&self) -> String {
        let one = |level: &Level| match level {
            Level::Literal(text) => text.to_string(),
            Level::One(_) => "+".into(),
            Level::Rest(_) => "#".into(),
        };
        let end = self.rest.map_or(self.levels.len(), |rest| rest + 1);
        self.levels[..end].iter().map(one).collect::<Vec<_>>().join("/")
    }

    fn push(&mut self, text: &str) -> Result<(), TemplateError> {
        let level = if text.contains(['{', '}']) {
            self.named(text)?
        } else if text.contains(['+', '#']) {
            return Err(TemplateError::Wildcard(text.into()));
        } else {
            Level::Literal(text.into())
        };
        self.levels.push(level);
        Ok(())
    }

    fn named(&mut self, text: &str) -> Result<Level, TemplateError> {
        let inside = text.strip_prefix('{').and_then(|tail| tail.strip_suffix('}')).unwrap_or("");
        let (name, rest) = match inside.strip_suffix("...") {
            Some(name) => (name, true),
            None => (inside, false),
        };
        if name.is_empty() || name.contains(['{', '}', '.', '+', '#']) {
            return Err(TemplateError::Segment(text.into()));
        }
        self.name(name, rest)
    }

    fn name(&mut self, name: &str, rest: bool) -> Result<Level, TemplateError> {
        if self.segment(name).is_some() {
            return Err(TemplateError::Twice(name.into()));
        }
        if rest && self.rest.is_some() {
            return Err(TemplateError::SecondRest(name.into()));
        }
        let number = self.names.len();
        if number == MAX_SEGMENTS {
            return Err(TemplateError::TooMany);
        }
        self.names.push(name.into());
        if rest {
            self.rest = Some(self.levels.len());
            return Ok(Level::Rest(number));
        }
        Ok(Level::One(number))
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, level) in self.levels.iter().enumerate() {
            if position > 0 {
                f.write_str("/")?;
            }
            match level {
                Level::Literal(text) => f.write_str(text)?,
                Level::One(number) => write!(f, "{{{}}}", self.names[*number])?,
                Level::Rest(number) => write!(f, "{{{}...}}", self.names[*number])?,
            }
        }
        Ok(())
    }
}

impl Level {
    /// Whether it takes whatever `other` takes.
    fn takes(&self, other: &Self) -> bool {
        match self {
            Self::Literal(_) => self == other,
            Self::One(_) | Self::Rest(_) => true,
        }
    }

    /// Keeps the text of a segment; `None` where a literal level differs.
    fn take<'t>(&self, text: &'t str, segments: &mut Segments<'t>) -> Option<()> {
        match self {
            Self::Literal(literal) => (**literal == *text).then_some(()),
            Self::One(number) | Self::Rest(number) => {
                segments.values[*number] = text;
                Some(())
            }
        }
    }
}

/// The first level and the levels after it, `None` where there are none (which is not an empty
/// one).
///
/// Byte by byte: levels are too short for a vectorised search to pay.
#[inline]
fn first_level(topic: &str) -> (&str, Option<&str>) {
    match topic.bytes().position(|byte| byte == b'/') {
        Some(slash) => (&topic[..slash], Some(&topic[slash + 1..])),
        None => (topic, None),
    }
}

#[inline]
fn last_level(topic: &str) -> (&str, Option<&str>) {
    match topic.bytes().rposition(|byte| byte == b'/') {
        Some(slash) => (&topic[slash + 1..], Some(&topic[..slash])),
        None => (topic, None),
    }
}

/// Whether a broker takes this text, as a topic or a name: MQTT 5, 1.5.4, lets it close the connection on others.
pub fn is_sendable(text: &str) -> bool {
    (1..=MAX_TOPIC).contains(&text.len()) && !text.contains(is_refused)
}

/// A valid MQTT topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a>(&'a str);

/// What is wrong with an MQTT filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Empty, too long, or with characters that brokers refuse.
    #[error("`{0}` is not a filter: it must have 1 to 65535 bytes and no control characters")]
    Text(String),
    /// `+` beside other characters.
    #[error("`{0}` is not a filter: `+` must be a whole level, as in `meters/+/data`")]
    Plus(String),
    /// `#` beside other characters or before the end.
    #[error("`{0}` is not a filter: `#` must be the whole last level, as in `meters/#`")]
    Hash(String),
}

impl<'a> Filter<'a> {
    /// Checks a filter (MQTT 5, 4.7).
    pub fn new(text: &'a str) -> Result<Self, FilterError> {
        if !is_sendable(text) {
            return Err(FilterError::Text(text.into()));
        }
        if text.split('/').any(|level| level.contains('+') && level != "+") {
            return Err(FilterError::Plus(text.into()));
        }
        let before = text.strip_suffix("/#").unwrap_or(if text == "#" { "" } else { text });
        if before.contains('#') {
            return Err(FilterError::Hash(text.into()));
        }
        Ok(Self(text))
    }

    /// Whether a broker delivers `topic` for this filter. A leading wildcard does not reach `$`
    /// topics.
    pub fn matches(self, topic: &str) -> bool {
        if topic.starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        let mut levels = topic.split('/');
        for wanted in self.0.split('/') {
            if wanted == "#" {
                return true;
            }
            match levels.next() {
                Some(level) if wanted == "+" || wanted == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }

    /// Whether some topic is both delivered for this filter and of the form of `template`.
    pub fn overlaps(self, template: &Template) -> bool {
        let first = template.levels.first();
        let dollar = |level: &Level| matches!(level, Level::Literal(text) if text.starts_with('$'));
        if first.is_some_and(dollar) && self.0.starts_with(['+', '#']) {
            return false;
        }
        let levels: Vec<&str> = self.0.split('/').collect();
        overlap(&levels, &template.levels)
    }
}

fn overlap(filter: &[&str], template: &[Level]) -> bool {
    match (filter.split_first(), template.split_first()) {
        (Some((&"#", _)), _) | (None, None) => true,
        (Some((_, filter)), Some((Level::Rest(_), after))) => {
            overlap(filter, after) || overlap(filter, template)
        }
        (Some((wanted, filter)), Some((level, after))) => {
            let fits =
                *wanted == "+" || !matches!(level, Level::Literal(text) if **text != **wanted);
            fits && overlap(filter, after)
        }
        _ => false,
    }
}

/// An id as one level of an outgoing topic.
///
/// `/`, `+`, `#`, `%`, control characters and Unicode's non-characters (brokers refuse them) become
/// `%` and two upper-case hexadecimal digits for each byte of their UTF-8; an empty id becomes a
/// lone `%`. Everything else stands for itself. The form is canonical: [`unescape`] gives the id
/// back and refuses every other spelling.
pub fn escape(id: &str) -> Cow<'_, str> {
    if id.is_empty() {
        return "%".into();
    }
    if !id.contains(is_escaped) {
        return id.into();
    }
    let mut escaped = String::with_capacity(id.len() + 8);
    for character in id.chars() {
        if is_escaped(character) {
            push_escaped(&mut escaped, character);
        } else {
            escaped.push(character);
        }
    }
    escaped.into()
}

/// The id that [`escape`] wrote as `level`, or `None` where it wrote no such thing.
pub fn unescape(level: &str) -> Option<Cow<'_, str>> {
    if level == "%" {
        return Some("".into());
    }
    if !level.contains('%') {
        return (escape(level) == level).then_some(level.into());
    }
    let mut bytes = Vec::with_capacity(level.len());
    let mut left = level.as_bytes();
    while let [first, tail @ ..] = left {
        if *first == b'%' {
            let digits = tail.get(..2)?;
            bytes.push(hex(digits[0])? << 4 | hex(digits[1])?);
            left = &tail[2..];
        } else {
            bytes.push(*first);
            left = tail;
        }
    }
    let id = String::from_utf8(bytes).ok()?;
    (escape(&id) == level).then_some(id.into())
}

fn is_escaped(character: char) -> bool {
    matches!(character, '/' | '+' | '#' | '%') || is_refused(character)
}

fn is_refused(character: char) -> bool {
    let code = u32::from(character);
    character.is_control() || (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

fn push_escaped(escaped: &mut String, character: char) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        escaped.push('%');
        escaped.push(char::from(DIGITS[usize::from(byte >> 4)]));
        escaped.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn template(text: &str) -> Template {
        text.parse().unwrap()
    }

    fn named(text: &str, topic: &str) -> Option<Vec<(String, String)>> {
        let template = template(text);
        let segments = template.matches(topic)?;
        let pair = |(number, name): (usize, &str)| (name.into(), segments.get(number).into());
        Some(template.names().enumerate().map(pair).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        Some(pairs.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect())
    }

    #[test]
    fn named_segments_are_whole_levels() {
        let text = "meters/{region}/{device}/{kind}";
        let all = pairs(&[("region", "north"), ("device", "m 1"), ("kind", "")]);
        assert_eq!(named(text, "meters/north/m 1/"), all);
        assert_eq!(named(text, "meters/north/m1"), None);
        assert_eq!(named(text, "meters/north/m1/x/y"), None);
        assert_eq!(named(text, "/meters/north/m1/x"), None);
        assert_eq!(named(text, "Meters/north/m1/x"), None);
    }

    #[test]
    fn a_rest_segment_spans_one_level_or_more_wherever_it_stands() {
        assert_eq!(named("a/{r...}", "a/b/c"), pairs(&[("r", "b/c")]));
        assert_eq!(named("a/{r...}", "a/"), pairs(&[("r", "")]));
        assert_eq!(named("a/{r...}", "a"), None);
        assert_eq!(named("{r...}/online", "x/y/online"), pairs(&[("r", "x/y")]));
        assert_eq!(named("{r...}/online", "/online"), pairs(&[("r", "")]));
        assert_eq!(named("{r...}/online", "online"), None);
        let middle = pairs(&[("x", "1"), ("r", "b//c"), ("y", "2")]);
        assert_eq!(named("{x}/{r...}/{y}", "1/b//c/2"), middle);
        assert_eq!(named("{x}/{r...}/{y}", "1/2"), None);
    }

    #[test]
    fn empty_levels_and_a_leading_slash_are_levels() {
        assert_eq!(
            named("te/{a}/{b}///m/{t}", "te/device/m7///m/energy").map(|all| all.len()),
            Some(3)
        );
        assert_eq!(named("/neuron/{x}", "/neuron/a"), pairs(&[("x", "a")]));
        assert_eq!(named("/neuron/{x}", "neuron/a"), None);
    }

    #[test]
    fn a_bad_template_is_refused_with_its_level() {
        let error = |text: &str| text.parse::<Template>().unwrap_err();
        assert_eq!(error(""), TemplateError::Topic("".into()));
        assert_eq!(error("a\0"), TemplateError::Topic("a\0".into()));
        assert_eq!(error("a/+/b"), TemplateError::Wildcard("+".into()));
        assert_eq!(error("a/dev-{x}"), TemplateError::Segment("dev-{x}".into()));
        assert_eq!(error("a/{}"), TemplateError::Segment("{}".into()));
        assert_eq!(error("a/{...}"), TemplateError::Segment("{...}".into()));
        assert_eq!(error("a/{x"), TemplateError::Segment("{x".into()));
        assert_eq!(error("{x}/{x}"), TemplateError::Twice("x".into()));
        assert_eq!(error("{x...}/{y...}"), TemplateError::SecondRest("y".into()));
        assert_eq!(error("{1}/{2}/{3}/{4}/{5}/{6}/{7}/{8}/{9}"), TemplateError::TooMany);
    }

    #[test]
    fn the_filter_of_a_template_ends_where_its_rest_begins() {
        assert_eq!(template("meters/{r}/{d}/{k}").filter(), "meters/+/+/+");
        assert_eq!(template("N/{p}/{rest...}").filter(), "N/+/#");
        assert_eq!(template("a/{rest...}/b").filter(), "a/#");
        assert_eq!(template("{rest...}/online").filter(), "#");
        assert_eq!(template("/a//{x}").filter(), "/a//+");
    }

    #[test]
    fn filters_are_checked_as_mqtt_has_them() {
        for good in ["#", "+", "/", "a/+/b", "a/#", "/#", "+/#", "$SYS/#", "a//b"] {
            assert!(Filter::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a#", "a/#/b", "#/a", "a+", "a/b+/c", "##", "a\0", "+a/#"] {
            assert!(Filter::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn filters_match_topics_as_a_broker_does() {
        let matches = |filter, topic| Filter::new(filter).unwrap().matches(topic);
        assert!(matches("a/+/c", "a/b/c") && matches("a/+/c", "a//c"));
        assert!(matches("a/#", "a") && matches("a/#", "a/") && matches("a/#", "a/b/c"));
        assert!(matches("#", "/a") && matches("+/+", "/a") && matches("/+", "/a"));
        assert!(!matches("+", "/a") && !matches("a/+", "a") && !matches("a/b", "a/b/c"));
        assert!(
            !matches("#", "$SYS/x") && !matches("+/x", "$SYS/x") && matches("$SYS/#", "$SYS/x")
        );
    }

    #[test]
    fn a_filter_that_can_never_match_the_template_is_seen() {
        let overlaps = |filter, text| Filter::new(filter).unwrap().overlaps(&template(text));
        assert!(overlaps("meters/#", "meters/{r}/{d}") && overlaps("+/north/+", "meters/{r}/{d}"));
        assert!(!overlaps("meters/+", "meters/{r}/{d}") && !overlaps("meter/#", "meters/{r}/{d}"));
        assert!(overlaps("x/y/z/online", "{p...}/online") && !overlaps("online", "{p...}/online"));
        assert!(overlaps("a/+/+/b", "a/{r...}/b") && !overlaps("a/b", "a/{r...}/b"));
        assert!(!overlaps("#", "$aws/{x}") && overlaps("$aws/#", "$aws/{x}"));
        assert!(overlaps("a/#", "a"));
    }

    #[test]
    fn ids_are_escaped_in_one_reversible_way() {
        assert_eq!(escape("m-0003"), "m-0003");
        assert_eq!(escape("Zähler 7"), "Zähler 7");
        assert_eq!(escape("a/b+c#d%e\0\u{85}\u{ffff}"), "a%2Fb%2Bc%23d%25e%00%C2%85%EF%BF%BF");
        assert_eq!(escape(""), "%");
        for other in ["%2f", "%41", "%", "a%", "a%2", "a/b", "%+1", "%FF", "%2F%", "\u{7f}"] {
            let back = unescape(other);
            assert!(other == "%" || back.is_none(), "{other} gave {back:?}");
        }
    }

    /// Every way to lay the levels of a template over those of a topic, tried one after the other.
    fn naive(template: &[Level], topic: &[&str]) -> Option<Vec<String>> {
        let Some((first, after)) = template.split_first() else {
            return topic.is_empty().then(Vec::new);
        };
        let spans = if matches!(first, Level::Rest(_)) { 1..=topic.len() } else { 1..=1 };
        spans.filter(|span| *span <= topic.len()).find_map(|span| {
            let text = topic[..span].join("/");
            let found = naive(after, &topic[span..])?;
            match first {
                Level::Literal(literal) => (**literal == *text).then_some(found),
                _ => Some([vec![text], found].concat()),
            }
        })
    }

    fn any_template(most: usize) -> impl Strategy<Value = Template> {
        let level = prop_oneof!["[ab]?", Just("{}".to_owned()), Just("{...}".to_owned())];
        let levels = prop::collection::vec(level, 1..=most);
        levels.prop_filter_map("not a template", |levels| {
            let name =
                |(number, level): (usize, String)| level.replacen('{', &format!("{{s{number}"), 1);
            let text: Vec<String> = levels.into_iter().enumerate().map(name).collect();
            text.join("/").parse().ok()
        })
    }

    proptest! {
        #[test]
        fn a_template_matches_what_a_naive_reading_does(
            template in any_template(5), levels in prop::collection::vec("[ab]?", 1..7),
        ) {
            let topic = levels.join("/");
            let levels: Vec<&str> = topic.split('/').collect();
            let found = template.matches(&topic).map(|segments| {
                (0..template.names.len()).map(|n| segments.get(n).to_owned()).collect::<Vec<_>>()
            });
            prop_assert_eq!(&found, &naive(&template.levels, &levels));
            if found.is_some() && !topic.is_empty() {
                let filter = template.filter();
                prop_assert!(Filter::new(&filter).unwrap().matches(&topic));
                prop_assert!(Filter::new(&filter).unwrap().overlaps(&template));
            }
            prop_assert_eq!(template.to_string().parse::<Template>(), Ok(template));
        }

        #[test]
        fn an_overlap_is_exactly_a_common_topic(
            template in any_template(3), filter in prop::collection::vec("[ab+]?", 1..=3), hash: bool,
        ) {
            let text = filter.join("/") + if hash { "/#" } else { "" };
            prop_assume!(!text.is_empty());
            let filter = Filter::new(&text).unwrap();
            // With three levels each, a common topic of at most six levels exists if there is any.
            let alphabet = ["", "a", "b"];
            let common = (1..=6).any(|length| (0..3_usize.pow(length)).any(|number| {
                let level = |place| alphabet[number / 3_usize.pow(place) % 3];
                let topic = (0..length).map(level).collect::<Vec<_>>().join("/");
                filter.matches(&topic) && template.matches(&topic).is_some()
            }));
            prop_assert_eq!(filter.overlaps(&template), common);
        }

        #[test]
        fn an_escaped_id_is_one_level_and_comes_back(id in any::<String>()) {
            let escaped = escape(&id);
            prop_assert!(!escaped.is_empty() && !escaped.contains(is_forbidden));
            let back = unescape(&escaped);
            prop_assert_eq!(back.as_deref(), Some(id.as_str()));
        }

        #[test]
        fn only_the_canonical_spelling_is_read(level in "[a%/+#0-9A-F\u{7f}é]{0,8}") {
            if let Some(id) = unescape(&level) {
                prop_assert_eq!(escape(&id), level.as_str());
            }
        }
    }

    fn is_forbidden(character: char) -> bool {
        character.is_control() || matches!(character, '/' | '+' | '#')
    }
}
