//! What the ledger has of one room: its head, and the whole of it.

use key_prefix::RoomKey;
use redis_scripts::{CellVersion, FenceToken, RedisMillis, SettingsVersion};

use crate::Ledger;
use crate::archive::{self, Snapshot, Standing, lanes};
use crate::db::{For, Tx};
use crate::entry::{Counter, KeptAnswer, RoomDigest};
use crate::error::LedgerError;
use crate::state::{Reached, RoomState};

/// For how long a repeated command gets its first answer again.
const ANSWERS_MS: u64 = 24 * 3_600_000;

/// Most answers that a recovery brings back.
const ANSWERS: u64 = 10_000;

/// The newest position that the ledger has of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The token of its newest entry.
    pub token: FenceToken,
    /// The cell's version.
    pub cv: CellVersion,
    /// The version of settings and guest states.
    pub sv: SettingsVersion,
    /// The room's status.
    pub status: String,
    /// When its newest entry was committed.
    pub at: RedisMillis,
    /// Whether the log lacks something: what [`Ledger::room`] gives may differ from what was.
    pub gap: bool,
    /// Whether its newest owner went on from less than the ledger had, and nobody has compared the two since.
    pub went_back: bool,
}

/// A room out of the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// Where it stands.
    pub head: Head,
    /// All of it. The versions are those of the head, unless there is a gap.
    pub state: RoomState,
    /// Answers of the 24 hours before its newest entry, oldest first.
    pub answers: Vec<Answer>,
    pub(crate) reached: Reached,
}

/// An answer that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The answer.
    pub kept: KeptAnswer,
    /// When the command was committed.
    pub at: RedisMillis,
}

impl From<&Standing> for Head {
    fn from(standing: &Standing) -> Self {
        Self {
            token: FenceToken::new(standing.token),
            cv: CellVersion::new(standing.cv),
            sv: SettingsVersion::new(standing.sv),
            status: standing.status.clone(),
            at: RedisMillis::new(standing.at),
            gap: standing.gap,
            went_back: false,
        }
    }
}

impl Ledger {
    /// The head of a room; none of a room that the ledger never heard of.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn head(&self, room: &RoomKey) -> Result<Option<Head>, LedgerError> {
        Ok(self.heads([room]).await?.pop().flatten())
    }

    /// The heads of several rooms, in their order.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn heads(
        &self,
        rooms: impl IntoIterator<Item = &RoomKey>,
    ) -> Result<Vec<Option<Head>>, LedgerError> {
        let keys: Vec<_> = rooms.into_iter().map(|room| RoomDigest::of(room.route())).collect();
        let read = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let found = archive::read_heads(&mut tx, &keys.iter().collect::<Vec<_>>()).await?;
            let mut heads = Vec::with_capacity(keys.len());
            for key in &keys {
                let mut head = found.get(key).map(Head::from);
                if let Some(head) = head.as_mut().filter(|head| head.gap) {
                    head.went_back = went_back(&mut tx, key, head.token).await?;
                }
                heads.push(head);
            }
            tx.commit().await?;
            Ok(heads)
        };
        self.db.within(read).await
    }

    /// The newest versions, of the cell and of settings, that the ledger has of a room from owners before this token.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn before(
        &self,
        room: &RoomKey,
        token: FenceToken,
    ) -> Result<(CellVersion, SettingsVersion), LedgerError> {
        let key = RoomDigest::of(room.route());
        let read = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let [cv, sv] = newest_before(&mut tx, &key, token).await?;
            tx.commit().await?;
            Ok((CellVersion::new(cv), SettingsVersion::new(sv)))
        };
        self.db.within(read).await
    }

    /// A room as its log has it.
    ///
    /// # Errors
    ///
    /// The database cannot be used, or the room's snapshot cannot be read.
    pub async fn room(&self, room: &RoomKey) -> Result<Option<Recovered>, LedgerError> {
        let key = RoomDigest::of(room.route());
        let read = async {
            let mut tx = self.db.begin(For::Reading).await?;
            let Some(standing) = standing(&mut tx, &key).await? else {
                tx.commit().await?;
                return Ok(None);
            };
            let (mut fold, steps) = archive::load(&mut tx, &key).await?;
            fold.take_in(steps);
            let answers = answers(&mut tx, &key, standing.at).await?;
            tx.commit().await?;
            let mut head = Head::from(&standing);
            head.gap |= !fold.is_whole;
            Ok(Some(Recovered { head, state: fold.state, answers, reached: fold.reached }))
        };
        self.db.within(read).await
    }

    /// Takes a living room's state for what its log came to, which heals a gap. Of an owner whose time is over it is
    /// not taken, nor is one that is behind what the ledger has, or that went on from less; then the answer is `false`.
    ///
    /// # Errors
    ///
    /// The database cannot be used.
    pub async fn put_snapshot(
        &self,
        room: &RoomKey,
        token: FenceToken,
        state: &RoomState,
        cv: CellVersion,
        sv: SettingsVersion,
        at: RedisMillis,
    ) -> Result<bool, LedgerError> {
        let key = RoomDigest::of(room.route());
        let lane = key_prefix::lane_of(room.route());
        let snapshot =
            Snapshot { token: token.as_u64(), cv: cv.as_u64(), sv: sv.as_u64(), body: state.to_body() };
        let put = async {
            let mut tx = self.db.begin(For::Writing).await?;
            lanes::make(&mut tx, &[lane], at).await?;
            lanes::lock(&mut tx, &[lane]).await?;
            let found = standing(&mut tx, &key).await?;
            let mut head = found.unwrap_or_else(|| Standing::new(room));
            let is_behind = (snapshot.token, snapshot.cv) < (head.token, head.cv)
                || (snapshot.token, snapshot.sv) < (head.token, head.sv);
            if is_behind || went_back(&mut tx, &key, token).await? {
                tx.commit().await?;
                return Ok(false);
            }
            head = Standing {
                token: snapshot.token,
                cv: snapshot.cv,
                sv: snapshot.sv,
                status: state.cell.status.word().to_owned(),
                created_at: state.created_at.as_u64(),
                at: head.at.max(at.as_u64()),
                gap: false,
                unfolded: 0,
                ..head
            };
            archive::write_heads(&mut tx, vec![(&key, &head)]).await?;
            archive::write_snapshots(&mut tx, vec![(&key, &snapshot)]).await?;
            tx.commit().await?;
            Ok(true)
        };
        self.db.within(put).await
    }
}

/// By counter.
const COUNTERS: [Counter; 2] = [Counter::Cell, Counter::Settings];

async fn newest_before(tx: &mut Tx, room: &RoomDigest, token: FenceToken) -> Result<[u64; 2], LedgerError> {
    let mut newest = [0; 2];
    let covered = tx.sql("SELECT cv, sv FROM snapshots WHERE room_key = ? AND token < ?");
    if let Some(row) = tx.row(covered.text(room.as_str()).number(token.as_u64())).await? {
        newest = [row.number(0)?, row.number(1)?];
    }
    for (counter, newest) in COUNTERS.into_iter().zip(&mut newest) {
        let sql = tx.sql(
            "SELECT MAX(version) FROM log WHERE room_key = ? AND counter = ? AND token < ? AND superseded = 0",
        );
        let sql = sql.text(room.as_str()).number(counter as u64).number(token.as_u64());
        let logged = tx.row(sql).await?.map(|row| row.maybe_number(0)).transpose()?.flatten();
        *newest = (*newest).max(logged.unwrap_or_default());
    }
    Ok(newest)
}

/// Whether the owner with this token began below what the ledger had, and nothing says yet what came of the two.
async fn went_back(tx: &mut Tx, room: &RoomDigest, token: FenceToken) -> Result<bool, LedgerError> {
    let covered = tx.sql("SELECT 1 FROM snapshots WHERE room_key = ? AND token >= ?");
    if tx.row(covered.text(room.as_str()).number(token.as_u64())).await?.is_some() {
        return Ok(false);
    }
    let newest = newest_before(tx, room, token).await?;
    for (counter, newest) in COUNTERS.into_iter().zip(newest) {
        let sql = tx.sql(
            "SELECT MIN(version) FROM log WHERE room_key = ? AND counter = ? AND token = ? AND superseded = 0",
        );
        let sql = sql.text(room.as_str()).number(counter as u64).number(token.as_u64());
        let first = tx.row(sql).await?.map(|row| row.maybe_number(0)).transpose()?.flatten();
        if first.is_some_and(|first| first <= newest) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn standing(tx: &mut Tx, room: &RoomDigest) -> Result<Option<Standing>, LedgerError> {
    Ok(archive::read_heads(tx, &[room]).await?.remove(room))
}

async fn answers(tx: &mut Tx, room: &RoomDigest, newest: u64) -> Result<Vec<Answer>, LedgerError> {
    let sql = tx.sql(
        "SELECT caller, command_id, answer_digest, answer, at_ms FROM log \
         WHERE room_key = ? AND at_ms >= ? AND command_id IS NOT NULL AND superseded = 0 ORDER BY seq DESC LIMIT ?",
    );
    let sql = sql.text(room.as_str()).number(newest.saturating_sub(ANSWERS_MS)).number(ANSWERS);
    let mut answers = Vec::new();
    for row in tx.rows(sql).await? {
        let kept = KeptAnswer {
            caller: row.maybe_text(0)?.unwrap_or_default(),
            id: row.maybe_text(1)?.unwrap_or_default(),
            digest: row.maybe_text(2)?.unwrap_or_default(),
            answer: row.maybe_text(3)?.unwrap_or_default(),
        };
        answers.push(Answer { kept, at: RedisMillis::new(row.number(4)?) });
    }
    answers.reverse();
    Ok(answers)
}
