//! The dispatcher inside an instance that has the role: events on their way to the apps' sinks.

use ledger::outbox::{Clock, Dispatcher, DispatcherOptions, Event, SinkOptions, State, Waits};
use ledger::sink::{Sink, StreamSink, WebhookError, WebhookOptions, WebhookSink};
use ledger::{Subscription, Subscriptions};
use redis_scripts::RedisMillis;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use super::Node;
use crate::config::{App, SinkConfig, SinkKind};

/// How often what waits and what was given up is counted.
const COUNTED: Duration = Duration::from_secs(15);

/// The name of an app's sink among all sinks.
pub fn sink_name(app: &App, sink: &SinkConfig) -> String {
    format!("{}:{}", app.code, sink.name)
}

/// Which sinks are told of what.
pub fn subscriptions(apps: &[App]) -> Subscriptions {
    let of_app = |app: &App| -> Vec<(String, Subscription)> {
        let subscribe = |sink: &SinkConfig| {
            let name = sink_name(app, sink).into();
            (
                app.code.to_string(),
                Subscription { sink: name, ordered: sink.ordered, wants: sink.events.clone() },
            )
        };
        app.sinks.iter().map(subscribe).collect()
    };
    apps.iter().flat_map(of_app).collect()
}

fn sink(node: &Node, config: &SinkConfig) -> Result<Arc<dyn Sink>, WebhookError> {
    Ok(match &config.kind {
        SinkKind::Webhook { url, secrets } => Arc::new(WebhookSink::new(WebhookOptions {
            url: url.clone(),
            secrets: secrets.clone(),
            deadline: config.timeout,
            ca: None,
        })?),
        SinkKind::Stream { cap } => {
            let (scripts, keys) = (node.store.scripts.clone(), node.store.keys.clone());
            Arc::new(StreamSink::new(scripts, keys, *cap, config.timeout))
        }
    })
}

/// A dispatcher for the sinks of every app.
///
/// # Errors
/// There is no TLS to be had.
pub fn dispatcher(node: &Arc<Node>) -> Result<Dispatcher, WebhookError> {
    let (clock_of, told) = (Arc::clone(node), Arc::clone(node));
    let clock: Clock = Arc::new(move || RedisMillis::new(clock_of.redis_clock.now_ms()));
    let mut dispatcher = Dispatcher::new(
        node.books.ledger.clone(),
        DispatcherOptions::default(),
        node.bell.clone(),
        clock,
        Arc::new(move |event: Event| note(&told, &event)),
    );
    for app in &node.config.apps {
        for config in &app.sinks {
            let options = SinkOptions {
                concurrency: config.concurrency,
                waits: Waits { give_up_after: config.give_up, ..Waits::default() },
                ..SinkOptions::default()
            };
            dispatcher = dispatcher.serve(&sink_name(app, config), sink(node, config)?, options);
        }
    }
    Ok(dispatcher)
}

/// Delivers until `over`, and then what is in hand.
pub async fn run(node: Arc<Node>, dispatcher: Dispatcher, over: CancellationToken) {
    let counting = tokio::spawn(count(Arc::clone(&node), over.clone()));
    dispatcher.run(over).await;
    // It has no end but this one, and nothing in it panics.
    _ = counting.await;
}

async fn count(node: Arc<Node>, over: CancellationToken) {
    let mut every = tokio::time::interval(COUNTED);
    while over.run_until_cancelled(every.tick()).await.is_some() {
        let backlog = match node.books.ledger.outbox_backlog().await {
            Ok(backlog) => backlog,
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the outbox cannot be counted");
                continue;
            }
        };
        let (events, age) = (&node.metrics.outbox_events, &node.metrics.outbox_age_seconds);
        events.reset();
        age.reset();
        let now = node.redis_clock.now_ms();
        for waiting in backlog {
            let labels = [waiting.sink.as_str(), waiting.state.as_str()];
            events.with_label_values(&labels).set(i64::try_from(waiting.events).unwrap_or(i64::MAX));
            if waiting.state == State::Open {
                let waited = Duration::from_millis(now.saturating_sub(waiting.oldest.as_u64()));
                age.with_label_values(&[&waiting.sink]).set(waited.as_secs_f64());
            }
        }
    }
}

fn note(node: &Node, event: &Event) {
    let count = |sink: &str, result| node.metrics.deliveries.with_label_values(&[sink, result]).inc();
    match event {
        Event::Delivered { sink, age_ms, .. } => {
            count(sink, "delivered");
            node.metrics.delivery_seconds.observe(Duration::from_millis(*age_ms).as_secs_f64());
        }
        Event::Retrying { sink, why } => {
            tracing::debug!(%sink, why, "an event could not be delivered; it is tried again");
            count(sink, "retrying");
        }
        Event::Failed { sink, why } => {
            tracing::error!(%sink, why, "an event is given up: it is a dead letter");
            count(sink, "failed");
        }
        Event::Late { sink } => count(sink, "late"),
        Event::Opened { sink } => {
            tracing::warn!(%sink, "the sink fails again and again; it is left alone for a while");
            count(sink, "breaker_opened");
        }
        Event::Closed { sink } => {
            tracing::info!(%sink, "the sink answers again");
            count(sink, "breaker_closed");
        }
        Event::LedgerFailed { sink, unavailable, first } => {
            if *first {
                tracing::warn!(%sink, unavailable, "the outbox cannot be read or written");
            }
            count(sink, "ledger_failed");
        }
    }
}
