//! What a command is answered, in the form in which it is kept and sent between instances.

use room_cell::{Cell, Event, Refusal, SeatNumber};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::snapshot::SeatView;
use crate::error::{ApiError, ErrorCode};

/// What a command did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The cell's version after it.
    pub cell: u64,
    /// What else there is to say: `seat`, `call`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub result: Map<String, Value>,
}

impl Done {
    /// What `events` did to a cell that is now `cell`.
    pub fn of(events: &[Event], cell: &Cell) -> Self {
        let mut result = Map::new();
        let seat = |number: &SeatNumber| {
            cell.seats.get(number).map(|seat| json!(SeatView::of(*number, seat))).unwrap_or_default()
        };
        for event in events {
            match event {
                Event::SeatTaken { seat: number, .. }
                | Event::SeatMoved { to: number, .. }
                | Event::Confirmed { seat: number, .. } => {
                    result.insert("seat".to_owned(), seat(number));
                }
                Event::CallStarted { .. } | Event::CallAccepted { .. } | Event::CallEnded { .. } => {
                    result.insert("call".to_owned(), json!(cell.call));
                }
                _ => {}
            }
        }
        Self { cell: cell.version, result }
    }
}

/// An answer as it is kept, and sent to whoever put the command into an inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It was done.
    Done(Done),
    /// It was not.
    Refused {
        /// The code.
        code: String,
        /// For people.
        message: String,
    },
}

impl Answer {
    /// A refusal as it is kept.
    pub fn refused(error: &ApiError) -> Self {
        Self::Refused { code: error.code.as_str().to_owned(), message: error.message.to_string() }
    }

    /// Reads one that was kept.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        serde_json::from_str(text).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a kept answer cannot be read");
            ApiError::new(ErrorCode::Internal, "the kept answer cannot be read")
        })
    }

    /// What the caller is told.
    pub fn into_result(self) -> Result<Done, ApiError> {
        match self {
            Self::Done(done) => Ok(done),
            Self::Refused { code, message } => {
                Err(ApiError::new(ErrorCode::parse(&code).unwrap_or(ErrorCode::Internal), message))
            }
        }
    }

    /// Its JSON.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a client is told of a cell's refusal.
pub fn error_of(refusal: &Refusal) -> ApiError {
    ApiError::new(code_of(refusal), refusal.to_string())
}

const fn code_of(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::NoRoom => ErrorCode::RoomNotFound,
        Refusal::Creating => ErrorCode::MediaUnavailable,
        Refusal::RoomClosed => ErrorCode::RoomClosed,
        Refusal::Banned => ErrorCode::Banned,
        Refusal::DoorLocked => ErrorCode::RoomLocked,
        Refusal::Full { .. } => ErrorCode::RoomFull,
        Refusal::SecondDevice
        | Refusal::HostsOnly
        | Refusal::Outranked
        | Refusal::Creator
        | Refusal::TokenForbids
        | Refusal::NotInCall => ErrorCode::Forbidden,
        Refusal::NotPresent | Refusal::NotMember => ErrorCode::NotInRoom,
        Refusal::SeatTaken | Refusal::AlreadySeated => ErrorCode::SeatTaken,
        Refusal::SeatLocked => ErrorCode::SeatLocked,
        Refusal::NoFreeSeat => ErrorCode::NoFreeSeat,
        Refusal::NotSeated => ErrorCode::NotOnSeat,
        Refusal::StaleSession | Refusal::StaleReport => ErrorCode::StaleSession,
        Refusal::AlreadyMade
        | Refusal::NothingAsked
        | Refusal::NotBanned
        | Refusal::CallGoingOn
        | Refusal::NoCall
        | Refusal::CallStands { .. }
        | Refusal::NobodyConcerned
        | Refusal::NotDue
        | Refusal::StaleRouter => ErrorCode::VersionConflict,
        Refusal::NoSuchSeat { .. } => ErrorCode::BadRequest,
        Refusal::TooMany { .. } | Refusal::TooLarge { .. } => ErrorCode::PayloadTooLarge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_being_kept() {
        let done = Answer::Done(Done { cell: 7, result: Map::from_iter([("seat".to_owned(), json!(1))]) });
        assert_eq!(Answer::parse(&done.text()).unwrap(), done);
        let refused = Answer::refused(&error_of(&Refusal::SeatTaken));
        let again = Answer::parse(&refused.text()).unwrap().into_result().unwrap_err();
        assert_eq!((again.code, &*again.message), (ErrorCode::SeatTaken, "somebody sits there"));
        assert!(Answer::parse("{").is_err());
    }
}
