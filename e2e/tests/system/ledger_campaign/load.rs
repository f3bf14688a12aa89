//! Back ends and people who command several rooms, and note down what they were told is done.

use e2e::driver::Driver;
use e2e::http;
use e2e::token::{APP, Token};
use e2e::wait;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::callbacks_under_fire::Chance;
use crate::clients::code;

/// One command through the deaths of several owners, on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seats of a room; people use the first.
const SEATS: usize = 8;

/// What everybody shares.
#[derive(Debug)]
pub(super) struct Load {
    urls: Vec<String>,
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    pub(super) fn new(urls: Vec<String>) -> Self {
        let (acknowledged, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { urls, acknowledged, refused, is_over: AtomicBool::new(false) }
    }

    /// Commands that their callers were told are done.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Tries that failed.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Everybody finishes what they are at.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn failed<T>(&self, why: impl Into<String>) -> Result<T, String> {
        self.refused.fetch_add(1, Ordering::SeqCst);
        Err(why.into())
    }
}

/// What one caller was told.
struct Journal {
    load: Arc<Load>,
    file: File,
    room: String,
    user: String,
    commands: usize,
}

impl Journal {
    fn new(load: &Arc<Load>, folder: &Path, room: &str, user: &str) -> Self {
        let file = File::create(folder.join(format!("{user}.jsonl"))).expect("a file in an own folder");
        let (room, user) = (room.to_owned(), user.to_owned());
        Self { load: Arc::clone(load), file, room, user, commands: 0 }
    }

    /// An id that was not used before.
    fn id(&mut self) -> String {
        self.commands += 1;
        format!("{}-{}", self.user, self.commands)
    }

    /// Notes an acknowledged command.
    fn note(&mut self, id: &str, kind: &str, ack: &Value) {
        let counter = if kind == "cell" { "cell" } else { "settings" };
        let version = ack["version"][counter].as_u64().unwrap_or_else(|| panic!("no version: {ack}"));
        let line = json!({
            "room": self.room, "caller": format!("user:{}", self.user), "id": id, "kind": kind, "version": version,
            "ack": ack,
        });
        writeln!(self.file, "{line}").expect("a file in an own folder");
        self.load.acknowledged.fetch_add(1, Ordering::SeqCst);
    }
}

/// Which of a room's things a back end changes. Each thing is changed by one back end only, and each change is one:
/// what changes nothing is in no log.
#[derive(Debug, Clone, Copy)]
pub(super) enum Concern {
    Door,
    Seats,
    Strangers,
    Roles,
    Settings,
}

impl Concern {
    pub(super) const ALL: [Self; 5] = [Self::Door, Self::Seats, Self::Strangers, Self::Roles, Self::Settings];
}

/// What is changed, and how it is asked for: method, path and body.
type Change = (&'static str, &'static str, String, Value);

/// A back end that changes one thing of one room, again and again.
pub(super) struct BackEnd {
    journal: Journal,
    bearer: String,
    concern: Concern,
    chance: Chance,
}

impl BackEnd {
    pub(super) fn new(load: &Arc<Load>, folder: &Path, room: &str, concern: Concern, chance: Chance) -> Self {
        let user = format!("{room}-{concern:?}").to_lowercase();
        let token = Token::new(&user, "host").claim("admin", true).sign();
        let journal = Journal::new(load, folder, room, &user);
        Self { journal, bearer: format!("Bearer {token}"), concern, chance }
    }

    /// Sends one request to any instance, and again until it is answered for good. `None` if it was refused.
    async fn send(&mut self, method: &str, path: &str, id: &str, body: &Value) -> Option<Value> {
        let (load, body) = (Arc::clone(&self.journal.load), body.to_string());
        let (chance, bearer, room) = (&mut self.chance, &self.bearer, &self.journal.room);
        wait::eventually(PATIENCE, || {
            let url =
                format!("{}/v1/apps/{APP}/rooms/{room}{path}", load.urls[chance.below(load.urls.len())]);
            let (load, body) = (Arc::clone(&load), body.as_str());
            async move {
                let headers = [
                    ("authorization", bearer.as_str()),
                    ("content-type", "application/json"),
                    ("idempotency-key", id),
                ];
                match http::request(method, &url, &headers, body).await {
                    Ok(answer) if answer.status < 300 => Ok(Some(answer.json())),
                    Ok(answer) if answer.status == 429 || answer.status >= 500 => load.failed(answer.body),
                    Ok(_) => Ok(None),
                    Err(error) => load.failed(error.to_string()),
                }
            }
        })
        .await
    }

    /// Makes the room.
    pub(super) async fn open(&mut self) {
        let id = self.journal.id();
        let body = json!({ "seats": SEATS });
        self.send("PUT", "", &id, &body).await.expect("a room that can be made");
    }

    /// Until it is told to end.
    pub(super) async fn work(mut self) {
        let (mut done, mut is_refused) = (0, false);
        while !self.journal.load.is_over() {
            let id = self.journal.id();
            // Whose person is away changes something else meanwhile.
            let (kind, method, path, body) = if is_refused { self.aside(&id) } else { self.next(done, &id) };
            let ack = self.send(method, &path, &id, &body).await;
            done += usize::from(ack.is_some() && !is_refused);
            is_refused = ack.is_none();
            if let Some(ack) = ack {
                self.journal.note(&id, kind, &ack);
            }
        }
    }

    /// A change that is never refused.
    fn aside(&self, id: &str) -> Change {
        let path = format!("/guests/{}", self.journal.user);
        ("guest", "PATCH", path, json!({ "custom": { "mark": id } }))
    }

    /// What comes after so many that were done.
    fn next(&self, done: usize, id: &str) -> Change {
        let is_on = done.is_multiple_of(2);
        let person = person_of(&self.journal.room);
        let (name, body) = match self.concern {
            Concern::Door => ("lock", json!({ "locked": is_on })),
            Concern::Seats => {
                let seat = 2 + done / 2 % (SEATS - 1);
                ("mic-lock", json!({ "seat": seat, "locked": is_on }))
            }
            Concern::Strangers => {
                // Now and then it is somebody who is there.
                let user =
                    if (done / 2).is_multiple_of(16) { person } else { format!("stranger-{}", done / 2) };
                let ban = json!({ "user": user, "reason": id });
                if is_on { ("kick", ban) } else { ("unban", json!({ "user": user })) }
            }
            Concern::Roles => {
                ("role", json!({ "user": person, "role": if is_on { "guest" } else { "host" } }))
            }
            Concern::Settings => {
                let mark = json!({ "custom": { "mark": id } });
                return if is_on {
                    ("settings", "PATCH", "/settings".to_owned(), mark)
                } else {
                    ("guest", "PATCH", format!("/guests/guest-{}", done % 7), mark)
                };
            }
        };
        ("cell", "POST", format!("/commands/{name}"), body)
    }
}

/// Who comes to a room and goes again.
fn person_of(room: &str) -> String {
    format!("{room}-person")
}

/// Somebody who comes, speaks and leaves, again and again.
pub(super) struct Person {
    journal: Journal,
    driver: Arc<Driver>,
    token: String,
}

impl Person {
    pub(super) fn new(load: &Arc<Load>, driver: &Arc<Driver>, folder: &Path, room: &str) -> Self {
        let user = person_of(room);
        let token = Token::new(&user, "host").sign();
        Self { journal: Journal::new(load, folder, room, &user), driver: Arc::clone(driver), token }
    }

    async fn come(&self) -> Result<Value, String> {
        let Journal { load, user, room, .. } = &self.journal;
        let fields = json!({ "url": load.urls, "role": "host", "deadlineMs": 5_000 });
        let joined = self.driver.join_with(user, "", &self.token, room, fields).await;
        joined.or_else(|failure| load.failed(failure.message))
    }

    /// One try: the ack, or `None` if it was refused for good.
    async fn attempt(&self, name: &str, body: &Value) -> Result<Option<Value>, String> {
        let Journal { load, user, .. } = &self.journal;
        let status = self.driver.ask("status", json!({ "conn": user })).await;
        if !status.is_ok_and(|status| status["connected"] == true)
            && let Err(why) = self.come().await
        {
            // Whoever is barred at the end is not there.
            return if load.is_over() { Ok(None) } else { Err(why) };
        }
        match self.driver.emit(user, name, body.clone()).await {
            Ok(ack) if ack["ok"] == true => Ok(Some(ack)),
            Ok(ack) if ack["error"]["retryable"] == true && code(&ack) == "WRONG_INSTANCE" => {
                self.come().await?;
                load.failed(ack.to_string())
            }
            Ok(ack) if ack["error"]["retryable"] == true => load.failed(ack.to_string()),
            Ok(_) => Ok(None),
            Err(failure) => load.failed(failure.message),
        }
    }

    /// Asks until there is an answer for good, or nobody asks any more.
    async fn send(&mut self, name: &str, mut body: Value) -> Option<Value> {
        let id = self.journal.id();
        body["room"] = json!(self.journal.room);
        body["id"] = json!(id);
        let ack = wait::eventually(PATIENCE, || self.attempt(name, &body)).await?;
        self.journal.note(&id, "cell", &ack);
        Some(ack)
    }

    /// Comes in; it may be barred for a while.
    async fn enter(&self) {
        wait::eventually(PATIENCE, || async {
            match self.come().await {
                Err(why) if !self.journal.load.is_over() => Err(why),
                _ => Ok(()),
            }
        })
        .await;
    }

    /// Until it is told to end; then nobody is there.
    pub(super) async fn work(mut self) {
        while !self.journal.load.is_over() {
            self.enter().await;
            if self.speak().await.is_none() {
                // Somewhere between a seat and the door: from the door on again.
                self.enter().await;
                self.send("room:leave", json!({})).await;
            }
        }
    }

    async fn speak(&mut self) -> Option<()> {
        let up = self.send("mic:up", json!({ "seat": 1 })).await?;
        let session = json!({ "micSession": up["seat"]["micSession"] });
        self.send("mic:confirm", session.clone()).await?;
        for is_muted in [true, false] {
            self.send("mic:mute", json!({ "muted": is_muted })).await?;
        }
        self.send("mic:down", session).await?;
        self.send("room:leave", json!({})).await.map(drop)
    }
}
