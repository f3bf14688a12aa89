//! Bodies of the calls, from JSON to what a room is asked.

use key_prefix::UserId;
use room_cell::{Command, MicSession, Role};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::Ref;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};

use super::shapes::{self, id, number, or_null, text};

/// Most seats of a room.
const SEATS: u64 = 1_000;
/// Most users of a room, where they are bounded.
const CAPACITY: u64 = 1_000_000;
/// Longest ban that has an end: ten years.
const BAN_SECONDS: u64 = 10 * 366 * 24 * 3_600;

fn seat() -> utoipa::openapi::Object {
    number(1, SEATS)
}

fn some_seat() -> utoipa::openapi::Object {
    or_null(seat())
}

fn reason() -> utoipa::openapi::Object {
    or_null(text(0, 256, ""))
}

fn user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserId, D::Error> {
    UserId::new(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn users<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<UserId>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| UserId::new(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn cell_user(user: &UserId) -> room_cell::UserId {
    user.shared().into()
}

/// How a room should be made, or opened again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub(super) struct OpenRoom {
    /// Settings that differ from the defaults.
    #[schema(schema_with = opening_settings, required = false)]
    pub settings: Option<Map<String, Value>>,
    /// Number of seats; the app's where none is given.
    #[schema(schema_with = opening_seats, required = false)]
    pub seats: Option<u16>,
    /// Most users; the app's where none is given.
    #[schema(schema_with = opening_capacity, required = false)]
    pub capacity: Option<u32>,
    /// Whether it closes when nobody is there for the app's idle time.
    pub auto_close: Option<bool>,
}

fn opening_settings() -> Schema {
    let nothing = ObjectBuilder::new().schema_type(Type::Null);
    let settings = Ref::from_schema_name("OpeningSettings");
    Schema::OneOf(OneOfBuilder::new().item(settings).item(nothing).build())
}

fn seats() -> utoipa::openapi::Object {
    number(0, SEATS)
}

fn opening_seats() -> utoipa::openapi::Object {
    or_null(seats())
}

fn opening_capacity() -> utoipa::openapi::Object {
    or_null(number(1, CAPACITY))
}

impl OpenRoom {
    /// The first part that is out of bounds.
    pub(super) fn fault(&self) -> Option<String> {
        if self.seats.is_some_and(|seats| u64::from(seats) > SEATS) {
            return Some(format!("seats: must be 0 to {SEATS}"));
        }
        let fits = |capacity| (1..=CAPACITY).contains(&u64::from(capacity));
        if self.capacity.is_some_and(|capacity| !fits(capacity)) {
            return Some(format!("capacity: must be 1 to {CAPACITY}"));
        }
        None
    }
}

/// A body that is a command.
pub(super) trait Order {
    /// The command; `session` is a new mic session's id, for those that begin one.
    fn command(self, session: MicSession) -> Command;
}

macro_rules! orders {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($fields:tt)* } => |$body:pat_param, $session:pat_param| $command:expr
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
        pub(super) struct $name { $($fields)* }

        impl Order for $name {
            fn command(self, $session: MicSession) -> Command {
                let $body = self;
                $command
            }
        }
    )*};
}

orders! {
    /// Ends the room.
    Close {
        /// Why, at most 256 bytes; told to everybody in it.
        #[schema(schema_with = reason, required = false)]
        reason: Option<Arc<str>>,
    } => |it, _| Command::Close { reason: it.reason }

    /// Puts somebody out of the room and keeps them out.
    Kick {
        /// Whom; need not be present.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Why, at most 256 bytes.
        #[schema(schema_with = reason, required = false)]
        reason: Option<Arc<str>>,
        /// For so long; for good where it is left out.
        #[schema(schema_with = ban_seconds, required = false)]
        ban_seconds: Option<u64>,
    } => |it, _| Command::Kick { user: cell_user(&it.user), reason: it.reason, ban_seconds: it.ban_seconds }

    /// Lets somebody come again.
    Unban {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
    } => |it, _| Command::Unban { user: cell_user(&it.user) }

    /// Gives somebody a role.
    SetRole {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Which.
        #[schema(schema_with = role)]
        role: Role,
    } => |it, _| Command::SetRole { user: cell_user(&it.user), role: it.role }

    /// Locks the room's door against guests, or opens it.
    LockDoor {
        /// Whether guests are kept out.
        locked: bool,
    } => |it, _| Command::LockDoor { locked: it.locked }

    /// Gives somebody a seat.
    MicUp {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Which; the first free one where it is left out.
        #[schema(schema_with = some_seat, required = false)]
        seat: Option<u16>,
    } => |it, session| Command::MicUp { user: Some(cell_user(&it.user)), seat: it.seat, session }

    /// Takes somebody off a seat.
    MicDown {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Only if this is still their mic session.
        #[serde(default, deserialize_with = "mic_session")]
        #[schema(schema_with = some_id, required = false)]
        mic_session: Option<MicSession>,
    } => |it, _| Command::MicDown { user: Some(cell_user(&it.user)), session: it.mic_session }

    /// Moves somebody to another seat.
    MicMove {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Where to.
        #[schema(schema_with = seat)]
        seat: u16,
    } => |it, _| Command::MicMove { user: Some(cell_user(&it.user)), seat: it.seat, flowing: false }

    /// Locks a seat, or unlocks it.
    LockSeat {
        /// Which.
        #[schema(schema_with = seat)]
        seat: u16,
        /// Whether nobody may take it.
        locked: bool,
        /// Take who sits there down first.
        #[serde(default)]
        force: bool,
    } => |it, _| Command::SeatLock { seat: it.seat, locked: it.locked, force: it.force }

    /// Silences somebody on a seat, or lets them be heard.
    MicMute {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Whether they should be silent.
        muted: bool,
    } => |it, _| Command::MicMute { user: Some(cell_user(&it.user)), muted: it.muted }

    /// Silences every seat, or lets all be heard.
    MicMuteAll {
        /// Whether they should be silent.
        muted: bool,
        /// But not these users.
        #[serde(default, deserialize_with = "users")]
        #[schema(schema_with = except, required = false)]
        except: Vec<UserId>,
    } => |it, _| Command::MicMuteAll { muted: it.muted, except: it.except.iter().map(cell_user).collect() }

    /// Sets how many seats there are.
    SetSeats {
        /// How many; who sits on one that is no longer there is taken down.
        #[schema(schema_with = seats)]
        count: u16,
    } => |it, _| Command::SetSeats { count: it.count }

    /// Asks somebody to take a seat.
    MicInvite {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Which, if it matters.
        #[schema(schema_with = some_seat, required = false)]
        seat: Option<u16>,
    } => |it, _| Command::MicInvite { user: cell_user(&it.user), seat: it.seat }

    /// Answers somebody who asked for a seat.
    MicRespond {
        /// Whom.
        #[serde(deserialize_with = "user")]
        #[schema(schema_with = id)]
        user: UserId,
        /// Whether they get one.
        accept: bool,
    } => |it, session| Command::MicRespond { user: Some(cell_user(&it.user)), accept: it.accept, session }
}

fn ban_seconds() -> utoipa::openapi::Object {
    or_null(number(1, BAN_SECONDS))
}

fn some_id() -> utoipa::openapi::Object {
    or_null(id())
}

fn role() -> utoipa::openapi::Object {
    shapes::word(&["guest", "host"])
}

fn except() -> utoipa::openapi::schema::Array {
    utoipa::openapi::ArrayBuilder::new().items(id()).max_items(Some(100)).build()
}

fn mic_session<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MicSession>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(|text| MicSession::from(text.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use room_cell::{Actor, Limits};

    #[test]
    fn the_bounds_in_the_schemas_are_those_of_the_cell() {
        let limits = Limits::default();
        assert_eq!(u64::from(limits.seats), SEATS);
        assert_eq!((limits.ban_seconds, limits.reason_bytes, limits.except_users), (BAN_SECONDS, 256, 100));
        let order = Command::SetSeats { count: 1_001 }.validate(Actor::Backend, &limits);
        assert_eq!(order.unwrap_err().to_string(), "count: must be at most 1000 seats");
    }
}
