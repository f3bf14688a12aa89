//! Schemas of what the calls take and give that are not those of a type beside a handler.

use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::classroom::settings;

/// A text between `min` and `max` characters.
pub(super) fn text(min: usize, max: usize, pattern: &str) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(min))
        .max_length(Some(max))
        .pattern((!pattern.is_empty()).then_some(pattern))
        .build()
}

/// An id: 1 to 128 bytes without control characters.
pub(super) fn id() -> Object {
    text(1, 128, r"^[^\u0000-\u001F\u007F-\u009F]+$")
}

/// A text without control characters that may be empty.
pub(super) fn label() -> Object {
    text(0, 128, r"^[^\u0000-\u001F\u007F-\u009F]*$")
}

/// A whole number between `min` and `max`.
pub(super) fn number(min: u64, max: u64) -> Object {
    let bound = |bound| i64::try_from(bound).unwrap_or(i64::MAX);
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(bound(min)))
        .maximum(Some(bound(max)))
        .build()
}

/// The same, or `null`, which is as good as leaving it out.
pub(super) fn or_null(mut object: Object) -> Object {
    if let SchemaType::Type(kind) = &object.schema_type {
        object.schema_type = nullable(kind.clone());
    }
    object
}

/// One of several words.
pub(super) fn word(words: &[&str]) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.iter().copied())).build()
}

fn nullable(kind: Type) -> SchemaType {
    SchemaType::Array(vec![kind, Type::Null])
}

/// A merge patch of a room's settings: `null` takes a setting back to its default.
#[derive(Debug)]
pub(super) struct SettingsPatch;

/// Settings that a room is made with: a patch that may be empty.
#[derive(Debug)]
pub(super) struct OpeningSettings;

impl PartialSchema for SettingsPatch {
    fn schema() -> RefOr<Schema> {
        let text = "A merge patch (RFC 7396) of settings; `null` is the default of a setting.";
        settings_schema().description(Some(text)).min_properties(Some(1)).into()
    }
}

impl ToSchema for SettingsPatch {}

impl PartialSchema for OpeningSettings {
    fn schema() -> RefOr<Schema> {
        settings_schema().description(Some("Settings; `null` is the default of a setting.")).into()
    }
}

impl ToSchema for OpeningSettings {}

fn settings_schema() -> ObjectBuilder {
    let closed =
        |object: ObjectBuilder| object.additional_properties(Some(AdditionalProperties::FreeForm(false)));
    let whole = |most: u64| {
        ObjectBuilder::new().schema_type(nullable(Type::Integer)).minimum(Some(0)).maximum(Some(most))
    };
    let share = ObjectBuilder::new().schema_type(nullable(Type::Number)).minimum(Some(0)).maximum(Some(1));
    let vad = closed(ObjectBuilder::new().schema_type(nullable(Type::Object)))
        .property("threshold", share)
        .property("prefixPaddingMs", whole(5_000))
        .property("silenceDurationMs", whole(10_000));
    let modes = ["off", "near_field", "far_field"].map(Value::from).into_iter().chain([Value::Null]);
    let noise = ObjectBuilder::new().schema_type(nullable(Type::String)).enum_values(Some(modes));
    let version =
        ObjectBuilder::new().schema_type(nullable(Type::String)).min_length(Some(1)).max_length(Some(64));
    closed(ObjectBuilder::new())
        .property("autoTransitionEnabled", ObjectBuilder::new().schema_type(nullable(Type::Boolean)))
        .property("vad", vad)
        .property("noiseReduction", noise)
        .property("realtimeModelVersion", version)
        .property("custom", ObjectBuilder::new().schema_type(nullable(Type::Object)))
}

/// A merge patch of a guest's state: `null` takes a field back to its default.
#[derive(Debug)]
pub(super) struct GuestPatch;

impl PartialSchema for GuestPatch {
    fn schema() -> RefOr<Schema> {
        let flag = || ObjectBuilder::new().schema_type(nullable(Type::Boolean));
        ObjectBuilder::new()
            .description(Some(
                "A merge patch (RFC 7396) of a guest's state; `null` is the default of a field.",
            ))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .min_properties(Some(1))
            .property("handRaised", flag())
            .property("micAllowed", flag())
            .property("videoAllowed", flag())
            .property("stage", flag())
            .property("custom", ObjectBuilder::new().schema_type(nullable(Type::Object)))
            .into()
    }
}

impl ToSchema for GuestPatch {}

/// A room as it stands.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "the schema of what the room itself writes")]
pub(super) struct Snapshot {
    app: String,
    id: String,
    /// `creating`, `active`, `closing` or `closed`.
    status: String,
    #[schema(nullable = false)]
    creator: Option<String>,
    /// Users present who are hosts.
    hosts: Vec<String>,
    /// Whether guests are kept out.
    locked: bool,
    owner: Owner,
    version: Version,
    /// The settings, by name.
    settings: Map<String, Value>,
    /// States of guests, by user.
    guests: Map<String, Value>,
    seats: Vec<SeatShape>,
    /// Who asked for a seat, and when.
    requests: Map<String, Value>,
    /// Who was asked to take one, and when.
    invites: Map<String, Value>,
    /// Who is present, up to 200 users.
    peers: Vec<Map<String, Value>>,
    peer_count: usize,
    /// Where the list of peers goes on, if it does.
    #[schema(nullable = false)]
    peers_cursor: Option<String>,
    /// The newest call.
    #[schema(nullable = false)]
    call: Option<Map<String, Value>>,
}

/// Who runs a room.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the schema of what the room itself writes")]
pub(super) struct Owner {
    /// Name of the instance; empty: nobody.
    instance: String,
    /// Its fencing token.
    token: u64,
}

/// Where both counters of a room stand.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the schema of what the room itself writes")]
pub(super) struct Version {
    settings: u64,
    cell: u64,
}

/// A seat.
#[derive(Debug, ToSchema)]
#[schema(as = Seat, rename_all = "camelCase")]
#[expect(dead_code, reason = "the schema of what the room itself writes")]
pub(super) struct SeatShape {
    seat: u16,
    /// `idle`, `locked`, `pending_publish` or `publishing`.
    state: String,
    #[schema(nullable = false)]
    user: Option<String>,
    #[schema(nullable = false)]
    mic_session: Option<String>,
    #[schema(nullable = false)]
    muted: Option<bool>,
    /// When it must be heard by, in Unix milliseconds.
    #[schema(nullable = false)]
    deadline: Option<u64>,
}

/// The room, and what became of the request to open it.
#[derive(Debug)]
pub(super) struct OpenedRoom;

impl PartialSchema for OpenedRoom {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(room)) = Snapshot::schema() else { return Snapshot::schema() };
        ObjectBuilder::from(room)
            .description(Some("The room, and whether it was `made`, `reopened` or `found`."))
            .property("opened", word(&["made", "reopened", "found"]))
            .required("opened")
            .into()
    }
}

impl ToSchema for OpenedRoom {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Snapshot::schemas(schemas);
    }
}

/// The settings that a room is made with.
pub(super) fn default_settings() -> Map<String, Value> {
    settings::NAMES.iter().map(|name| ((*name).to_owned(), settings::default_of(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_a_patch_knows_every_setting_and_field() {
        let names = |schema: RefOr<Schema>| {
            let schema = serde_json::to_value(schema).unwrap();
            schema["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        let mut settings = settings::NAMES.map(str::to_owned);
        settings.sort();
        assert_eq!(names(SettingsPatch::schema()), settings);
        for field in names(GuestPatch::schema()) {
            let raw = Map::from_iter([(field.clone(), Value::Null)]);
            assert!(crate::classroom::guest::GuestPatch::validate(raw, true, 8).is_ok(), "{field}");
        }
    }
}
