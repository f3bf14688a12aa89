//! The multi-writer part of a room in memory: a projection of a version that Redis has acknowledged, and nothing else.

use redis_scripts::{RedisMillis, RoomState, SettingsVersion};
use room_cell::patch;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::classroom::settings;

/// Settings and guest states at version `sv`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Projection {
    /// Settings by name.
    pub settings: Map<String, Value>,
    /// Guest states by user.
    pub guests: Map<String, Value>,
    /// Settings version.
    pub sv: SettingsVersion,
    /// When the room was made.
    pub created_at: RedisMillis,
}

/// A change of settings or guest states, as scripts publish it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StateChange {
    /// The version that it follows.
    pub from: u64,
    /// The version that it makes.
    pub to: u64,
    /// A merge patch of the settings.
    #[serde(default)]
    pub settings: Option<Map<String, Value>>,
    /// A merge patch of guest states by user.
    #[serde(default)]
    pub guests: Option<Map<String, Value>>,
    /// Who made it.
    #[serde(default)]
    pub by: Option<String>,
}

/// A stored text is not the JSON that scripts write.
#[derive(Debug, thiserror::Error)]
#[error("{what} of the room holds no JSON")]
pub struct Unreadable {
    /// Which part.
    pub what: &'static str,
    source: serde_json::Error,
}

fn documents(what: &'static str, pairs: &[(String, String)]) -> Result<Map<String, Value>, Unreadable> {
    let read = |(name, text): &(String, String)| Ok((name.clone(), serde_json::from_str(text)?));
    pairs
        .iter()
        .map(read)
        .collect::<Result<_, serde_json::Error>>()
        .map_err(|source| Unreadable { what, source })
}

impl Projection {
    /// The room as Redis holds it. A setting that it lacks, being newer than the room, has its default.
    pub fn hydrate(state: &RoomState) -> Result<Self, Unreadable> {
        let mut known = documents("settings", &state.settings)?;
        for name in settings::NAMES {
            known.entry(name).or_insert_with(|| settings::default_of(name));
        }
        Ok(Self {
            settings: known,
            guests: documents("guest states", &state.guests)?,
            sv: state.sv,
            created_at: state.created_at,
        })
    }

    /// Applies the change that follows the present version.
    pub fn apply(&mut self, change: &StateChange) {
        if let Some(fields) = &change.settings {
            patch::apply_fields(&mut self.settings, fields);
        }
        for (user, state) in change.guests.iter().flatten() {
            patch::apply(self.guests.entry(user).or_insert_with(|| Value::Object(Map::new())), state);
        }
        self.sv = SettingsVersion::new(change.to);
    }

    /// The change that leads from here to `newer`.
    pub fn change_to(&self, newer: &Self) -> StateChange {
        let some = |patch: Map<String, Value>| (!patch.is_empty()).then_some(patch);
        StateChange {
            from: self.sv.as_u64(),
            to: newer.sv.as_u64(),
            settings: some(patch::between(&self.settings, &newer.settings)),
            guests: some(patch::between(&self.guests, &newer.guests)),
            by: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state() -> RoomState {
        RoomState {
            status: "active".into(),
            sv: SettingsVersion::new(3),
            settings: vec![
                ("noiseReduction".into(), "\"far_field\"".into()),
                ("custom".into(), "{\"a\":[]}".into()),
            ],
            guests: vec![("ann".into(), "{\"handRaised\":true}".into())],
            ..RoomState::default()
        }
    }

    #[test]
    fn a_new_owner_never_starts_from_defaults() {
        let room = Projection::hydrate(&state()).unwrap();
        assert_eq!(room.settings["noiseReduction"], json!("far_field"));
        assert_eq!(room.settings["custom"], json!({"a": []}));
        assert_eq!(room.settings["autoTransitionEnabled"], json!(true), "a setting newer than the room");
        assert_eq!(room.guests["ann"], json!({"handRaised": true}));
    }

    #[test]
    fn changes_lead_from_one_version_to_the_next() {
        let old = Projection::hydrate(&state()).unwrap();
        let mut new = old.clone();
        let change: StateChange = serde_json::from_value(json!({
            "from": 3, "to": 4, "settings": {"custom": {"a": null, "b": 1}}, "guests": {"bob": {"stage": true}}, "by": "h",
        }))
        .unwrap();
        new.apply(&change);
        assert_eq!((new.sv.as_u64(), &new.settings["custom"]), (4, &json!({"b": 1})));
        let mut again = old.clone();
        again.apply(&old.change_to(&new));
        assert_eq!(again, new);
    }

    #[test]
    fn what_is_no_json_is_named() {
        let mut bad = state();
        bad.guests[0].1 = "{".into();
        assert_eq!(Projection::hydrate(&bad).unwrap_err().what, "guest states");
    }
}
