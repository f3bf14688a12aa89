//! Which sinks are told of what.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Kinds of events: `mic.ended`, `room.*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    All,
    Family(Box<str>),
    Kind(Box<str>),
}

/// What is no pattern of kinds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kind of events: expected `family.name`, `family.*` or `*`")]
pub struct FilterError(pub String);

impl Filter {
    /// Everything.
    pub fn all() -> Self {
        Self(vec![Pattern::All])
    }

    /// What any of `patterns` stands for.
    ///
    /// # Errors
    ///
    /// The first that stands for nothing.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, FilterError> {
        let word =
            |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
        let read = |pattern: &str| match pattern.split_once('.') {
            None if pattern == "*" => Ok(Pattern::All),
            Some((family, "*")) if word(family) => Ok(Pattern::Family(family.into())),
            Some((family, name)) if word(family) && word(name) => Ok(Pattern::Kind(pattern.into())),
            _ => Err(FilterError(pattern.to_owned())),
        };
        patterns.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether it stands for `kind`.
    pub fn takes(&self, kind: &str) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Pattern::All => true,
            Pattern::Family(family) => kind.split_once('.').is_some_and(|(of, _)| *of == **family),
            Pattern::Kind(name) => **name == *kind,
        })
    }
}

/// One sink of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Its name.
    pub sink: Arc<str>,
    /// Whether the events of a room come one after the other; otherwise each for itself.
    pub ordered: bool,
    /// What it is told.
    pub wants: Filter,
}

/// All sinks, by app.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscriptions(BTreeMap<String, Vec<Subscription>>);

impl Subscriptions {
    /// Those sinks of `app` that are told of `kind`.
    pub fn of<'a>(&'a self, app: &str, kind: &'a str) -> impl Iterator<Item = &'a Subscription> {
        let all = self.0.get(app).map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(move |it| it.wants.takes(kind))
    }
}

impl FromIterator<(String, Subscription)> for Subscriptions {
    fn from_iter<T: IntoIterator<Item = (String, Subscription)>>(all: T) -> Self {
        let mut by_app: BTreeMap<String, Vec<Subscription>> = BTreeMap::new();
        for (app, subscription) in all {
            by_app.entry(app).or_default().push(subscription);
        }
        Self(by_app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_one_kind_a_family_or_all() {
        let some = Filter::new(["room.*", "mic.ended"]).expect("patterns");
        assert!(some.takes("room.closed") && some.takes("mic.ended"));
        assert!(!some.takes("mic.started") && !some.takes("rooms.closed") && !some.takes("room"));
        assert!(Filter::all().takes("call.missed") && !Filter::default().takes("call.missed"));
        for wrong in ["", "room", "*.closed", "room.", ".closed", "room.*.x", "Ro om.x"] {
            assert_eq!(Filter::new([wrong]), Err(FilterError(wrong.to_owned())));
        }
    }
}
