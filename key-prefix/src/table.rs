//! The table of every key: what it is, who writes it, how it ends, what its loss does.

use crate::{Instance, RoomKey};

/// The Redis type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisType {
    /// `string`
    String,
    /// `hash`
    Hash,
    /// `set`
    Set,
    /// `zset`
    Zset,
    /// `stream`
    Stream,
}

impl RedisType {
    /// The word that Redis answers to `TYPE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::Zset => "zset",
            Self::Stream => "stream",
        }
    }
}

/// What the last part of a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Nothing: there is one.
    Cluster,
    /// An instance name.
    Name,
    /// `name/incarnation`.
    Instance,
    /// The name of a lease.
    Lease,
    /// An app.
    App,
    /// A route key.
    Room,
    /// A route key, who asked, and the id of what was asked.
    Answer,
    /// A route key and the id of something that a media server reported.
    Event,
    /// The name of a router at a media server.
    Router,
    /// One of the [`LANES`](crate::LANES) lanes.
    Lane,
    /// A user of an app.
    User,
}

impl Scope {
    const fn placeholder(self) -> &'static str {
        match self {
            Self::Cluster => "",
            Self::Name => ":{name}",
            Self::Instance => ":{name}/{incarnation}",
            Self::Lease => ":{lease}",
            Self::App => ":{app}",
            Self::Room => r":{app}\0{room}",
            Self::Answer => r":{app}\0{room}\0{caller}\0{id}",
            Self::Event => r":{app}\0{room}\0{event}",
            Self::Router => ":{router}",
            Self::Lane => ":{0..63}",
            Self::User => r":{app}\0{user}",
        }
    }

    pub(crate) fn admits(self, subject: &str) -> bool {
        match self {
            Self::Cluster => subject.is_empty(),
            Self::Name => crate::InstanceName::new(subject).is_ok(),
            Self::Instance => subject.parse::<Instance>().is_ok(),
            Self::Lease => {
                let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
                subject.bytes().all(fits) && !subject.is_empty()
            }
            Self::App => crate::AppCode::new(subject).is_ok(),
            Self::Room => RoomKey::from_route(subject).is_ok(),
            Self::Answer => below_a_room(subject, 4),
            Self::Event => below_a_room(subject, 3),
            Self::Router => crate::RouterName::new(subject).is_ok(),
            Self::Lane => subject
                .parse::<u16>()
                .is_ok_and(|lane| lane < crate::LANES && subject.bytes().all(|c| c.is_ascii_digit())),
            Self::User => subject.split_once('\0').is_some_and(|(app, user)| {
                crate::AppCode::new(app).is_ok() && crate::UserId::new(user).is_ok()
            }),
        }
    }
}

/// Whether `subject` is so many parts, of which the first two name a room.
fn below_a_room(subject: &str, parts: usize) -> bool {
    let parts_found: Vec<&str> = subject.splitn(parts, '\0').collect();
    parts_found.len() == parts && RoomKey::from_route(&parts_found[..2].join("\0")).is_ok()
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What the key's last part names.
    pub scope: Scope,
    /// Its Redis type.
    pub redis_type: RedisType,
    /// What it holds.
    pub holds: &'static str,
    /// The scripts that write it.
    pub writers: &'static str,
    /// The rule by which it ends.
    pub ends: &'static str,
    /// What happens if somebody deletes it.
    pub if_deleted: &'static str,
}

macro_rules! kinds {
    ($($kind:ident $segment:literal $scope:ident $type:ident {
        holds: $holds:literal, writers: $writers:literal, ends: $ends:literal, if_deleted: $deleted:literal $(,)?
    })*) => {
        /// The kinds of key, one row of the table each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum KeyKind {
            $(#[doc = $holds] $kind,)*
        }

        impl KeyKind {
            /// Every kind, in the table's order.
            pub const ALL: [Self; [$($segment),*].len()] = [$(Self::$kind),*];

            pub(crate) const fn segment(self) -> &'static str {
                match self { $(Self::$kind => $segment,)* }
            }

            /// The kind's row of the table.
            pub const fn row(self) -> Row {
                match self {
                    $(Self::$kind => Row {
                        scope: Scope::$scope,
                        redis_type: RedisType::$type,
                        holds: $holds,
                        writers: $writers,
                        ends: $ends,
                        if_deleted: $deleted,
                    },)*
                }
            }
        }
    };
}

kinds! {
    Instances "instances" Cluster Zset {
        holds: "last heartbeat of each live instance, scored by Redis's clock",
        writers: "register, heartbeat, deregister, reap",
        ends: "members go with deregister or reap",
        if_deleted: "heals within one heartbeat",
    }
    Incarnation "incarnation" Name String {
        holds: "the newest incarnation of a name",
        writers: "register, heartbeat",
        ends: "7 days after the last heartbeat of that name",
        if_deleted: "heals within one heartbeat",
    }
    Instance "instance" Instance Hash {
        holds: "address, public URL, version, roles; whether it is gone",
        writers: "register, heartbeat, deregister, reap",
        ends: "1 hour after the last heartbeat; reap",
        if_deleted: "heals within one heartbeat; redirects lack a URL meanwhile",
    }
    InstanceRooms "instance-rooms" Instance Set {
        holds: "route keys of the rooms that an instance holds",
        writers: "pin, release, heartbeat, reap",
        ends: "empty when the instance released its rooms; reap",
        if_deleted: "heals within one heartbeat",
    }
    InstanceWatches "instance-watches" Instance Set {
        holds: "route keys of the rooms that an instance watches",
        writers: "watch, unwatch, heartbeat, reap",
        ends: "empty when nothing is watched; reap",
        if_deleted: "heals within one heartbeat",
    }
    Unheard "unheard" Instance Zset {
        holds: "route keys of the instance's rooms to which something was done, until its heartbeat has looked at them; scored by when",
        writers: "settings_update, guest_update, enqueue, report, heartbeat, deregister, reap",
        ends: "members go when they were looked at, or after 1 hour; the key 1 hour after the last mark, with deregister or reap",
        if_deleted: "what was just then lost on pub/sub is made up for within one heartbeat for each 1,000 rooms of the instance",
    }
    Lease "lease" Lease String {
        holds: "holder and token of a lease that is not a room's: the reaper's, or that of a lane, `lane-0` to `lane-63`",
        writers: "lease_acquire, lease_renew, lease_release, lanes_hold",
        ends: "time to live of the lease; release",
        if_deleted: "the holder loses it at its next renewal; another is elected",
    }
    LeaseFence "lease-fence" Lease String {
        holds: "the highest token given for a lease",
        writers: "lease_acquire, lanes_hold",
        ends: "7 days after its last use",
        if_deleted: "the lease's own token and Redis time take over as the floor",
    }
    Rooms "rooms" App Zset {
        holds: "ids of an app's rooms, in byte order",
        writers: "pin, heartbeat, restore, sweep",
        ends: "members go when sweep finds their room gone; the key with its last member",
        if_deleted: "owned rooms heal within one heartbeat for each 1,000 of their owner's, others when they are next pinned",
    }
    Owner "owner" Room String {
        holds: "the room's lease: owner and fencing token",
        writers: "pin, release, heartbeat, reap",
        ends: "time to live of 3 heartbeats; release; reap",
        if_deleted: "the owner pins the room again with a new token within one heartbeat; writes meanwhile get `LEASE_LOST`",
    }
    Fence "fence" Room String {
        holds: "the highest token given for a room",
        writers: "pin, heartbeat",
        ends: "7 days after its last use",
        if_deleted: "the lease's own token and Redis time take over as the floor",
    }
    Room "room" Room Hash {
        holds: "status, creation, token, versions, and how large the room's other keys must be",
        writers: "pin, commit, settings_update, guest_update, restore",
        ends: "the room's life after its last owner; sweep sets it",
        if_deleted: "its living owner restores it within one heartbeat for each 1,000 rooms that it has, or when it is next written, versions leaping by 1,000,000; without one it is recovered from the ledger when somebody wants it",
    }
    Settings "settings" Room Hash {
        holds: "one field for each setting, as JSON",
        writers: "pin, settings_update, restore",
        ends: "with the room's record",
        if_deleted: "as the room's record",
    }
    Guests "guests" Room Hash {
        holds: "guest state by user, as JSON",
        writers: "guest_update, restore",
        ends: "with the room's record",
        if_deleted: "as the room's record",
    }
    Peers "peers" Room Hash {
        holds: "one field for each peer, as JSON; the peer count is its size",
        writers: "pin, commit, restore",
        ends: "empty when the last peer left; with the room's record",
        if_deleted: "as the room's record",
    }
    Presence "presence" Room Zset {
        holds: "users present, scored by when they were last seen",
        writers: "pin, commit, touch, restore",
        ends: "empty when the last user left; with the room's record",
        if_deleted: "as the room's record",
    }
    Watchers "watchers" Room Set {
        holds: "instances that watch the room",
        writers: "watch, unwatch, heartbeat, reap",
        ends: "empty when nobody watches; reap",
        if_deleted: "heals within one heartbeat; cards are stale meanwhile",
    }
    Cell "cell" Room Hash {
        holds: "a field for each part of the cell, as JSON: the room itself, seats, bans, roles, requests, invites, the call, what the media server said",
        writers: "pin, commit, restore",
        ends: "with the room's record",
        if_deleted: "as the room's record",
    }
    Inbox "inbox" Room Stream {
        holds: "work for the room's owner: commands that came to other instances, and the media server's callbacks",
        writers: "enqueue, report, commit, pin",
        ends: "entries go with the commit that executes them; the key with the room's record",
        if_deleted: "what waited in it is gone: askers get `TIMEOUT`, lost callbacks are made up for by the next reconciliation",
    }
    Aside "aside" Room Stream {
        holds: "inbox entries that could not be executed, each with the reason; at most 1,000",
        writers: "commit, pin",
        ends: "7 days after the last of them",
        if_deleted: "nobody can look at them any more",
    }
    Answer "answer" Answer String {
        holds: "digest of a command's body, a line feed, and the answer that its caller got",
        writers: "commit, pin, answers_restore",
        ends: "24 hours after the commit",
        if_deleted: "a repeat of that command is executed as if it were new",
    }
    Seen "seen" Event String {
        holds: "that a callback is in the inbox already",
        writers: "report",
        ends: "10 minutes after it came: by then its signature is too old",
        if_deleted: "a repeat of that callback is executed too, by the rules for late and repeated events",
    }
    Router "router" Router String {
        holds: "what the name of a media router stands for: the generation, and the room's route key",
        writers: "router_claim",
        ends: "the time to live that its room's owner gives it at each claim",
        if_deleted: "callbacks of that router count as of no room until its owner claims the name again",
    }
    Lane "lane" Lane Stream {
        holds: "committed changes, in order, of all rooms whose route key falls on the lane, that the ledger does not have yet",
        writers: "pin, commit, settings_update, guest_update, restore, reap, lanes_archived",
        ends: "entries go when the ledger has them; at `ledger.lane_limit` of them what begins something is refused",
        if_deleted: "what the ledger did not have yet is missing in it; its rooms' records are compared when they are loaded",
    }
    LaneKept "lane-kept" Lane Stream {
        holds: "what the ledger took from the lane of late, to be fed again to a ledger that fell back",
        writers: "lanes_archived",
        ends: "entries go after `ledger.keep_ms`, or beyond `ledger.keep_entries`; the key with the last",
        if_deleted: "a ledger that falls back just then lacks what was in it",
    }
    Checkpoints "checkpoints" Cluster Hash {
        holds: "by lane, how many batches of it the ledger had taken",
        writers: "lanes_archived",
        ends: "never: 64 numbers",
        if_deleted: "a ledger that falls back just then is not noticed",
    }
    Facts "facts" Cluster Hash {
        holds: "what is fixed for ever in this cluster: number of lanes, how a room finds its lane, identity of the ledger",
        writers: "facts",
        ends: "never: a few words",
        if_deleted: "written again from the ledger by the next instance that starts",
    }
    Events "events" App Stream {
        holds: "business events of an app, for whoever reads them here: `id`, `type`, `room`, `payload`",
        writers: "event_append",
        ends: "its oldest entries go when it holds more than about the sink's `stream_cap`; 7 days after the newest",
        if_deleted: "readers miss what they had not read; ids in the ledger's outbox say what that was",
    }
    Due "due" Cluster Zset {
        holds: "route keys of the rooms in which something falls due, scored by when",
        writers: "pin, commit, restore, release, touch, enqueue, report, due, reap",
        ends: "members go when nothing falls due any more, or when their room is gone",
        if_deleted: "owned rooms heal with their next commit or touch; unowned ones wait for a visitor",
    }
    Sessions "sessions" User Hash {
        holds: "a user's sessions by instance and socket, as JSON",
        writers: "sessions_open, sessions_close, sessions_touch, notify",
        ends: "1 hour after the last touch; empty when the last session closed",
        if_deleted: "the user's sessions are not found until they are opened again",
    }
}

impl KeyKind {
    /// The key's pattern, `{prefix}` and the subject in braces.
    pub fn pattern(self) -> String {
        format!("{{prefix}}:{}{}", self.segment(), self.row().scope.placeholder())
    }
}

/// The kinds of channel; each instance listens to its own five.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// `router-sync`: what others changed in rooms that the instance owns.
    Sync,
    /// Changes of rooms that the instance watches.
    Fanout,
    /// The instance's own proof that publishing reaches it.
    Canary,
    /// Answers to commands that the instance put into the inboxes of rooms it does not own.
    Reply,
    /// Session control, and events for all sessions of a user.
    Control,
}

impl ChannelKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Sync, Self::Fanout, Self::Canary, Self::Reply, Self::Control];

    pub(crate) const fn segment(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Fanout => "fanout",
            Self::Canary => "canary",
            Self::Reply => "reply",
            Self::Control => "control",
        }
    }
}

/// The table as Markdown: what `coordinator keys` prints and the documentation holds.
pub fn markdown() -> String {
    use std::fmt::Write as _;
    let mut out = String::from(
        "| key | type | holds | written by | ends | if it is deleted |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for kind in KeyKind::ALL {
        let row = kind.row();
        _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} |",
            kind.pattern(),
            row.redis_type.as_str(),
            row.holds,
            row.writers,
            row.ends,
            row.if_deleted
        );
    }
    out.push_str("\n| channel | carries |\n| --- | --- |\n");
    for (kind, carries) in [
        (ChannelKind::Sync, "`router-sync` to the owner of a room"),
        (ChannelKind::Fanout, "changes of watched rooms to a watcher"),
        (ChannelKind::Canary, "an instance's message to itself, which gates `/readyz`"),
        (ChannelKind::Reply, "answers to commands that the instance put into inboxes"),
        (ChannelKind::Control, "session control, and events for all sessions of a user"),
    ] {
        _ = writeln!(out, "| `{{prefix}}:{}:{{name}}/{{incarnation}}` | {carries} |", kind.segment());
    }
    out
}
