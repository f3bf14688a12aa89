//! Who is dead, by one's own observation.

use key_prefix::Instance;
use redis_scripts::RedisMillis;
use std::collections::HashMap;
use std::time::Duration;

/// Says which instances have not been heard of for `failover_wait`, on the clock of whoever asks.
///
/// It is told the scores again and again, each time with the own time. A score says nothing by its age: clocks
/// differ and step. Only that it stayed the same while the observer looked on counts. Who vanishes from the list
/// is forgotten, and seen for the first time if it comes back.
#[derive(Debug)]
pub struct Observer {
    failover_wait: Duration,
    seen: HashMap<Instance, Sighting>,
    last: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    score: RedisMillis,
    since: Duration,
}

impl Observer {
    /// An observer that has seen nobody yet.
    pub fn new(failover_wait: Duration) -> Self {
        Self { failover_wait, seen: HashMap::new(), last: None }
    }

    /// Takes the scores as they are `now`, and returns those that stayed unchanged for `failover_wait`.
    ///
    /// If the last look was longer ago than half of that, the observer itself was away and cannot say what
    /// happened meanwhile: it counts anew.
    pub fn observe(
        &mut self,
        now: Duration,
        heartbeats: &[(Instance, RedisMillis)],
    ) -> Vec<(Instance, RedisMillis)> {
        if self.last.is_some_and(|last| now.saturating_sub(last) > self.failover_wait / 2) {
            self.disturbed(now);
        }
        self.last = Some(now);
        let earlier = std::mem::take(&mut self.seen);
        let mut dead = Vec::new();
        for (instance, score) in heartbeats {
            let known = earlier.get(instance).filter(|sighting| sighting.score == *score);
            let sighting = known.copied().unwrap_or(Sighting { score: *score, since: now });
            if now.saturating_sub(sighting.since) >= self.failover_wait {
                dead.push((instance.clone(), *score));
            }
            self.seen.insert(instance.clone(), sighting);
        }
        dead
    }

    /// The living may have been kept from renewing until `now`: nobody is dead for one `failover_wait`.
    pub fn disturbed(&mut self, now: Duration) {
        for sighting in self.seen.values_mut() {
            sighting.since = sighting.since.max(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WAIT: Duration = Duration::from_secs(25);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn beat(name: &str, score: u64) -> (Instance, RedisMillis) {
        (format!("{name}/1").parse().unwrap(), RedisMillis::new(score))
    }

    fn watch(observer: &mut Observer, seconds: std::ops::Range<u64>, heartbeats: &[(Instance, RedisMillis)]) {
        for second in seconds.step_by(5) {
            assert_eq!(observer.observe(at(second), heartbeats), [], "at {second} s");
        }
    }

    #[test]
    fn who_is_unchanged_for_the_whole_wait_is_dead() {
        let mut observer = Observer::new(WAIT);
        watch(&mut observer, 100..125, &[beat("a", 7)]);
        assert_eq!(observer.observe(at(125), &[beat("a", 7)]), [beat("a", 7)]);
    }

    #[test]
    fn the_age_of_a_score_says_nothing() {
        let mut observer = Observer::new(WAIT);
        assert_eq!(observer.observe(at(1_000_000), &[beat("a", 0)]), []);
    }

    #[test]
    fn any_change_is_a_sign_of_life_also_one_into_the_past() {
        let mut observer = Observer::new(WAIT);
        watch(&mut observer, 0..25, &[beat("a", 9)]);
        watch(&mut observer, 25..50, &[beat("a", 3)]);
        assert_eq!(observer.observe(at(50), &[beat("a", 3)]), [beat("a", 3)]);
    }

    #[test]
    fn after_a_disturbance_nobody_is_dead_for_one_wait() {
        let mut observer = Observer::new(WAIT);
        watch(&mut observer, 0..25, &[beat("a", 9)]);
        observer.disturbed(at(24));
        watch(&mut observer, 25..45, &[beat("a", 9)]);
        assert_eq!(observer.observe(at(49), &[beat("a", 9)]), [beat("a", 9)]);
    }

    #[test]
    fn an_observer_that_was_away_counts_anew() {
        let mut observer = Observer::new(WAIT);
        watch(&mut observer, 0..25, &[beat("a", 9)]);
        watch(&mut observer, 1000..1025, &[beat("a", 9)]);
        assert_eq!(observer.observe(at(1025), &[beat("a", 9)]), [beat("a", 9)]);
    }

    #[test]
    fn who_vanished_is_forgotten() {
        let mut observer = Observer::new(WAIT);
        watch(&mut observer, 0..25, &[beat("a", 9)]);
        assert_eq!(observer.observe(at(25), &[]), []);
        watch(&mut observer, 26..50, &[beat("a", 9)]);
    }

    proptest! {
        #[test]
        fn nobody_is_dead_who_changed_within_the_wait(
            steps in prop::collection::vec((0_u64..12_000, 0_u64..3, any::<bool>()), 1..60)
        ) {
            let mut observer = Observer::new(WAIT);
            let mut now = Duration::ZERO;
            let mut quiet_since = Duration::ZERO;
            let mut last_score = None;
            for (pause, score, disturb) in steps {
                now += Duration::from_millis(pause);
                if disturb {
                    observer.disturbed(now);
                    quiet_since = now;
                }
                if last_score.replace(score) != Some(score) {
                    quiet_since = now;
                }
                let dead = observer.observe(now, &[beat("a", score)]);
                prop_assert_eq!(dead.is_empty(), now - quiet_since < WAIT);
            }
        }
    }
}
