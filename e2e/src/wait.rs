//! Waiting for a state, with a bound.

use std::fmt::Debug;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Generous for anything that takes milliseconds on an idle machine: tests share two cores.
pub const SOON: Duration = Duration::from_secs(20);

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Asks `question` again and again until it answers `Ok`, and panics with its last answer when `within` is over.
///
/// This is the one timer of the tests: a state of another process cannot be waited for otherwise. Pauses grow
/// from 2 to 50 ms.
pub async fn eventually<T, E: Debug, F>(within: Duration, mut question: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
{
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        match timeout_at(deadline, question()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(not_yet)) => last = Some(not_yet),
            Err(_) => {
                panic!("not within {within:?}; the question itself took too long, before that: {last:?}")
            }
        }
        assert!(Instant::now() + pause < deadline, "not within {within:?}; last: {last:?}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks until `question` is true.
pub async fn until<F: Future<Output = bool>>(what: &str, within: Duration, mut question: impl FnMut() -> F) {
    eventually(within, || {
        let answer = question();
        async move { if answer.await { Ok(()) } else { Err(what) } }
    })
    .await;
}
