//! To whom a room is offered that nobody owns.

use key_prefix::{Instance, RoomKey};

/// The instance to which a room is offered: by rendezvous hashing of the route key and the instance's name, so
/// that only the rooms of an instance that comes or goes move.
pub(crate) fn place<'a>(room: &RoomKey, instances: &'a [Instance]) -> Option<&'a Instance> {
    let weight = |instance: &Instance| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(room.route().as_bytes());
        hasher.update(&[0]);
        hasher.update(instance.name().as_bytes());
        *hasher.finalize().as_bytes()
    };
    instances.iter().max_by_key(|instance| (weight(instance), instance.incarnation()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use key_prefix::{AppCode, RoomId};

    fn room(id: &str) -> RoomKey {
        RoomKey::new(AppCode::new("school").unwrap(), RoomId::new(id).unwrap())
    }

    #[test]
    fn a_room_goes_to_one_and_stays_when_others_come_or_go() {
        let all: Vec<Instance> = ["a/1", "b/2", "c/3"].map(|name| name.parse().unwrap()).into();
        let mut shares = [0; 3];
        for n in 0..300 {
            let room = room(&format!("r{n}"));
            let chosen = place(&room, &all).unwrap();
            shares[all.iter().position(|it| it == chosen).unwrap()] += 1;
            let without_c = place(&room, &all[..2]).unwrap();
            assert!(chosen == &all[2] || chosen == without_c);
            let reversed: Vec<Instance> = all.iter().rev().cloned().collect();
            assert_eq!(place(&room, &reversed), Some(chosen));
        }
        assert!(shares.iter().all(|share| *share > 60), "{shares:?}");
        assert_eq!(place(&room("r"), &[]), None);
    }

    #[test]
    fn of_two_incarnations_the_newer_is_chosen() {
        let both: Vec<Instance> = ["a/2", "a/1"].map(|name| name.parse().unwrap()).into();
        assert_eq!(place(&room("r"), &both), Some(&both[0]));
    }
}
