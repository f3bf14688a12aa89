//! Every kind of event and of refusal, by name.

use room_cell::{Event, Refusal};
use std::collections::BTreeMap;

pub(crate) const EVENTS: usize = 38;
pub(crate) const REFUSALS: usize = 33;

/// What a run has come across, and how often.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) events: BTreeMap<&'static str, u64>,
    pub(crate) refusals: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(crate) fn note(&mut self, decided: &Result<Vec<Event>, Refusal>) {
        match decided {
            Ok(events) => {
                events.iter().for_each(|it| *self.events.entry(event(it)).or_default() += 1);
            }
            Err(it) => *self.refusals.entry(refusal(it)).or_default() += 1,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (all, more) in [(&mut self.events, &other.events), (&mut self.refusals, &other.refusals)] {
            more.iter().for_each(|(name, count)| *all.entry(name).or_default() += count);
        }
    }
}

macro_rules! names {
    ($function:ident, $type:ident, $count:ident: $($variant:ident)*) => {
        pub(crate) const fn $function(it: &$type) -> &'static str {
            match it {
                $($type::$variant { .. } => stringify!($variant),)*
            }
        }

        const _: () = assert!([$(stringify!($variant)),*].len() == $count);
    };
}

names! { event, Event, EVENTS:
    Made Opened Failed Joined PeerEnded Left PeerUpdated TokenAllows RoleChanged DoorLocked Banned Unbanned
    SeatTaken SeatFreed SeatMoved SeatKept Confirmed SeatLocked Muted SeatsSet Requested RequestEnded Invited
    InviteEnded CallStarted CallAccepted CallDeclinedBy CallEnded Heard RouterMade
    RouterDropped Awaited Owed DutyDone Shifted Closing Closed Reopened
}

names! { refusal, Refusal, REFUSALS:
    NoRoom Creating RoomClosed AlreadyMade Banned DoorLocked Full SecondDevice HostsOnly Outranked Creator
    TokenForbids NotPresent NotMember SeatTaken SeatLocked NoFreeSeat NoSuchSeat AlreadySeated NotSeated
    StaleSession NothingAsked NotBanned CallGoingOn NoCall CallStands NotInCall StaleReport NobodyConcerned
    StaleRouter NotDue TooMany TooLarge
}
