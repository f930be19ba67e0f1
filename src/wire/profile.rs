//! A source, compiled: how to read one kind of device, without code.

use crate::ids::SourceId;
pub use crate::wire::pointer::PointerError;
use crate::wire::pointer::Pointers;
pub use crate::wire::reference::{
    Reference, ReferenceError, TimeFormat, TimeFormatError, TimeFormatName, ZoneError,
};
use crate::wire::scalar::Scalar;
use crate::wire::topic::{Filter, FilterError, Template, TemplateError};

/// True where the referenced scalar, as text, is one of `equals`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What is compared.
    pub from: Reference,
    /// The values that make it true; numbers and booleans are compared as JSON writes them. What is
    /// absent or `null` equals nothing.
    pub equals: Vec<String>,
}

/// One metric of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricField {
    /// Where the value is.
    pub from: Reference,
    /// Factor applied to it; finite and not 0.
    pub scale: f64,
}

/// A source as configured, still to be checked and compiled by [`Profile::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSpec {
    /// Its name.
    pub source: SourceId,
    /// MQTT filters to subscribe to; empty: derived from the topic template.
    pub subscribe: Vec<String>,
    /// Topic template, `meters/{region}/{device}/{kind}`.
    pub topic: String,
    /// The device (the key of its windows).
    pub device: Reference,
    /// The region.
    pub region: Reference,
    /// The device time; `None`: the device sends none, and the arrival time is the event time.
    pub time: Option<(Reference, TimeFormat)>,
    /// Which records are heartbeats.
    pub heartbeat: Option<Condition>,
    /// Which records mark their partition idle (replay with `compat = "flink"` only).
    pub idle: Option<Condition>,
    /// What is ignored by rule: the whole message where the topic decides, else each item by
    /// itself.
    pub ignore: Option<Condition>,
    /// JSON Pointer of an array of samples, or of a single one; `None`: the payload is the one
    /// item.
    pub items: Option<String>,
    /// The metrics, in configured order.
    pub metrics: Vec<MetricField>,
}

/// What is wrong with a source's description.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// The topic template.
    #[error("topic: {0}")]
    Topic(#[from] TemplateError),
    /// A filter that MQTT does not allow.
    #[error("subscribe: {0}")]
    Filter(#[from] FilterError),
    /// A filter whose messages could never be read.
    #[error(
        "subscribe: `{filter}` delivers no topic of the form `{template}`: correct one of them, or \
         leave `subscribe` out to have it derived"
    )]
    NeverMatches {
        /// The filter.
        filter: String,
        /// The topic template.
        template: String,
    },
    /// A segment that the template does not name.
    #[error("{field}: the topic template has no segment `{name}`; it has {known}")]
    Segment {
        /// Which field refers to it.
        field: String,
        /// The unknown name.
        name: String,
        /// The names there are, as a list to read.
        known: String,
    },
    /// A pointer that is not one.
    #[error("{field}: `{pointer}` is not a JSON Pointer: {error}")]
    Pointer {
        /// Which field has it.
        field: String,
        /// As written.
        pointer: String,
        /// What is wrong with it.
        error: PointerError,
    },
    /// A factor that leaves no usable value.
    #[error("{field}: scale {scale} leaves no value: it must be a finite number other than 0")]
    Scale {
        /// Which metric.
        field: String,
        /// The factor.
        scale: f64,
    },
    /// A constant that its field cannot use.
    #[error("{field}: the constant `{text}` is not {wanted}")]
    Constant {
        /// Which field has it.
        field: String,
        /// The constant.
        text: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A condition that can never be true.
    #[error(
        "{0}: `equals` is empty, so this is never true: name the values, or leave the condition out"
    )]
    NeverTrue(String),
}

/// A compiled source. See [`crate::wire::decode`] for reading with it.
#[derive(Debug)]
pub struct Profile {
    source: SourceId,
    filters: Vec<String>,
    pub(super) template: Template,
    pub(super) fields: Fields,
    pub(super) device: Place,
    pub(super) region: Place,
    pub(super) time: Option<(Place, TimeFormat)>,
    pub(super) heartbeat: Option<Test>,
    pub(super) idle: Option<Test>,
    pub(super) ignore: Option<Test>,
    pub(super) metrics: Vec<Metric>,
}

/// What is wanted of the payload.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// Of the payload.
    pub(super) root: Pointers,
    /// Of each item; empty where the payload is the item.
    pub(super) item: Pointers,
    /// Slot of the items among those of the payload.
    pub(super) items: Option<usize>,
}

/// A reference, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Number of a topic segment.
    Topic(usize),
    /// Slot in [`Fields::root`].
    Root(usize),
    /// Slot in [`Fields::item`].
    Item(usize),
    /// The text itself.
    Const(Box<str>),
}

/// A condition, resolved.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) from: Place,
    pub(super) equals: Vec<String>,
}

/// A metric, resolved.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) from: Place,
    pub(super) scale: f64,
}

impl Profile {
    /// Checks and compiles.
    ///
    /// # Errors
    /// The first thing that is wrong, with the field, the value and what would be right.
    pub fn new(spec: ProfileSpec) -> Result<Self, ProfileError> {
        let template: Template = spec.topic.parse()?;
        let filters = filters(spec.subscribe, &template)?;
        let mut compiler = Compiler::new(&template, spec.items.as_deref())?;
        let device = compiler.id("device", &spec.device)?;
        let region = compiler.id("region", &spec.region)?;
        let time = compiler.time(spec.time)?;
        let heartbeat = compiler.test("heartbeat", spec.heartbeat)?;
        let idle = compiler.test("idle", spec.idle)?;
        let ignore = compiler.test("ignore", spec.ignore)?;
        let metrics = compiler.metrics(&spec.metrics)?;
        let fields = compiler.fields;
        let source = spec.source;
        Ok(Self {
            source,
            filters,
            template,
            fields,
            device,
            region,
            time,
            heartbeat,
            idle,
            ignore,
            metrics,
        })
    }

    /// The name of the source.
    pub fn source(&self) -> &SourceId {
        &self.source
    }

    /// Whether a topic is one of this source's.
    pub fn matches(&self, topic: &str) -> bool {
        self.template.matches(topic).is_some()
    }

    /// Whether some records are heartbeats, and the others may be old.
    pub fn declares_heartbeat(&self) -> bool {
        self.heartbeat.is_some()
    }

    /// Whether devices send times; where they do not, the arrival time is the event time.
    pub fn declares_time(&self) -> bool {
        self.time.is_some()
    }

    /// Whether what devices send is how long they have been running.
    pub fn declares_uptime(&self) -> bool {
        let format = self.time.as_ref().map(|(_, format)| format);
        matches!(format, Some(TimeFormat::UptimeS | TimeFormat::UptimeMs))
    }

    /// MQTT filters to subscribe to; at least one.
    pub fn filters(&self) -> &[String] {
        &self.filters
    }
}

impl Fields {
    /// Whether anything of the payload is read.
    pub(super) fn any(&self) -> bool {
        !(self.root.is_empty() && self.item.is_empty())
    }
}

fn filters(subscribe: Vec<String>, template: &Template) -> Result<Vec<String>, ProfileError> {
    if subscribe.is_empty() {
        return Ok(vec![template.filter()]);
    }
    for filter in &subscribe {
        if !Filter::new(filter)?.overlaps(template) {
            let (filter, template) = (filter.clone(), template.to_string());
            return Err(ProfileError::NeverMatches { filter, template });
        }
    }
    Ok(subscribe)
}

struct Compiler<'t> {
    template: &'t Template,
    fields: Fields,
}

impl<'t> Compiler<'t> {
    fn new(template: &'t Template, items: Option<&str>) -> Result<Self, ProfileError> {
        let mut fields = Fields::default();
        fields.items = items
            .map(|pointer| {
                fields.root.insert(pointer).map_err(|error| bad_pointer("items", pointer, error))
            })
            .transpose()?;
        Ok(Self { template, fields })
    }

    fn place(&mut self, field: &str, from: &Reference) -> Result<Place, ProfileError> {
        let named = |pointer| move |error| bad_pointer(field, pointer, error);
        match from {
            Reference::Const(text) => Ok(Place::Const(text.as_str().into())),
            Reference::Topic(name) => self
                .template
                .segment(name)
                .map(Place::Topic)
                .ok_or_else(|| unknown_segment(field, name, self.template)),
            Reference::Item(pointer) if self.fields.items.is_some() => {
                self.fields.item.insert(pointer).map(Place::Item).map_err(named(pointer))
            }
            Reference::Item(pointer) | Reference::Root(pointer) => {
                self.fields.root.insert(pointer).map(Place::Root).map_err(named(pointer))
            }
        }
    }

    fn id(&mut self, field: &str, from: &Reference) -> Result<Place, ProfileError> {
        let usable = |text: &str| Scalar::Text(text).id().is_ok();
        constant(field, from, usable, "an id: it must have 1 to 1024 bytes")?;
        self.place(field, from)
    }

    fn time(
        &mut self,
        time: Option<(Reference, TimeFormat)>,
    ) -> Result<Option<(Place, TimeFormat)>, ProfileError> {
        let Some((from, format)) = time else { return Ok(None) };
        let usable = |text: &str| matches!(Scalar::Text(text).time(&format), Ok(Some(_)));
        constant("time", &from, usable, "a time in this format")?;
        Ok(Some((self.place("time", &from)?, format)))
    }

    fn test(
        &mut self,
        field: &str,
        condition: Option<Condition>,
    ) -> Result<Option<Test>, ProfileError> {
        let Some(Condition { from, equals }) = condition else { return Ok(None) };
        if equals.is_empty() {
            return Err(ProfileError::NeverTrue(field.into()));
        }
        Ok(Some(Test { from: self.place(field, &from)?, equals }))
    }

    fn metrics(&mut self, metrics: &[MetricField]) -> Result<Vec<Metric>, ProfileError> {
        let numbered = metrics.iter().enumerate();
        numbered
            .map(|(index, metric)| self.metric(&format!("metric {}", index + 1), metric))
            .collect()
    }

    fn metric(&mut self, field: &str, metric: &MetricField) -> Result<Metric, ProfileError> {
        let scale = metric.scale;
        if !scale.is_finite() || scale == 0.0 {
            return Err(ProfileError::Scale { field: field.into(), scale });
        }
        let usable = |text: &str| matches!(Scalar::Text(text).value(scale), Ok(Some(_)));
        constant(field, &metric.from, usable, "a finite number")?;
        Ok(Metric { from: self.place(field, &metric.from)?, scale })
    }
}

fn constant(
    field: &str,
    from: &Reference,
    usable: impl Fn(&str) -> bool,
    wanted: &'static str,
) -> Result<(), ProfileError> {
    match from {
        Reference::Const(text) if !usable(text) => {
            Err(ProfileError::Constant { field: field.into(), text: text.clone(), wanted })
        }
        _ => Ok(()),
    }
}

fn bad_pointer(field: &str, pointer: &str, error: PointerError) -> ProfileError {
    ProfileError::Pointer { field: field.into(), pointer: pointer.into(), error }
}

fn unknown_segment(field: &str, name: &str, template: &Template) -> ProfileError {
    let names: Vec<String> = template.names().map(|name| format!("`{name}`")).collect();
    let known = if names.is_empty() { "none".into() } else { names.join(", ") };
    ProfileError::Segment { field: field.into(), name: name.into(), known }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::timestamp::Zone;

    fn spec() -> ProfileSpec {
        ProfileSpec {
            source: "meters".into(),
            subscribe: Vec::new(),
            topic: "meters/{region}/{device}/{kind}".into(),
            device: Reference::Topic("device".into()),
            region: Reference::Topic("region".into()),
            time: Some((Reference::Item("/ts".into()), TimeFormat::EpochMs)),
            heartbeat: None,
            idle: None,
            ignore: None,
            items: None,
            metrics: vec![MetricField { from: Reference::Item("/power".into()), scale: 1.0 }],
        }
    }

    fn refused(change: impl FnOnce(&mut ProfileSpec)) -> String {
        let mut spec = spec();
        change(&mut spec);
        Profile::new(spec).unwrap_err().to_string()
    }

    #[test]
    fn references_are_written_in_four_forms_and_come_back() {
        for (text, reference) in [
            ("topic:device", Reference::Topic("device".into())),
            ("", Reference::Item("".into())),
            ("/em:0/a~1b", Reference::Item("/em:0/a~1b".into())),
            ("root:", Reference::Root("".into())),
            ("root:/id", Reference::Root("/id".into())),
            ("const:", Reference::Const("".into())),
            ("const:a:b", Reference::Const("a:b".into())),
        ] {
            assert_eq!(text.parse(), Ok(reference.clone()), "{text}");
            assert_eq!(reference.to_string(), text);
        }
    }

    #[test]
    fn a_text_that_is_no_reference_says_what_would_be_one() {
        let error = |text: &str| text.parse::<Reference>().unwrap_err().to_string();
        assert!(error("power").starts_with("`power` is not a reference: write `topic:name`"));
        assert!(error("topic:").contains("not a reference"));
        assert!(error("Topic:x").contains("not a reference"));
        assert!(error("root:id").starts_with("`id` is not a JSON Pointer: a JSON Pointer starts"));
        assert!(error("/a~b").contains("`~` is written `~0`"));
    }

    #[test]
    fn time_formats_have_names() {
        for (name, format) in TimeFormatName::ALL {
            assert_eq!(name.parse(), Ok(format));
        }
        let error = "iso".parse::<TimeFormatName>().unwrap_err().to_string();
        assert_eq!(error, "`iso` is not a time format");
    }

    #[test]
    fn a_zone_is_where_local_times_are_and_nowhere_else() {
        let zone = || Zone::named("Europe/Amsterdam");
        for (name, format) in TimeFormatName::ALL {
            let local = name.starts_with("local");
            assert_eq!(format.with(None).is_ok(), !local, "{name}");
            assert_eq!(format.with(zone()).is_ok(), local || name == "auto", "{name}");
        }
        assert_eq!(TimeFormatName::Auto.with(None), Ok(TimeFormat::Auto(None)));
        assert_eq!(TimeFormatName::Auto.with(zone()), Ok(TimeFormat::Auto(zone())));
    }

    #[test]
    fn the_filter_is_derived_or_checked() {
        assert_eq!(Profile::new(spec()).unwrap().filters(), ["meters/+/+/+"]);
        let subscribe = vec!["meters/north/#".to_owned()];
        let own = Profile::new(ProfileSpec { subscribe: subscribe.clone(), ..spec() }).unwrap();
        assert_eq!(own.filters(), subscribe);
        assert!(
            refused(|spec| spec.subscribe = vec!["a/#/b".into()])
                .contains("`#` must be the whole last")
        );
        let never = refused(|spec| spec.subscribe = vec!["meter/#".into()]);
        assert!(
            never
                .starts_with("subscribe: `meter/#` delivers no topic of the form `meters/{region}")
        );
    }

    #[test]
    fn whatever_is_wrong_is_named_with_its_field() {
        let unknown = refused(|spec| spec.device = Reference::Topic("dev".into()));
        let expected =
            "device: the topic template has no segment `dev`; it has `region`, `device`, `kind`";
        assert_eq!(unknown, expected);
        let pointer = refused(|spec| spec.metrics[0].from = Reference::Item("power".into()));
        assert!(pointer.starts_with("metric 1: `power` is not a JSON Pointer"));
        assert!(refused(|spec| spec.items = Some("x".into())).starts_with("items: `x`"));
        assert!(
            refused(|spec| spec.region = Reference::Root("~".into())).starts_with("region: `~`")
        );
        assert!(
            refused(|spec| spec.topic = "a/+".into())
                .starts_with("topic: level `+` has a wildcard")
        );
    }

    #[test]
    fn values_that_can_never_be_used_are_refused() {
        for scale in [0.0, -0.0, f64::NAN, f64::INFINITY] {
            assert!(refused(|spec| spec.metrics[0].scale = scale).starts_with("metric 1: scale "));
        }
        let constant = |text: &str| Reference::Const(text.into());
        let metric = refused(|spec| spec.metrics[0].from = constant("many"));
        assert_eq!(metric, "metric 1: the constant `many` is not a finite number");
        assert!(refused(|spec| spec.device = constant("")).starts_with("device: the constant ``"));
        let time = Some((constant("soon"), TimeFormat::Rfc3339));
        assert!(refused(|spec| spec.time = time).contains("`soon` is not a time in this format"));
        let never = Condition { from: constant("x"), equals: Vec::new() };
        assert!(refused(|spec| spec.idle = Some(never)).starts_with("idle: `equals` is empty"));
    }
}
