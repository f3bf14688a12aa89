//! Coming, going, being away.

use room_cell::{Actor as By, Command, Joining, Limits, PeerId, Validated};
use serde::Serialize;
use serde_json::value::RawValue;
use socketioxide::socket::Sid;
use std::collections::HashMap;
use std::sync::Arc;

use super::{Actor, State};
use crate::error::{ApiError, ErrorCode};
use crate::room::batch::{Batch, Source};
use crate::room::links::{Link, Linked};
use crate::room::names::digest;
use crate::room::peer::{PeerView, Role};
use crate::room::snapshot::{Heading, Snapshot, page};
use crate::room::work::{JoinRequest, Membership, Refusal};
use crate::socket::Client;
use media_bridge::{Grant, PeerRef};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Joined<'a> {
    ok: bool,
    #[serde(rename = "self")]
    me: SelfView<'a>,
    room: &'a RawValue,
    media: Option<Grant>,
    messages: Messages,
    server_time: u64,
    heartbeat_ms: u128,
}

/// The room as everybody is shown it who came with one commit: encoded once for all of them.
pub(super) struct RoomView {
    version: (u64, u64),
    text: Box<RawValue>,
}

#[derive(Serialize)]
struct SelfView<'a> {
    peer: &'a str,
    user: &'a str,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Messages {
    last_seq: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PeersPage {
    ok: bool,
    peers: Vec<PeerView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers_cursor: Option<Arc<str>>,
}

impl Actor {
    /// What commands are held to.
    pub(super) fn limits(&self) -> Limits {
        Limits { attributes_bytes: self.node.config.limits.attributes_bytes, ..Limits::default() }
    }

    /// The command that a request to join is.
    pub(super) fn joining(&self, request: &JoinRequest) -> Result<Validated, ApiError> {
        let away = match &self.state {
            State::Owned(room) => room
                .cell()
                .users
                .get(&*request.user)
                .into_iter()
                .flat_map(|presence| &presence.peers)
                .filter(|peer| room.links().is_away(peer.peer.as_str()))
                .map(|peer| peer.peer.clone())
                .collect(),
            _ => Vec::new(),
        };
        let media = self.app.has_external_media().then(|| {
            let who = PeerRef::new(Arc::clone(&request.user), Arc::clone(&request.peer));
            self.new_name(&who)
        });
        let joining = Joining {
            peer: Arc::clone(&request.peer).into(),
            role: request.role,
            name: request.name.clone(),
            avatar: None,
            attributes: request.attributes.clone(),
            device: request.device.clone(),
            media,
            resume: digest(&request.secret),
            resumes: request.resume.as_deref().map(digest),
            away,
        };
        let by = By::User { user: Arc::clone(&request.user).into(), max_role: request.max_role, peer: None };
        Command::Join(Box::new(joining))
            .validate(by, &self.limits())
            .map_err(|invalid| ApiError::bad_request(format!("room:join: {invalid}")))
    }

    /// The answer to a connection that is in the room already.
    pub(super) async fn join_again(&mut self, request: &JoinRequest) -> Result<Box<RawValue>, Refusal> {
        self.settle().await?;
        let room = self.serving()?;
        let Some(peer) = room.links().of_connection(request.client.sid()).cloned() else {
            return Err(ApiError::lease_lost().into());
        };
        self.node.metrics.joins.with_label_values(&["resumed"]).inc();
        self.welcome(peer.as_str(), &mut None).await
    }

    /// Brings the links to what a batch did: who came is connected, who went is cut off.
    pub(super) fn follow_links(&mut self, batch: &Batch) {
        let seen = batch.cell.version;
        let mut joined: HashMap<&str, (&Client, Option<&Arc<str>>)> = HashMap::new();
        for step in &batch.steps {
            match (&step.source, step.events().is_empty()) {
                (Source::Join(request, _), false) => {
                    joined.insert(&request.peer, (&request.client, Some(&request.secret)));
                }
                (Source::Return(client), false) => {
                    if let Some(Command::Join(joining)) = step.order.as_ref().map(Validated::command) {
                        joined.insert(joining.peer.as_str(), (client, None));
                    }
                }
                _ => {}
            }
        }
        let until = crate::clock::instant() + self.app.grace;
        let links = match &mut self.state {
            State::Owned(room) => room.links_mut(),
            State::Suspended(room) => &mut room.links,
            State::New | State::Refused(_) | State::Ended => return,
        };
        for (peer, (client, secret)) in joined {
            let Some(user) = batch.cell.peers.get(peer) else { continue };
            let is_here = client.is_connected();
            let link = if is_here {
                Link::Connected(client.clone())
            } else {
                self.away_due = Some(self.away_due.map_or(until, |due| due.min(until)));
                Link::Away { until, reason: room_cell::GoneReason::StaleLeft }
            };
            links.insert(
                PeerId::from(peer),
                Linked { user: user.shared(), link, seen, secret: secret.cloned() },
            );
        }
    }

    /// The answer to who joined: the room as it is, and what it needs for the media.
    pub(super) async fn welcome(
        &mut self,
        peer: &str,
        view: &mut Option<RoomView>,
    ) -> Result<Box<RawValue>, Refusal> {
        let room = self.serving()?;
        let Some(record) = room.cell().peer(peer).cloned() else {
            // The same commit let another connection of the user in after this one.
            return Err(
                ApiError::new(ErrorCode::NotInRoom, "another connection took this one's place").into()
            );
        };
        let media = self.grant(&record).await;
        let (me, now, heartbeat) =
            (self.node.store.me.clone(), self.node.redis_clock.now_ms(), self.app.heartbeat.as_millis());
        let names = Arc::clone(&self.names);
        let room = self.serving()?;
        let cv = room.cell().version;
        let mut secret = None;
        if let Some(linked) = room.links_mut().get_mut(peer) {
            linked.seen = cv;
            secret = linked.secret.clone();
            if let Some(client) = linked.client() {
                client.has_role(&names.key, record.role);
            }
        }
        let heading = Heading {
            app: names.key.app(),
            id: names.key.room(),
            owner: me.name(),
            token: room.lease().token().as_u64(),
        };
        let version = (room.projection().sv.as_u64(), cv);
        let view = match view.take_if(|view| view.version == version) {
            Some(same) => view.insert(same),
            None => {
                let text = raw(&Snapshot::new(heading, room.projection(), room.cell()))?;
                view.insert(RoomView { version, text })
            }
        };
        let answer = Joined {
            ok: true,
            me: SelfView {
                peer: record.peer.as_str(),
                user: record.user.as_str(),
                role: record.role,
                resume: secret.as_deref(),
            },
            room: &view.text,
            media,
            messages: Messages { last_seq: 0 },
            server_time: now,
            heartbeat_ms: heartbeat,
        };
        raw(&answer)
    }

    pub(super) fn disconnected(&mut self, sid: Sid) {
        let until = crate::clock::instant() + self.app.grace;
        let links = match &mut self.state {
            State::Owned(room) => room.links_mut(),
            State::Suspended(room) => &mut room.links,
            State::New | State::Refused(_) | State::Ended => return,
        };
        if links.lose(sid, until) {
            self.away_due = Some(self.away_due.map_or(until, |due| due.min(until)));
        }
    }

    /// Those whose grace is over leave.
    pub(super) async fn end_overdue(&mut self) {
        let State::Owned(room) = &self.state else { return };
        let (over, next) = room.links().overdue(crate::clock::instant());
        self.away_due = next;
        if over.is_empty() {
            return;
        }
        let mut by_reason: HashMap<room_cell::GoneReason, Vec<PeerId>> = HashMap::new();
        for (peer, reason) in over {
            by_reason.entry(reason).or_default().push(peer);
        }
        // Whatever is not done now is overdue still, and tried again.
        let again = crate::clock::instant() + self.node.config.lease.retry_pause();
        let gone = by_reason.into_iter().map(|(reason, peers)| Command::Gone { peers, reason });
        self.execute_own(gone).await;
        let State::Owned(room) = &self.state else { return };
        if !room.links().overdue(crate::clock::instant()).0.is_empty() {
            self.away_due = Some(self.away_due.map_or(again, |due| due.min(again)));
        }
    }

    pub(super) fn membership(&mut self, sid: Sid) -> Result<Membership, Refusal> {
        let room = self.serving()?;
        let peer = room.links().of_connection(sid).and_then(|peer| room.cell().peer(peer.as_str()));
        let Some(peer) = peer else {
            return Err(ApiError::new(ErrorCode::NotInRoom, "this connection is not in the room").into());
        };
        Ok(Membership { peer: peer.peer.shared(), user: peer.user.shared(), role: peer.role })
    }

    pub(super) fn peers(
        &mut self,
        sid: Sid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Box<RawValue>, Refusal> {
        self.membership(sid)?;
        let (peers, peers_cursor) = page(self.serving()?.cell(), after, limit);
        raw(&PeersPage { ok: true, peers, peers_cursor })
    }
}

fn raw(answer: &impl Serialize) -> Result<Box<RawValue>, Refusal> {
    serde_json::value::to_raw_value(answer).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an answer cannot be encoded");
        ApiError::new(ErrorCode::Internal, "the answer cannot be encoded").into()
    })
}
