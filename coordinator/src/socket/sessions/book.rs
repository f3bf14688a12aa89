//! Sessions by socket and by user, and what falls due for them.

use socketioxide::socket::Sid;
use std::collections::{BTreeSet, HashMap};

use super::UserKey;

/// A client is warned so long before its token ends.
pub(super) const WARNING_MS: u64 = 60_000;

/// What a session is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// Its token ends soon.
    Expiring {
        /// In so long.
        in_ms: u64,
    },
    /// Its token has ended.
    Expired,
}

#[derive(Debug)]
struct Entry<C> {
    client: C,
    user: UserKey,
    expires_at_ms: u64,
    /// When it is to be looked at; `None`: it has been told all.
    due_at_ms: Option<u64>,
}

/// The sessions. Times are Unix milliseconds.
#[derive(Debug)]
pub(super) struct Book<C> {
    by_socket: HashMap<Sid, Entry<C>>,
    by_user: HashMap<UserKey, BTreeSet<Sid>>,
    due: BTreeSet<(u64, Sid)>,
}

impl<C> Default for Book<C> {
    fn default() -> Self {
        Self { by_socket: HashMap::new(), by_user: HashMap::new(), due: BTreeSet::new() }
    }
}

impl<C> Book<C> {
    pub(super) fn len(&self) -> usize {
        self.by_socket.len()
    }

    pub(super) fn has(&self, sid: Sid) -> bool {
        self.by_socket.contains_key(&sid)
    }

    /// Notes a session, or another token of one. Says whether it is the next that falls due.
    pub(super) fn open(&mut self, sid: Sid, user: UserKey, client: C, expires_at_ms: u64) -> bool {
        self.close(sid);
        let due_at_ms = expires_at_ms.saturating_sub(WARNING_MS);
        self.by_user.entry(user.clone()).or_default().insert(sid);
        self.by_socket.insert(sid, Entry { client, user, expires_at_ms, due_at_ms: Some(due_at_ms) });
        self.due.insert((due_at_ms, sid));
        self.due.first() == Some(&(due_at_ms, sid))
    }

    /// Forgets a session; says whose it was.
    pub(super) fn close(&mut self, sid: Sid) -> Option<UserKey> {
        let entry = self.by_socket.remove(&sid)?;
        if let Some(at) = entry.due_at_ms {
            self.due.remove(&(at, sid));
        }
        if let Some(sids) = self.by_user.get_mut(&entry.user) {
            sids.remove(&sid);
            if sids.is_empty() {
                self.by_user.remove(&entry.user);
            }
        }
        Some(entry.user)
    }

    pub(super) fn of_user(&self, user: &UserKey) -> impl Iterator<Item = &C> {
        let sids = self.by_user.get(user).into_iter().flatten();
        sids.filter_map(|sid| self.by_socket.get(sid)).map(|entry| &entry.client)
    }

    pub(super) fn users(&self) -> impl Iterator<Item = &UserKey> {
        self.by_user.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Sid, &UserKey, &C)> {
        self.by_socket.iter().map(|(sid, entry)| (*sid, &entry.user, &entry.client))
    }

    /// When the next falls due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }
}

impl<C: Clone> Book<C> {
    /// At most `limit` of what has fallen due, oldest first. Each is said once.
    pub(super) fn take_due(&mut self, now_ms: u64, limit: usize) -> Vec<(C, Notice)> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some((at, sid)) = self.due.first().copied()
            && at <= now_ms
        {
            self.due.pop_first();
            let Some(entry) = self.by_socket.get_mut(&sid) else { continue };
            let in_ms = entry.expires_at_ms.saturating_sub(now_ms);
            entry.due_at_ms = (in_ms > 0).then_some(entry.expires_at_ms);
            if let Some(at) = entry.due_at_ms {
                self.due.insert((at, sid));
            }
            let notice = if in_ms > 0 { Notice::Expiring { in_ms } } else { Notice::Expired };
            taken.push((entry.client.clone(), notice));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use key_prefix::{AppCode, UserId};

    const FAR: u64 = 10_000_000;

    fn user(app: &str, user: &str) -> UserKey {
        UserKey { app: AppCode::new(app).unwrap(), user: UserId::new(user).unwrap() }
    }

    fn sids<const N: usize>() -> [Sid; N] {
        std::array::from_fn(|_| Sid::new())
    }

    fn of(book: &Book<u32>, key: &UserKey) -> Vec<u32> {
        let mut clients: Vec<_> = book.of_user(key).copied().collect();
        clients.sort_unstable();
        clients
    }

    #[test]
    fn a_user_is_found_with_all_its_sessions_and_no_others() {
        let [a, b, c, d] = sids();
        let (ann, bob, elsewhere) = (user("school", "ann"), user("school", "bob"), user("office", "ann"));
        let mut book = Book::default();
        for (client, (sid, key)) in [(a, &ann), (b, &ann), (c, &bob), (d, &elsewhere)].into_iter().enumerate()
        {
            book.open(sid, key.clone(), u32::try_from(client).unwrap(), FAR);
        }
        assert_eq!((of(&book, &ann), of(&book, &bob), of(&book, &elsewhere)), (vec![0, 1], vec![2], vec![3]));
        assert_eq!(book.close(a), Some(ann.clone()));
        assert_eq!(book.close(a), None, "once");
        assert_eq!(of(&book, &ann), [1]);
        book.close(b);
        assert_eq!((of(&book, &ann).len(), book.users().count(), book.len()), (0, 2, 2));
        assert_eq!(book.due.len(), 2, "nothing falls due for who is gone");
    }

    #[test]
    fn a_token_is_warned_of_once_and_ends_once() {
        let [a] = sids();
        let mut book = Book::default();
        assert!(book.open(a, user("school", "ann"), 1, FAR));
        assert_eq!(book.next_due(), Some(FAR - WARNING_MS));
        assert_eq!(book.take_due(FAR - WARNING_MS - 1, 9), []);
        assert_eq!(book.take_due(FAR - WARNING_MS, 9), [(1, Notice::Expiring { in_ms: WARNING_MS })]);
        assert_eq!(book.next_due(), Some(FAR));
        assert_eq!(book.take_due(FAR - 1, 9), []);
        assert_eq!(book.take_due(FAR, 9), [(1, Notice::Expired)]);
        assert_eq!((book.take_due(FAR + 1, 9), book.next_due()), (vec![], None));
        assert!(book.has(a), "it is here until it is gone");
    }

    #[test]
    fn a_short_token_is_warned_of_at_once_and_an_ended_one_not_at_all() {
        let [a, b] = sids();
        let mut book = Book::default();
        book.open(a, user("school", "ann"), 1, FAR + 5_000);
        book.open(b, user("school", "bob"), 2, FAR);
        assert_eq!(book.take_due(FAR, 9), [(2, Notice::Expired), (1, Notice::Expiring { in_ms: 5_000 })]);
        assert_eq!(book.take_due(FAR + 5_000, 9), [(1, Notice::Expired)]);
    }

    #[test]
    fn another_token_takes_the_place_of_the_one_before() {
        let [a, b] = sids();
        let mut book = Book::default();
        book.open(a, user("school", "ann"), 1, FAR);
        assert!(!book.open(b, user("school", "bob"), 2, FAR + 1), "it is not the next");
        assert_eq!(book.take_due(FAR - WARNING_MS, 9).len(), 1);
        book.open(a, user("school", "ann"), 1, 2 * FAR);
        assert_eq!(book.take_due(FAR + 1, 9), [(2, Notice::Expired)]);
        assert_eq!((book.len(), of(&book, &user("school", "ann"))), (2, vec![1]));
        assert_eq!(book.take_due(2 * FAR - WARNING_MS, 9).len(), 1, "warned of anew");
    }

    #[test]
    fn what_ends_at_once_is_taken_in_parts() {
        let mut book = Book::default();
        for client in 0..5_u32 {
            book.open(Sid::new(), user("school", "ann"), client, FAR);
        }
        let parts: Vec<_> = (0..4).map(|_| book.take_due(FAR, 2).len()).collect();
        assert_eq!(parts, [2, 2, 1, 0]);
    }
}
