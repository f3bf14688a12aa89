//! What waits in a lane, taken in by a room that is recovered.

use redis_scripts::{CellVersion, SettingsVersion};

use crate::entry::{Change, Entry};
use crate::recover::{Answer, Recovered};
use crate::state::{Fold, RoomState, Step, What, settle};

impl Recovered {
    /// Takes in entries of the room that the ledger may not have yet, in the order in which they were committed; those
    /// that it has, and those of an owner whose time was over, are passed over. Returns how many cannot be read.
    pub fn take_in(&mut self, entries: Vec<Entry>) -> usize {
        let mut unreadable = 0;
        let mut fold = Fold {
            state: std::mem::take(&mut self.state),
            token: self.head.token.as_u64(),
            sv: self.head.sv.as_u64(),
            is_whole: !self.head.gap,
            reached: self.reached,
        };
        let mut steps = Vec::new();
        for entry in entries {
            if entry.token < self.head.token {
                continue;
            }
            if let Some(kept) = &entry.answer {
                self.answers.push(Answer { kept: kept.clone(), at: entry.at });
            }
            let read = match entry.change {
                Change::State { cv, sv } => {
                    fold.take_in(std::mem::take(&mut steps));
                    take_over(&mut fold, &entry, cv, sv)
                }
                Change::Instance => Ok(()),
                Change::Cell { .. } | Change::Settings { .. } | Change::Guest { .. } => {
                    step(&entry).map(|step| steps.extend(step))
                }
            };
            match read {
                Ok(()) => {
                    self.head.token = entry.token;
                    self.head.at = self.head.at.max(entry.at);
                }
                Err(why) => {
                    tracing::error!(
                        why,
                        entry = entry.entry,
                        "an entry cannot be read; the room goes on without it"
                    );
                    unreadable += 1;
                }
            }
        }
        fold.take_in(steps);
        if !fold.is_whole {
            settle(&mut fold.state.cell);
        }
        self.reached = fold.reached;
        self.state = fold.state;
        self.head.sv = SettingsVersion::new(fold.sv);
        self.head.cv = CellVersion::new(self.state.cell.version);
        self.head.status = self.state.cell.status.word().to_owned();
        unreadable
    }
}

fn take_over(fold: &mut Fold, entry: &Entry, cv: CellVersion, sv: SettingsVersion) -> Result<(), String> {
    if cv.as_u64() > fold.state.cell.version {
        *fold = Fold::from(RoomState::read(&entry.body, cv)?, entry.token.as_u64(), sv.as_u64());
    }
    Ok(())
}

fn step(entry: &Entry) -> Result<Option<Step>, String> {
    let position = entry.position();
    let what = What::read(entry.kind(), &entry.body).map_err(|error| error.to_string())?;
    Ok(what.map(|what| Step {
        counter: position.counter,
        token: entry.token.as_u64(),
        version: position.version,
        at: entry.at,
        what,
    }))
}
