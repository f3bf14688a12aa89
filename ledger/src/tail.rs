//! What waits in a lane, taken in by a room that is recovered.

use redis_scripts::CellVersion;

use crate::entry::{Change, Entry};
use crate::recover::{Answer, Recovered};
use crate::state::{Fold, RoomState, Step, What};

impl Recovered {
    /// Takes in entries of the room that the ledger may not have yet, in the order in which they were committed; those
    /// that it has, and those of an owner whose time was over, are passed over. Returns how many cannot be read.
    pub fn take_in(&mut self, entries: Vec<Entry>) -> usize {
        let mut unreadable = 0;
        for entry in entries {
            let stands_at = (self.head.token, self.state.cell.version, self.head.sv.as_u64());
            if entry.token < stands_at.0 {
                continue;
            }
            if let Some(kept) = &entry.answer {
                self.answers.push(Answer { kept: kept.clone(), at: entry.at });
            }
            let read = match entry.change {
                Change::State { cv, sv } => self.take_over(&entry, cv, sv.as_u64()),
                Change::Instance => Ok(()),
                Change::Cell { .. } | Change::Settings { .. } | Change::Guest { .. } => self.step(&entry),
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
        self.head.cv = CellVersion::new(self.state.cell.version);
        self.head.status = self.state.cell.status.word().to_owned();
        unreadable
    }

    fn take_over(&mut self, entry: &Entry, cv: CellVersion, sv: u64) -> Result<(), String> {
        if cv.as_u64() > self.state.cell.version {
            self.state = RoomState::read(&entry.body, cv)?;
            self.head.sv = redis_scripts::SettingsVersion::new(sv);
        }
        Ok(())
    }

    fn step(&mut self, entry: &Entry) -> Result<(), String> {
        let position = entry.position();
        let Some(what) = What::read(entry.kind(), &entry.body).map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let step = Step {
            counter: position.counter,
            token: entry.token.as_u64(),
            version: position.version,
            at: entry.at,
            what,
        };
        let mut fold =
            Fold::from(std::mem::take(&mut self.state), self.head.token.as_u64(), self.head.sv.as_u64());
        fold.take_in(vec![step]);
        self.head.sv = redis_scripts::SettingsVersion::new(fold.sv);
        self.state = fold.state;
        Ok(())
    }
}
