//! Schemas of callbacks. Those of vendors are the vendors' own: here stands only what is read of them.

use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, Object, ObjectBuilder, Schema};
use utoipa::openapi::{OneOfBuilder, Ref, RefOr};

use super::shapes;

/// Events in one request.
const MOST_EVENTS: usize = 100;

/// Something that happened at a media server.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the schema of what `media_bridge` reads")]
pub(super) struct CallbackEvent {
    /// The sender's own id of it: the second of the same id is not taken.
    #[schema(schema_with = shapes::id)]
    id: String,
    /// `audio_started`, `audio_stopped`, `room_exited`, `participant_joined`, `room_finished` or `level`; anything
    /// else is counted and skipped.
    #[schema(rename = "type")]
    kind: String,
    /// The room; or `router` instead.
    #[schema(schema_with = some_id, required = false)]
    room: Option<String>,
    /// The router, by the name that the coordinator gave it.
    #[schema(schema_with = some_id, required = false)]
    router: Option<String>,
    /// About whom; only `room_finished` may go without. With `router`, `participant` may stand here instead.
    #[schema(schema_with = some_id, required = false)]
    user: Option<String>,
    /// The user's device, if it is about one of several.
    #[schema(schema_with = some_id, required = false)]
    peer: Option<String>,
    /// About whom, by the name that the coordinator gave them.
    #[schema(schema_with = some_id, required = false)]
    participant: Option<String>,
    /// When it happened, in Unix milliseconds by the sender's clock.
    at: u64,
    /// The participant's incarnation at the media server, where there is one.
    #[schema(schema_with = some_id, required = false)]
    session: Option<String>,
    /// The sender's own order of the participant's events, where there is one.
    #[schema(nullable = true, required = false)]
    sequence: Option<u64>,
    /// With `level`: 0 is silence, 1 as loud as it gets.
    #[schema(nullable = true, required = false, minimum = 0, maximum = 1)]
    level: Option<f32>,
    /// Why, for the log.
    #[schema(schema_with = reason, required = false)]
    reason: Option<String>,
}

fn some_id() -> Object {
    shapes::or_null(shapes::id())
}

fn reason() -> Object {
    shapes::or_null(shapes::text(0, 256, ""))
}

fn one_or_list(one: impl Into<RefOr<Schema>>, doc: String) -> RefOr<Schema> {
    let one = one.into();
    let list = ArrayBuilder::new().items(one.clone()).min_items(Some(1)).max_items(Some(MOST_EVENTS)).build();
    Schema::OneOf(OneOfBuilder::new().description(Some(doc)).item(one).item(list).build()).into()
}

fn object(doc: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .description(Some(doc))
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
}

macro_rules! schemas {
    ($($(#[$doc:meta])+ $name:ident $schema:expr;)*) => {$(
        $(#[$doc])+
        #[derive(Debug)]
        pub(super) struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $name {}
    )*};
}

schemas! {
    /// One event, or a list of at most 100.
    Callback one_or_list(
        Ref::from_schema_name("CallbackEvent"),
        format!("One event, or a list of at most {MOST_EVENTS}."),
    );
    /// What an event handler of Janus sends.
    JanusEvents one_or_list(
        object("An event, as Janus documents it."),
        format!("One event, or a list of at most {MOST_EVENTS}, as Janus groups them."),
    );
    /// A webhook of LiveKit.
    LivekitWebhook object("A `WebhookEvent`, as LiveKit documents it.");
    /// A callback of TRTC.
    TrtcCallback object("A room or media event, as TRTC documents it.");
    /// A notification of Agora.
    AgoraNotification object("A channel event, as Agora documents it.");
}
