//! Commands: decided together, committed together, and only then told and answered.

use redis_scripts::RedisMillis;
use room_cell::{Actor as By, Command, Event, Limits, Validated};
use socketioxide::socket::Sid;
use std::time::Duration;

use super::tenure::MOVE_SPREAD;
use super::{Actor, State};
use crate::config::App;
use crate::error::ApiError;
use crate::room::answer::{Answer, Done};
use crate::room::batch::{Batch, Outcome, Source, Step, recalled, without_repeats};
use crate::room::owned::CommitError;
use crate::room::work::{Ordered, Refusal, Work};

/// Attempts at one batch while commands in it turn out to be answered, or Redis to differ from memory.
const ATTEMPTS: u32 = 4;
/// Reports of the embedded media server that may wait for an outage to end.
const UNHEARD: usize = 256;
/// Commits with inbox entries may fail so often in a row; then the oldest entry is set aside.
pub(super) const STRIKES: u32 = 3;

impl Actor {
    /// The step that a piece of work is; what is none comes back.
    pub(super) fn step_of(&mut self, work: Work) -> Result<Step, Option<Work>> {
        match work {
            Work::Join(request, reply) => {
                if self.is_member(request.client.sid()) {
                    return Err(Some(Work::Join(request, reply)));
                }
                match self.joining(&request) {
                    Ok(order) => Ok(Step::new(order, Source::Join(request, Some(reply)))),
                    Err(error) => {
                        _ = reply.send(Err(error.into()));
                        Err(None)
                    }
                }
            }
            Work::Command(ordered, reply) => {
                let Ordered { order, connection, idempotency } = *ordered;
                let peer = match (&self.state, connection) {
                    (State::Owned(room), Some(sid)) => room.links().of_connection(sid).cloned(),
                    _ => None,
                };
                let step = Step::new(order.by_peer(peer), Source::Asked(idempotency, Some(reply)));
                Ok(self.recall(step))
            }
            Work::Media(report, generation) => {
                // What an older router says is of no consequence for the present one.
                if self.router != generation {
                    return Err(None);
                }
                let order =
                    Command::Media(*report).validate(By::Media, &Limits::default()).map_err(|_| None)?;
                let step = Step::new(order, Source::Own);
                if matches!(self.state, State::Suspended(_)) || self.unanswered.is_some() {
                    self.hear_later(step);
                    return Err(None);
                }
                Ok(step)
            }
            other => Err(Some(other)),
        }
    }

    /// Keeps what the media server said for when it can be committed.
    fn hear_later(&mut self, step: Step) {
        if self.unheard_media.len() < UNHEARD {
            self.unheard_media.push(step);
        } else {
            self.node.metrics.skipped.with_label_values(&["media_unheard"]).inc();
        }
    }

    /// Answers a step by what is remembered of its id.
    pub(super) fn recall(&self, step: Step) -> Step {
        let Some((caller, id, digest)) = step.key() else { return step };
        // What somebody asks here is asked now; what lies in the inbox was before.
        let sent_at = match &step.source {
            Source::Inbox(entry) => entry.at.as_u64(),
            _ => u64::MAX,
        };
        let outcome = match self.recent.of(caller, id, sent_at) {
            Some((of, answer)) => recalled(Some(digest), of, &answer.text()),
            None => return step,
        };
        step.answered(outcome)
    }

    /// Executes commands of the owner's own, now or not at all: what an outage delays is decided anew after it.
    pub(super) async fn execute_own(&mut self, commands: impl IntoIterator<Item = Command>) {
        let patience = u64::try_from(self.node.config.redis.command_timeout.as_millis()).unwrap_or(u64::MAX);
        let until = RedisMillis::new(self.redis_now().after(patience).0);
        let steps = commands
            .into_iter()
            .filter_map(|command| command.validate(By::Owner, &Limits::default()).ok())
            .map(|order: Validated| Step::new(order, Source::Own).until(until))
            .collect();
        self.execute(steps).await;
    }

    /// Decides steps, commits them, and answers each.
    pub(super) async fn execute(&mut self, steps: Vec<Step>) {
        for part in without_repeats(steps) {
            let part =
                part.into_iter().map(|step| if step.outcome().is_some() { step } else { self.recall(step) });
            let part = self.ask_media(part.collect()).await;
            self.execute_part(part).await;
        }
    }

    async fn execute_part(&mut self, mut steps: Vec<Step>) {
        let id = uuid::Uuid::now_v7().simple().to_string();
        for _ in 0..ATTEMPTS {
            if let Err(refusal) = self.settle().await {
                self.refuse_all(steps, refusal).await;
                return;
            }
            steps = self.welcome_members(steps).await;
            let (rules, now) = (self.app.rules(), self.redis_now());
            let State::Owned(room) = &mut self.state else {
                self.refuse_all(steps, Refusal::Gone).await;
                return;
            };
            let mut batch = Batch::stage(id.clone(), room.cell(), steps, &rules, now);
            if !batch.needs_commit() {
                self.answer_all(batch).await;
                return;
            }
            let due = due_of(&batch.cell, now.0, &self.app);
            let store = &self.node.store;
            match room.commit(store, &batch, due).await {
                Ok(()) => {
                    self.strikes = 0;
                    self.committed(batch).await;
                    return;
                }
                Err(CommitError::Again(repeats)) => {
                    batch.repeated(repeats);
                    steps = batch.steps;
                }
                Err(CommitError::Damaged) => {
                    steps = batch.steps;
                    self.damaged().await;
                }
                Err(CommitError::Ahead) => {
                    steps = batch.steps;
                    self.read_again("ahead").await;
                }
                Err(CommitError::Full) => {
                    if !batch.begins() {
                        // Timers find it full again: not at once.
                        self.settle_due =
                            Some(crate::clock::instant() + self.node.config.lease.retry_pause());
                    }
                    steps = batch.barred(&ApiError::ledger_full());
                }
                Err(CommitError::Unknown(error)) => {
                    // Past the lease it is not this owner who will learn what became of it.
                    let error = if self.serves() { ApiError::from(error) } else { ApiError::lease_lost() };
                    for step in &mut batch.steps {
                        refuse(step, &error);
                    }
                    self.went_unanswered(batch);
                    return;
                }
                Err(error) => {
                    if matches!(error, CommitError::Failed(_)) {
                        self.struck(&batch);
                    }
                    let error = self.failed(error).await;
                    self.refuse_all(batch.steps, error.into()).await;
                    return;
                }
            }
        }
        self.refuse_all(steps, ApiError::store_unavailable().into()).await;
    }

    /// Answers joins of connections that an earlier commit, long unanswered, let in.
    async fn welcome_members(&mut self, steps: Vec<Step>) -> Vec<Step> {
        let mut others = Vec::with_capacity(steps.len());
        for mut step in steps {
            match &mut step.source {
                Source::Join(request, reply) if self.is_member(request.client.sid()) => {
                    let answer = self.join_again(request).await;
                    _ = reply.take().map(|reply| reply.send(answer));
                }
                _ => others.push(step),
            }
        }
        others
    }

    fn is_member(&self, sid: Sid) -> bool {
        matches!(&self.state, State::Owned(room) if room.links().of_connection(sid).is_some())
    }

    pub(super) fn went_unanswered(&mut self, batch: Batch) {
        self.unanswered = Some(batch);
        self.settle_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause());
        self.unheard_since.get_or_insert_with(|| self.node.store_heard_at_ms());
    }

    fn struck(&mut self, batch: &Batch) {
        if batch.steps.iter().any(|step| matches!(step.source, Source::Inbox(_))) {
            self.strikes += 1;
            self.inbox_due = Some(crate::clock::instant() + self.node.config.lease.retry_pause());
        }
    }

    /// Sends an unanswered commit again, before anything else is decided.
    pub(super) async fn settle(&mut self) -> Result<(), Refusal> {
        self.serving()?;
        let Some(batch) = self.unanswered.take() else { return Ok(()) };
        let now = self.redis_now();
        let due = due_of(&batch.cell, now.0, &self.app);
        let store = &self.node.store;
        let State::Owned(room) = &mut self.state else { return Err(Refusal::Gone) };
        match room.commit(store, &batch, due).await {
            Ok(()) => {
                self.settle_due = None;
                self.committed(batch).await;
            }
            Err(CommitError::Unknown(error)) => {
                self.went_unanswered(batch);
                return Err(ApiError::from(error).into());
            }
            // It had not been executed, and cannot be any more as it is. Its callers know that they do not know.
            Err(CommitError::Again(_) | CommitError::Full) => self.settle_due = None,
            Err(CommitError::Damaged) => self.damaged().await,
            Err(CommitError::Ahead) => self.read_again("ahead").await,
            Err(error) => return Err(self.failed(error).await.into()),
        }
        self.serving()?;
        if self.unanswered.is_some() { Err(ApiError::store_unavailable().into()) } else { Ok(()) }
    }

    /// What follows once Redis has acknowledged a batch: links, what others are told, the answers.
    pub(super) async fn committed(&mut self, mut batch: Batch) {
        if !self.serves() {
            // Redis has it, but the lease ran out before it said so. Whoever has the room next tells the rest; it
            // is told from here if that is this instance.
            for step in &mut batch.steps {
                late_answer(step);
            }
            self.went_unanswered(batch);
            return;
        }
        self.node.metrics.commits.inc();
        self.follow_links(&batch);
        self.tell_batch(&batch).await;
        let did = |fits: fn(&Event) -> bool| batch.steps.iter().flat_map(Step::events).any(fits);
        if did(|event| matches!(event, Event::Shifted { .. })) {
            self.owed_ms = 0;
        }
        if did(|event| matches!(event, Event::Reopened { .. })) {
            self.enter_reopened().await;
        }
        self.follow_external(&batch);
        self.answer_all(batch).await;
        self.leave_closed().await;
    }

    async fn answer_all(&mut self, batch: Batch) {
        let mut view = None;
        for mut step in batch.steps {
            let command = step.order.as_ref().map_or("unknown", |order| order.command().name());
            let (label, is_done) = match step.outcome() {
                Some(Outcome::Done(..)) => ("ok", true),
                Some(Outcome::Refused(error) | Outcome::Barred(error)) => (error.code.as_str(), false),
                Some(Outcome::Kept(_)) => ("repeated", true),
                None => ("unknown", false),
            };
            self.node.metrics.commands.with_label_values(&[command, label]).inc();
            match (step.key(), step.outcome()) {
                (Some(key), Some(Outcome::Done(done, _))) => {
                    self.recent.remember(key, Answer::Done(done.clone()));
                }
                // Whoever may come again does so by the same id: only what is final holds for its copies.
                (Some(key), Some(Outcome::Refused(error))) if !error.code.is_retryable() => {
                    self.recent.refused(key, Answer::refused(error), self.node.redis_clock.now_ms());
                }
                _ => {}
            }
            let outcome = step.outcome().cloned();
            match &mut step.source {
                Source::Join(request, reply) => {
                    let Some(reply) = reply.take() else { continue };
                    let answer = match outcome {
                        Some(Outcome::Refused(error) | Outcome::Barred(error)) => Err(error.into()),
                        _ => self.welcome(&request.peer, &mut view).await,
                    };
                    _ = reply.send(answer);
                }
                Source::Asked(_, reply) => {
                    let Some(reply) = reply.take() else { continue };
                    _ = reply.send(result_of(outcome));
                }
                Source::Return(client) if !is_done => {
                    tracing::warn!(label, "somebody who is connected could not be put back");
                    client.evict(&self.names, "kicked");
                }
                Source::Return(_) | Source::Inbox(_) | Source::Own => {}
            }
        }
    }

    async fn refuse_all(&mut self, steps: Vec<Step>, refusal: Refusal) {
        let error = match refusal {
            Refusal::Api(error) => Some(error),
            Refusal::Gone => None,
        };
        for mut step in steps {
            if let Source::Return(client) = &step.source {
                self.tell_one_to_move(client, "lease_lost", "", MOVE_SPREAD);
            }
            if let Some(order) = &step.order
                && matches!(order.command(), Command::Media(_))
                && matches!(step.source, Source::Own)
            {
                self.hear_later(step);
                continue;
            }
            match &error {
                Some(error) => refuse(&mut step, error),
                // Dropping the reply says that the actor is gone.
                None => drop(step),
            }
        }
    }
}

/// What a caller is told of what became of its command.
fn result_of(outcome: Option<Outcome>) -> Result<Done, Refusal> {
    let result = match outcome {
        Some(Outcome::Done(done, _)) => Ok(done),
        Some(Outcome::Refused(error) | Outcome::Barred(error)) => Err(error),
        Some(Outcome::Kept(answer)) => answer.into_result(),
        None => Err(ApiError::lease_lost()),
    };
    result.map_err(Refusal::from)
}

/// The answer to what was committed, but not before the lease ran out.
fn late_answer(step: &mut Step) {
    let outcome = step.outcome().cloned();
    if let Source::Asked(_, reply) = &mut step.source
        && let Some(reply) = reply.take()
    {
        _ = reply.send(result_of(outcome));
        return;
    }
    refuse(step, &ApiError::lease_lost());
}

fn refuse(step: &mut Step, error: &ApiError) {
    match &mut step.source {
        Source::Join(_, reply) => {
            if let Some(reply) = reply.take() {
                _ = reply.send(Err(error.clone().into()));
            }
        }
        Source::Asked(_, reply) => {
            if let Some(reply) = reply.take() {
                _ = reply.send(Err(error.clone().into()));
            }
        }
        // An inbox entry stays where it is, and is read again; timers come again by their time.
        Source::Return(_) | Source::Inbox(_) | Source::Own => {}
    }
}

/// When somebody must look at the room who does not own it: at its next deadline, when its people have not been
/// seen for a while, or when it closes because it is idle.
pub(super) fn due_of(cell: &room_cell::Cell, now_ms: u64, app: &App) -> Option<RedisMillis> {
    let after = |wait: Duration| now_ms.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let people = (!cell.users.is_empty()).then(|| after(app.people_horizon()));
    let idle = cell.closes_when_idle().then(|| after(app.idle));
    let duties = (!cell.duties.is_empty()).then(|| after(app.reconcile));
    let deadline = cell.next_deadline().map(|deadline| deadline.0);
    people.into_iter().chain(idle).chain(duties).chain(deadline).min().map(RedisMillis::new)
}
