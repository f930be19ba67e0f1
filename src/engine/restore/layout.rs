//! What the numbers of a store's records mean.

use crate::engine::codec::Reader;
use crate::engine::settings::Settings;
use crate::engine::snapshot::layout;
use crate::time::Span;

/// Where the windows, metrics and sources of the store stand in the configuration of today.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) windows: Vec<(String, Option<usize>)>,
    pub(super) metrics: Vec<(String, Option<usize>)>,
    pub(super) sources: Vec<SourceLayout>,
    pub(super) changed: bool,
}

#[derive(Debug)]
pub(super) struct SourceLayout {
    pub(super) name: String,
    pub(super) now: Option<usize>,
    /// Metrics by the numbers of the store's layout.
    pub(super) metrics: Vec<usize>,
}

impl Layout {
    pub(super) fn read(value: &[u8], settings: &Settings) -> Option<Self> {
        let mut r = Reader(value);
        r.u8()?;
        // Another version alone needs no other numbers.
        let changed = value[1..] != layout(settings)[1..];
        let mut read = Self { changed, ..Self::default() };
        for _ in 0..r.small::<usize>()? {
            let (name, size, offset) = (r.text()?, Span(r.signed()?), Span(r.signed()?));
            let now = settings.windows.iter().position(|window| {
                window.name.as_str() == name && window.size == size && window.offset == offset
            });
            read.windows.push((name.to_owned(), now));
        }
        for _ in 0..r.small::<usize>()? {
            let name = r.text()?;
            let now = settings.metrics.iter().position(|m| m.name.as_str() == name);
            read.metrics.push((name.to_owned(), now));
        }
        for _ in 0..r.small::<usize>()? {
            let (name, base) = (r.text()?, r.small::<usize>()?);
            let metrics = (0..r.small::<usize>()?).map(|_| r.small()).collect::<Option<_>>()?;
            for _ in 0..r.small::<usize>()? {
                r.small::<usize>()?; // multiples are matched pane by pane
            }
            let base = read.windows.get(base)?.1;
            let now = settings.sources.iter().position(|source| {
                source.profile.source().as_str() == name && Some(source.base) == base
            });
            read.sources.push(SourceLayout { name: name.to_owned(), now, metrics });
        }
        Some(read)
    }

    /// The metric of this number, or `None` and its number is noted.
    pub(super) fn metric(&self, number: usize, gone: &mut Vec<usize>) -> Option<usize> {
        let now = self.metrics.get(number)?.1;
        gone.extend(now.is_none().then_some(number));
        now
    }
}
