//! From what a callback says to the inboxes of the rooms that it is about.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use key_prefix::{RoomId, RoomKey, UserId};
use media_bridge::{Callback, CallbackRequest, NamedPeer, NamedRoom, VendorEvent, VendorFact};
use room_cell::{MediaFact, MediaIdentity, MediaReport, Millis};

use super::levels::{Level, Speaker};
use super::routers::Named;
use crate::config::App;
use crate::error::ApiError;
use crate::node::Node;
use crate::room::gateway::{self, Heard, Reported};

/// Longest id of an event that is kept as it is.
const ID_BYTES: usize = 128;

/// What became of the events of a callback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// In the inboxes of their rooms now.
    pub appended: usize,
    /// There before.
    pub repeated: usize,
    /// Of a kind that is not known here.
    pub unknown_type: usize,
    /// For a room that is not known here.
    pub unknown_room: usize,
    /// For a room of another app, which the request does not prove that it speaks for.
    pub other_app: usize,
    /// How loud people are: passed on, and not kept.
    pub levels: usize,
}

/// The known events of a callback, ready to be taken; taking them twice does no harm.
pub struct Intake<'a> {
    node: &'a Arc<Node>,
    app: &'a Arc<App>,
    vendor: &'static str,
    request: CallbackRequest<'a>,
    events: Vec<VendorEvent>,
    unknown: usize,
}

/// Where an event goes.
enum Place {
    Room { app: Arc<App>, room: RoomKey, generation: Option<u64> },
    Unknown,
    OtherApp,
}

/// Events of one room, in order.
struct Bundle {
    app: Arc<App>,
    room: RoomKey,
    heard: Vec<Heard>,
    levels: Vec<Level>,
}

impl<'a> Intake<'a> {
    /// The events of a proved callback that came to `app`. Their times are brought to our clock.
    pub fn new(
        node: &'a Arc<Node>,
        app: &'a Arc<App>,
        vendor: &'static str,
        request: CallbackRequest<'a>,
        callback: Callback,
    ) -> Self {
        let Callback { mut events, unknown } = callback;
        let now_ms = node.redis_clock.now_ms();
        for event in events.iter_mut().filter(|event| !matches!(event.what, VendorFact::Level(_))) {
            let (at_ms, resolution_ms) = node.vendor_clocks.heard(&app.code, vendor, event.at_ms, now_ms);
            (event.at_ms, event.resolution_ms) = (at_ms, event.resolution_ms.max(resolution_ms));
        }
        Self { node, app, vendor, request, events, unknown }
    }

    /// Events that are known.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Puts all events into the inboxes of their rooms: those of one room in order, and all or none of them.
    ///
    /// # Errors
    /// The first that could not be put there; the others may be in their inboxes nevertheless.
    pub async fn take(&self) -> Result<Taken, ApiError> {
        let mut taken = Taken { unknown_type: self.unknown, ..Taken::default() };
        let bundles = self.bundles(&mut taken).await?;
        let mut going = Vec::with_capacity(bundles.len());
        for Bundle { app, room, heard, levels } in &bundles {
            taken.levels += levels.len();
            if !levels.is_empty() {
                self.node.levels.hear(self.node, room, levels.iter().cloned());
            }
            if !heard.is_empty() {
                let report = gateway::report(self.node, app, room, heard);
                going.push(async move { (heard.len(), report.await) });
            }
        }
        let mut failed = None;
        for (count, result) in join_all(going).await {
            match result {
                Ok(Reported::Here { appended }) => {
                    taken.appended += appended;
                    taken.repeated += count - appended;
                }
                Ok(Reported::NoRoom) => taken.unknown_room += count,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(taken), Err)
    }

    async fn bundles(&self, taken: &mut Taken) -> Result<Vec<Bundle>, ApiError> {
        let routers = self.routers().await?;
        let mut proved = HashMap::new();
        let mut bundles: Vec<Bundle> = Vec::new();
        let mut by_room: HashMap<RoomKey, usize> = HashMap::new();
        for event in &self.events {
            let (app, room, generation) = match self.place(event, &routers, &mut proved)? {
                Place::Room { app, room, generation } => (app, room, generation),
                Place::Unknown => {
                    taken.unknown_room += 1;
                    continue;
                }
                Place::OtherApp => {
                    taken.other_app += 1;
                    continue;
                }
            };
            let at = *by_room.entry(room.clone()).or_insert_with(|| {
                bundles.push(Bundle { app, room, heard: Vec::new(), levels: Vec::new() });
                bundles.len() - 1
            });
            match self.read(event, generation)? {
                Some(Read::Heard(heard)) => bundles[at].heard.push(heard),
                Some(Read::Level(level)) => bundles[at].levels.push(level),
                None => taken.unknown_type += 1,
            }
        }
        Ok(bundles)
    }

    /// What the names of routers in this callback stand for.
    async fn routers(&self) -> Result<HashMap<&str, Option<Named>>, ApiError> {
        let mut names: Vec<&str> = Vec::new();
        for event in &self.events {
            if let NamedRoom::Router(name) = &event.room
                && names.last() != Some(&name.as_str())
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        names.dedup();
        let found = names.into_iter().map(async |name| {
            let named = self.node.routers.find(&self.node.store, name).await?;
            Ok::<_, ApiError>((name, named))
        });
        Ok(try_join_all(found).await?.into_iter().collect())
    }

    fn place(
        &self,
        event: &VendorEvent,
        routers: &HashMap<&str, Option<Named>>,
        proved: &mut HashMap<String, Option<Arc<App>>>,
    ) -> Result<Place, ApiError> {
        let named = match &event.room {
            NamedRoom::Ours(id) => {
                let id = RoomId::new(id).map_err(|error| ApiError::bad_request(format!("room: {error}")))?;
                let room = RoomKey::new(self.app.code.clone(), id);
                return Ok(Place::Room { app: Arc::clone(self.app), room, generation: None });
            }
            NamedRoom::Router(name) => routers.get(name.as_str()).cloned().flatten(),
        };
        let Some(Named { room, generation }) = named else { return Ok(Place::Unknown) };
        if room.app() == self.app.code.as_str() {
            return Ok(Place::Room { app: Arc::clone(self.app), room, generation: Some(generation) });
        }
        let app = match proved.entry(room.app().to_owned()) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => entry.insert(self.proved_by(room.app())).clone(),
        };
        Ok(app.map_or(Place::OtherApp, |app| Place::Room { app, room, generation: Some(generation) }))
    }

    /// The app of this code, if the request is proved by its secrets too: apps may share a media server, which
    /// reports to one of them.
    fn proved_by(&self, code: &str) -> Option<Arc<App>> {
        let reader = self.node.readers.of(code, self.vendor)?;
        reader.read(&self.request).ok()?;
        self.node.app(code)
    }

    /// The event as its room takes it; `None`: it says nothing that a room could make sense of.
    fn read(&self, event: &VendorEvent, generation: Option<u64>) -> Result<Option<Read>, ApiError> {
        let mut participant = None;
        let who = match &event.who {
            None => None,
            Some(NamedPeer::Ours { user, peer }) => {
                let user =
                    UserId::new(user).map_err(|error| ApiError::bad_request(format!("user: {error}")))?;
                let peer = peer.as_deref().map(room_cell::PeerId::from);
                Some(MediaIdentity { user: user.shared().into(), peer })
            }
            // Its name is good within its router only.
            Some(NamedPeer::Participant(_)) if generation.is_none() => return Ok(None),
            Some(NamedPeer::Participant(name)) => {
                participant = Some(name.clone());
                None
            }
        };
        let what = match event.what {
            VendorFact::ParticipantJoined => MediaFact::ParticipantJoined,
            VendorFact::AudioStarted => MediaFact::AudioStarted,
            VendorFact::AudioStopped => MediaFact::AudioStopped,
            VendorFact::RoomExited => MediaFact::RoomExited,
            VendorFact::RoomFinished => MediaFact::RoomFinished,
            VendorFact::Level(level) => {
                let participant = participant.map(|name| Speaker::Participant(name.into()));
                let who = participant.or_else(|| who.map(|it| Speaker::User(it.user.shared())));
                let level = level.clamp(0.0, 1.0);
                return Ok(who.filter(|_| !level.is_nan()).map(|who| Read::Level(Level { who, level })));
            }
        };
        if who.is_none() && participant.is_none() && what != MediaFact::RoomFinished {
            return Ok(None);
        }
        let report = MediaReport {
            what,
            who,
            router: generation,
            incarnation: event.incarnation.clone(),
            sequence: event.sequence,
            at: Millis(event.at_ms),
            resolution_ms: event.resolution_ms,
        };
        Ok(Some(Read::Heard(Heard { id: id_of(self.vendor, &event.id), report, participant })))
    }
}

enum Read {
    Heard(Heard),
    Level(Level),
}

/// Ids of two vendors never meet.
fn id_of(vendor: &str, id: &str) -> String {
    if id.len() <= ID_BYTES {
        format!("{vendor}/{id}")
    } else {
        format!("{vendor}/{}", blake3::hash(id.as_bytes()))
    }
}
