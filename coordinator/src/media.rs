//! The media servers of this instance, and what every grant names beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit as _, Mac as _};
use media_bridge::{
    AgoraConfig, AgoraServer, ApiTokens, ClockMs, GenericConfig, GenericServer, Guard, IceServer,
    JanusConfig, JanusPlugin, JanusServer, LivekitConfig, LivekitServer, MediaError, MediaServer,
    MonitorNames, Names, Node as MediaNode, NodeState, Nodes, Router, TrtcConfig, TrtcServer,
};
use sha1::Sha1;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Media, MediaServerConfig, Secret, Turn};
use crate::node::{random_below, random_pause};

/// The media servers that rooms of this instance use, and the names that they are known by there.
#[derive(Debug, Default)]
pub struct MediaServers {
    /// The servers.
    pub nodes: Nodes,
    /// Names of routers and participants.
    pub names: Names,
    monitors: HashMap<Arc<str>, MonitorNames>,
    turn: Turn,
}

impl MediaServers {
    /// The external media servers of a configuration. `scope` keeps their names apart from those of other
    /// coordinators.
    ///
    /// # Errors
    /// `Unavailable` if one of them cannot be used at all.
    pub fn new(config: &Config, scope: &str, clock: &ClockMs) -> Result<Self, MediaError> {
        let (mut nodes, mut monitors) = (Vec::new(), HashMap::new());
        for media in &config.media {
            if let Some(secret) = media.server.secret() {
                let names = MonitorNames::new(media.kind(), secret.expose().as_bytes());
                monitors.insert(Arc::clone(&media.name), names);
            }
            if let Some(server) = server(media, clock)? {
                let guard = Guard::new(server, media.deadline);
                nodes.push(Arc::new(MediaNode::new(Arc::clone(&media.name), guard, media.weight)));
            }
        }
        Ok(Self { nodes: Nodes::new(nodes), names: Names::new(scope), monitors, turn: config.turn.clone() })
    }

    /// Checks every server until told to end.
    pub fn watch(self: &Arc<Self>, config: &Config, ending: &CancellationToken) {
        for node in self.nodes.all() {
            let Some(media) = config.media.iter().find(|media| media.name == node.name) else { continue };
            let (servers, node, checks) = (Arc::clone(self), Arc::clone(node), media.checks);
            let ending = ending.clone();
            tokio::spawn(async move {
                let spread = random_pause(checks.every.min(Duration::from_millis(250)));
                servers.nodes.watch(&node, checks, spread, ending).await;
            });
        }
    }

    /// Names of monitors at a media server.
    pub fn monitors(&self, node: &str) -> Option<&MonitorNames> {
        self.monitors.get(node)
    }

    /// Asks every server once how it is. A line for each, and whether all of them work.
    pub async fn prove(&self) -> (String, bool) {
        let asked = self.nodes.all().iter().map(async |node| (node, node.server().health().await));
        let (mut lines, mut all_work) = (String::new(), true);
        for (node, health) in join_all(asked).await {
            let how = match &health {
                Ok(_) => "works".to_owned(),
                Err(error) => error.to_string(),
            };
            all_work &= health.is_ok();
            lines.push_str(&format!(
                "media server {:?}: {}, {how}\n",
                node.name,
                node.server().kind().word()
            ));
        }
        (lines, all_work)
    }

    /// The STUN and TURN servers for one participant, whose credentials end by themselves.
    pub fn ice_servers(&self, participant: &str, now_s: u64) -> Vec<IceServer> {
        if self.turn.urls.is_empty() {
            return Vec::new();
        }
        let (relays, others): (Vec<String>, Vec<String>) =
            self.turn.urls.iter().cloned().partition(|url| url.starts_with("turn"));
        let mut servers = Vec::new();
        if !others.is_empty() {
            servers.push(IceServer { urls: others, username: None, credential: None });
        }
        if let Some(secret) = self.turn.secret.as_ref().filter(|_| !relays.is_empty()) {
            let username = format!("{}:{participant}", now_s + self.turn.ttl.as_secs());
            let credential = turn_credential(secret, &username);
            servers.push(IceServer { urls: relays, username: Some(username), credential });
        }
        servers
    }
}

/// The server that `[[media]]` describes; the embedded one is none of these.
fn server(media: &Media, clock: &ClockMs) -> Result<Option<Arc<dyn MediaServer>>, MediaError> {
    let plain = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
    Ok(Some(match &media.server {
        MediaServerConfig::Embedded => return Ok(None),
        MediaServerConfig::Janus {
            url,
            public_url,
            admin_url,
            videoroom,
            plain_rtp,
            api_secret,
            admin_secret,
            admin_key,
            token_secret,
            token_ttl,
            room_secret,
        } => Arc::new(JanusServer::new(JanusConfig {
            url: url.clone(),
            public_url: Some(public_url.clone()),
            admin_url: admin_url.clone(),
            api_secret: plain(api_secret),
            admin_secret: plain(admin_secret),
            admin_key: plain(admin_key),
            api_tokens: token_secret.as_ref().map(|secret| ApiTokens {
                secret: secret.expose().to_owned(),
                ttl: *token_ttl,
                clock: Arc::clone(clock),
            }),
            plugin: if *videoroom { JanusPlugin::VideoRoom } else { JanusPlugin::AudioBridge },
            plain_rtp: *plain_rtp,
            room_secret_key: room_secret.expose().as_bytes().to_vec(),
            deadline: media.deadline,
        })?),
        MediaServerConfig::Livekit { url, public_url, api_key, api_secret, token_ttl } => {
            Arc::new(LivekitServer::new(LivekitConfig {
                url: url.clone(),
                public_url: Some(public_url.clone()),
                api_key: api_key.clone(),
                api_secret: api_secret.expose().to_owned(),
                token_ttl: *token_ttl,
                deadline: media.deadline,
                clock: Arc::clone(clock),
            })?)
        }
        MediaServerConfig::Trtc {
            url,
            region,
            sdk_app_id,
            secret_key,
            secret_id,
            api_secret_key,
            private_map_key,
            token_ttl,
        } => Arc::new(TrtcServer::new(TrtcConfig {
            sdk_app_id: *sdk_app_id,
            secret_key: secret_key.expose().to_owned(),
            secret_id: secret_id.clone(),
            api_secret_key: api_secret_key.expose().to_owned(),
            region: region.clone(),
            url: url.clone(),
            private_map_key: *private_map_key,
            token_ttl: *token_ttl,
            deadline: media.deadline,
            clock: Arc::clone(clock),
        })?),
        MediaServerConfig::Agora {
            url,
            app_id,
            app_certificate,
            customer_id,
            customer_secret,
            token_ttl,
        } => Arc::new(AgoraServer::new(AgoraConfig {
            app_id: app_id.clone(),
            app_certificate: app_certificate.expose().to_owned(),
            customer_id: customer_id.clone(),
            customer_secret: customer_secret.expose().to_owned(),
            url: url.clone(),
            token_ttl: *token_ttl,
            deadline: media.deadline,
            clock: Arc::clone(clock),
            salts: Arc::new(|| u32::try_from(random_below(1 << 32)).unwrap_or_default()),
        })?),
        MediaServerConfig::Generic { url, secret } => Arc::new(GenericServer::new(GenericConfig {
            url: url.clone(),
            secret: secret.expose().to_owned(),
            deadline: media.deadline,
            clock: Arc::clone(clock),
            abilities: GenericConfig::ALL,
        })?),
    }))
}

/// The TURN REST convention: HMAC-SHA1 of the user name, which begins with the time at which it ends.
fn turn_credential(secret: &Secret, username: &str) -> Option<String> {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.expose().as_bytes()).ok()?;
    mac.update(username.as_bytes());
    Some(STANDARD.encode(mac.finalize().into_bytes()))
}

/// A room's router and the server it is at.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The server.
    pub node: Arc<MediaNode>,
    /// The router.
    pub router: Router,
}

impl Placed {
    /// Whether what the router was is lost.
    pub fn is_lost(&self) -> bool {
        self.node.state() == NodeState::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_credential_is_what_coturn_expects() {
        // printf '%s' '1760000000:ann' | openssl dgst -sha1 -hmac north -binary | base64
        let made = turn_credential(&Secret::new("north"), "1760000000:ann");
        assert_eq!(made.as_deref(), Some(VECTOR));
    }

    #[test]
    fn stun_and_turn_are_told_apart() {
        let turn = Turn {
            urls: vec!["stun:a:1".into(), "turn:b:2".into(), "turns:c:3".into()],
            secret: Some(Secret::new("north")),
            ttl: Duration::from_secs(60),
        };
        let servers =
            MediaServers { nodes: Nodes::default(), names: Names::new("s"), monitors: HashMap::new(), turn };
        let [stun, relay] = &*servers.ice_servers("p", 1_000) else { panic!("two") };
        assert_eq!((stun.urls.len(), &stun.username), (1, &None));
        assert_eq!(relay.urls, ["turn:b:2", "turns:c:3"]);
        assert_eq!(relay.username.as_deref(), Some("1060:p"));
        assert!(relay.credential.is_some());
    }

    const VECTOR: &str = "mah9rCP0o8RXTgsJOz4N+lksl3U=";
}
