//! Commands that go into one commit: decided together, committed together, answered each for itself.

use redis_scripts::{Acknowledged, CellChanges, Committing, InboxEntry, Keep, RedisMillis, Repeat, ReplyTo};
use room_cell::{Actor, Cell, Command, Event, MediaFact, Millis, Rules, Validated, decide};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::Arc;

use super::answer::{Answer, Done, error_of};
use super::delta::Delta;
use super::gateway::Idempotency;
use super::work::{JoinRequest, Reply};
use crate::error::{ApiError, ErrorCode};
use crate::socket::Client;

/// Where a command came from, and so where its answer goes.
#[derive(Debug)]
pub enum Source {
    /// A connection wants in.
    Join(Box<JoinRequest>, Option<Reply<Box<RawValue>>>),
    /// A connection that is still there, whose peer Redis lost.
    Return(Client),
    /// Somebody on this instance asks.
    Asked(Option<Idempotency>, Option<Reply<Done>>),
    /// It waited in the room's inbox.
    Inbox(Box<InboxEntry>),
    /// The owner itself.
    Own,
}

/// What became of a command.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It was decided so.
    Done(Done, Vec<Event>),
    /// It was refused.
    Refused(ApiError),
    /// It had been answered before.
    Kept(Answer),
    /// It is refused whatever the cell says, and nothing is kept of that.
    Barred(ApiError),
}

/// A command on its way through a batch. Without an order it is an inbox entry that makes no sense.
#[derive(Debug)]
pub struct Step {
    pub(super) order: Option<Validated>,
    pub(super) source: Source,
    /// Redis must not execute it after this: what falls due in an outage waits for its end.
    until: Option<RedisMillis>,
    outcome: Option<Outcome>,
}

impl Step {
    /// A command from there.
    pub const fn new(order: Validated, source: Source) -> Self {
        Self { order: Some(order), source, until: None, outcome: None }
    }

    /// The same, not to be executed after `until`.
    #[must_use]
    pub const fn until(mut self, until: RedisMillis) -> Self {
        self.until = Some(until);
        self
    }

    /// An inbox entry that makes no sense.
    pub fn poison(entry: InboxEntry, error: ApiError) -> Self {
        let outcome = Some(Outcome::Refused(error));
        Self { order: None, source: Source::Inbox(Box::new(entry)), until: None, outcome }
    }

    /// A step that was answered before.
    #[must_use]
    pub fn answered(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// What makes it idempotent: caller, id, digest.
    pub fn key(&self) -> Option<(&str, &str, &str)> {
        match &self.source {
            Source::Asked(Some(key), _) => Some((&key.caller, &key.id, &key.digest)),
            Source::Inbox(entry) => entry.keep.as_ref().map(|key| (&*key.caller, &*key.id, &*key.digest)),
            _ => None,
        }
    }

    /// What became of it.
    pub const fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Why it is set aside, if it makes no sense.
    fn aside(&self) -> Option<&str> {
        match &self.outcome {
            Some(Outcome::Refused(error)) if self.order.is_none() => Some(&error.message),
            _ => None,
        }
    }

    /// Whether it is what a media server said of somebody's audio, and was taken for older than what is known.
    pub fn is_stale_report(&self) -> bool {
        let is_audio = |order: &Validated| matches!(order.command(), Command::Media(report) if report.what != MediaFact::ParticipantJoined);
        let is_stale = |error: &ApiError| error.code == ErrorCode::StaleSession;
        matches!((&self.source, &self.outcome), (Source::Inbox(_), Some(Outcome::Refused(error))) if is_stale(error))
            && self.order.as_ref().is_some_and(is_audio)
    }

    /// Whether it begins something, and was not refused.
    fn begins(&self) -> bool {
        !self.events().is_empty() && self.order.as_ref().is_some_and(|order| order.command().begins())
    }

    /// Its events.
    pub fn events(&self) -> &[Event] {
        match &self.outcome {
            Some(Outcome::Done(_, events)) => events,
            _ => &[],
        }
    }

    fn deadline(&self) -> Option<RedisMillis> {
        match &self.source {
            Source::Inbox(entry) if self.order.is_some() => entry.deadline,
            _ => self.until,
        }
    }

    fn answer(&self) -> Option<Answer> {
        Some(match self.outcome.as_ref()? {
            Outcome::Done(done, _) => Answer::Done(done.clone()),
            Outcome::Refused(error) | Outcome::Barred(error) => Answer::refused(error),
            Outcome::Kept(answer) => answer.clone(),
        })
    }

    /// Whether its answer is kept: what was done, and what is refused for good. Who is not in the room may come in
    /// and repeat it, and what came too late was not executed: a repeat will be.
    fn is_kept(&self) -> bool {
        match &self.outcome {
            Some(Outcome::Done(..)) => true,
            Some(Outcome::Refused(error)) => {
                self.order.is_some() && !error.code.is_retryable() && error.code != ErrorCode::NotInRoom
            }
            Some(Outcome::Kept(_) | Outcome::Barred(_)) | None => false,
        }
    }
}

/// What the log keeps of a command.
#[derive(Serialize)]
struct Logged<'a> {
    id: &'a str,
    actor: &'a Actor,
    command: &'static str,
    events: &'a [Event],
}

/// Commands decided one after the other, and the cell after them.
#[derive(Debug)]
pub struct Batch {
    /// Names the batch: sent again under the same name, it is executed once.
    pub id: String,
    /// The version that it follows.
    pub from: u64,
    /// The cell before it.
    pub before: Cell,
    /// The cell after it.
    pub cell: Cell,
    /// Its commands.
    pub steps: Vec<Step>,
}

impl Batch {
    /// Decides `steps` on `cell`; those that have an outcome keep it.
    pub fn stage(id: String, cell: &Cell, mut steps: Vec<Step>, rules: &Rules, now: Millis) -> Self {
        let mut staged = cell.clone();
        for step in &mut steps {
            if matches!(step.outcome, Some(Outcome::Kept(_) | Outcome::Barred(_))) {
                continue;
            }
            let Some(order) = &step.order else { continue };
            let is_late = step.deadline().is_some_and(|deadline| deadline.as_u64() < now.0);
            let decided = if is_late {
                Err(ApiError::new(ErrorCode::Timeout, "the command came too late and was not executed"))
            } else {
                decide(&staged, order, rules, now).map_err(|refusal| error_of(&refusal))
            };
            step.outcome = Some(match decided {
                Ok(events) => {
                    staged.advance(&events);
                    Outcome::Done(Done::of(&events, &staged), events)
                }
                Err(error) => Outcome::Refused(error),
            });
        }
        Self { id, from: cell.version, before: cell.clone(), cell: staged, steps }
    }

    /// Whether there is anything to write.
    pub fn needs_commit(&self) -> bool {
        // A refusal under an id is written too, or at least compared with what that id was answered before.
        let is_written = |step: &Step| {
            let is_known = matches!(step.outcome, Some(Outcome::Kept(_) | Outcome::Barred(_)));
            matches!(step.source, Source::Inbox(_)) || (step.key().is_some() && !is_known)
        };
        self.cell.version != self.from || self.steps.iter().any(is_written)
    }

    /// Notes which commands were answered before, or came too late.
    pub fn repeated(&mut self, repeats: Vec<(usize, Repeat)>) {
        for (at, repeat) in repeats {
            let Some(step) = self.steps.get_mut(at) else { continue };
            match repeat {
                Repeat::Answered { digest, answer } => {
                    let outcome = recalled(step.key().map(|(_, _, mine)| mine), &digest, &answer);
                    step.outcome = Some(outcome);
                }
                Repeat::Late => match &mut step.source {
                    Source::Inbox(entry) => entry.deadline = Some(RedisMillis::new(0)),
                    _ => step.until = Some(RedisMillis::new(0)),
                },
            }
        }
    }

    /// Whether one of its commands begins something, and is not refused.
    pub fn begins(&self) -> bool {
        self.steps.iter().any(Step::begins)
    }

    /// The steps, those refused that begin something; or, if none does, all that would be logged.
    pub fn barred(mut self, error: &ApiError) -> Vec<Step> {
        let begins = self.begins();
        for step in &mut self.steps {
            if if begins { step.begins() } else { !step.events().is_empty() } {
                step.outcome = Some(Outcome::Barred(error.clone()));
            }
        }
        self.steps
    }

    /// What it changed, as others are told.
    pub fn delta(&self) -> Delta {
        Delta::of(self.steps.iter().flat_map(Step::events)).with_returns(&self.before, &self.cell)
    }

    /// The message to those who watch from elsewhere; none if no version was made.
    pub fn fanout(&self, delta: &Delta, route_json: &str) -> Option<String> {
        let (from, to) = (self.from, self.cell.version);
        (to > from).then(|| {
            format!(
                r#"{{"room":{route_json},"of":"cell","from":{from},"to":{to}{}}}"#,
                delta.parts(&self.cell)
            )
        })
    }

    /// The commands as the script takes them.
    pub fn prepare(&self) -> Vec<Prepared<'_>> {
        self.steps.iter().enumerate().map(|(at, step)| Prepared::of(&self.id, at, step)).collect()
    }
}

/// The outcome of a command whose id had been used before.
pub(super) fn recalled(mine: Option<&str>, digest: &str, answer: &str) -> Outcome {
    if mine.is_some_and(|mine| mine != digest) {
        let error = ApiError::bad_request("`id` was used for another request");
        return Outcome::Kept(Answer::refused(&error));
    }
    match Answer::parse(answer) {
        Ok(answer) => Outcome::Kept(answer),
        Err(error) => Outcome::Kept(Answer::refused(&error)),
    }
}

/// One command's texts.
#[derive(Debug)]
pub struct Prepared<'a> {
    step: &'a Step,
    entry: Option<String>,
    answer: String,
}

impl<'a> Prepared<'a> {
    fn of(batch: &str, at: usize, step: &'a Step) -> Self {
        let entry = step.order.as_ref().filter(|_| !step.events().is_empty()).map(|order| {
            let made = format!("{batch}:{at}");
            let id = step.key().map_or(made.as_str(), |(_, id, _)| id);
            let logged =
                Logged { id, actor: order.actor(), command: order.command().name(), events: step.events() };
            serde_json::to_string(&logged).unwrap_or_default()
        });
        let is_told = step.key().is_some() || matches!(step.source, Source::Inbox(_));
        let answer = step.answer().filter(|_| is_told).map(|answer| answer.text()).unwrap_or_default();
        Self { step, entry, answer }
    }

    /// As the script takes it.
    pub fn committing(&self) -> Committing<'_> {
        let step = self.step;
        // What was answered before is not compared again; without a digest it is compared and not kept.
        let key = step.key().filter(|_| {
            step.order.is_some() && !matches!(step.outcome, Some(Outcome::Kept(_) | Outcome::Barred(_)))
        });
        let keep = key.map(|(caller, id, digest)| Keep {
            caller,
            id,
            digest: if step.is_kept() { digest } else { "" },
        });
        let (inbox, reply) = match &step.source {
            Source::Inbox(entry) => (
                Some(Acknowledged { entry: &entry.entry, aside: step.aside() }),
                entry.reply.as_ref().map(|(instance, number)| ReplyTo { instance, number }),
            ),
            _ => (None, None),
        };
        Committing {
            entry: self.entry.as_deref(),
            answer: &self.answer,
            keep,
            reply,
            inbox,
            // Only what is to be executed can be late.
            deadline: step.deadline().filter(|_| matches!(step.outcome, Some(Outcome::Done(..)))),
        }
    }
}

/// What a commit changes in the cell's keys.
pub fn cell_changes(changes: &room_cell::Changes) -> CellChanges<'_> {
    CellChanges {
        status: changes.status,
        set: changes.set.iter().map(|(field, json)| (field.as_str(), json.as_str())).collect(),
        removed: changes.removed.iter().map(String::as_str).collect(),
        peers_set: changes.peers_set.iter().map(|(peer, json)| (peer.as_str(), json.as_str())).collect(),
        peers_removed: changes.peers_removed.iter().map(room_cell::PeerId::as_str).collect(),
        users_in: changes.users_in.iter().map(room_cell::UserId::as_str).collect(),
        users_out: changes.users_out.iter().map(room_cell::UserId::as_str).collect(),
    }
}

/// Splits steps so that no id occurs twice in one part: the second is answered by what the first left.
pub fn without_repeats(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let mut parts: Vec<Vec<Step>> = Vec::new();
    let mut part: Vec<Step> = Vec::with_capacity(steps.len());
    let mut seen: HashSet<(Arc<str>, Arc<str>)> = HashSet::new();
    for step in steps {
        let key = step.key().map(|(caller, id, _)| (Arc::from(caller), Arc::from(id)));
        if let Some(key) = key
            && !seen.insert(key.clone())
        {
            parts.push(std::mem::take(&mut part));
            seen.clear();
            seen.insert(key);
        }
        part.push(step);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis_scripts::OwnedKeep;
    use room_cell::{Command, Devices, Limits};

    const RULES: Rules = Rules {
        devices: Devices::Replace,
        publish_deadline_ms: 15_000,
        ring_ms: 45_000,
        transition_ms: 15_000,
        clock_tolerance_ms: 1_000,
        external_media: false,
        live_list: true,
    };

    fn order(command: Command) -> Validated {
        command.validate(Actor::Backend, &Limits::default()).unwrap()
    }

    fn room() -> Cell {
        let create = order(Command::Create { seats: 2, capacity: None, auto_close: false });
        let mut cell = Cell::default();
        let events = decide(&cell, &create, &RULES, Millis(1)).unwrap();
        cell.advance(&events);
        cell
    }

    fn entry(number: u8, id: Option<&str>, deadline: u64) -> Step {
        let keep = id.map(|id| OwnedKeep { caller: "key:k".into(), id: id.into(), digest: "d".into() });
        let entry = InboxEntry {
            entry: format!("{number}-0"),
            keep,
            reply: Some(("b/1".into(), number.to_string())),
            deadline: Some(RedisMillis::new(deadline)),
            ..InboxEntry::default()
        };
        let lock = order(Command::LockDoor { locked: number % 2 == 1 });
        Step::new(lock, Source::Inbox(Box::new(entry)))
    }

    fn stage(cell: &Cell, steps: Vec<Step>, now: u64) -> Batch {
        Batch::stage("b".to_owned(), cell, steps, &RULES, Millis(now))
    }

    #[test]
    fn i_13_what_came_too_late_leaves_the_inbox_and_spends_no_id() {
        let batch = stage(&room(), vec![entry(1, Some("x"), 10)], 11);
        let prepared = batch.prepare();
        let late = prepared[0].committing();
        assert!(late.entry.is_none() && late.answer.contains("TIMEOUT"), "{late:?}");
        assert_eq!(late.keep.map(|keep| keep.digest), Some(""), "the id may be sent again");
        assert_eq!((late.inbox.map(|inbox| inbox.entry), late.deadline), (Some("1-0"), None));
    }

    #[test]
    fn i_13_a_repeat_that_is_late_as_well_does_not_hold_up_what_is_behind_it() {
        let mut batch = stage(&room(), vec![entry(1, Some("x"), 10), entry(3, None, 1_000)], 5);
        // Redis has the answer of an earlier execution; meanwhile the deadline passed.
        let answer = Answer::Done(Done { cell: 7, result: serde_json::Map::new() });
        batch.repeated(vec![(0, Repeat::Answered { digest: "d".into(), answer: answer.text() })]);
        let batch = stage(&room(), batch.steps, 20);
        let prepared = batch.prepare();
        let (repeat, behind) = (prepared[0].committing(), prepared[1].committing());
        assert_eq!((repeat.deadline, repeat.keep), (None, None), "nothing that Redis could refuse again");
        assert_eq!((repeat.answer, repeat.entry), (&*answer.text(), None));
        assert!(behind.entry.is_some(), "{behind:?}");
    }

    #[test]
    fn a_refusal_that_may_end_by_itself_is_compared_and_not_kept() {
        let seat =
            |session: &str| Command::MicUp { user: Some("ann".into()), seat: None, session: session.into() };
        let key = Idempotency { caller: "key:k".into(), id: "x".into(), digest: "d".into() };
        let step = Step::new(order(seat("s")), Source::Asked(Some(key), None));
        let batch = stage(&room(), vec![step], 5);
        assert!(batch.needs_commit(), "what its id was answered before counts more");
        let prepared = batch.prepare();
        assert_eq!(prepared[0].committing().keep.map(|keep| keep.digest), Some(""), "NOT_IN_ROOM");
    }

    #[test]
    fn an_id_that_was_used_for_something_else_is_refused() {
        let Outcome::Kept(answer) = recalled(Some("mine"), "theirs", "{}") else { panic!("not kept") };
        assert_eq!(answer.into_result().unwrap_err().code, ErrorCode::BadRequest);
        assert!(matches!(recalled(Some("d"), "d", "{"), Outcome::Kept(Answer::Refused { .. })), "unreadable");
    }

    #[test]
    fn the_same_id_is_not_twice_in_one_part() {
        let steps =
            vec![entry(1, Some("x"), 9), entry(2, Some("y"), 9), entry(3, Some("x"), 9), entry(4, None, 9)];
        let parts: Vec<usize> = without_repeats(steps).iter().map(Vec::len).collect();
        assert_eq!(parts, [2, 2]);
    }
}
