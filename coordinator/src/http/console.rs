//! The page at `/console/`, built from `client/console` and carried by the binary.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use fred::interfaces::{HashesInterface as _, SortedSetsInterface as _};
use http::{StatusCode, header};
use key_prefix::{Instance, RoomId, UserId};
use rust_embed::RustEmbed;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

use super::problem::Problem;
use crate::auth::{MintRequest, TokenRole};
use crate::clock::unix_seconds;
use crate::error::ApiError;
use crate::node::Node;

#[derive(RustEmbed)]
#[folder = "../client/console/dist"]
#[allow_missing = true]
struct Assets;

/// A token from the console lasts so long.
const TOKEN_TTL: Duration = Duration::from_secs(12 * 3600);

/// The page, what it asks of this instance, and in `--dev` the tokens that it joins with.
pub fn routes() -> Router<Arc<Node>> {
    Router::new()
        .route("/", get(async || Redirect::temporary("/console/")))
        .route("/console", get(async || Redirect::permanent("/console/")))
        .route("/console/", get(async || asset("index.html")))
        .route("/console/instance", get(instance))
        .route("/console/token", post(token))
        .route("/console/{*path}", get(async |Path(path): Path<String>| asset(&path)))
}

fn asset(path: &str) -> Response {
    let Some(file) = Assets::get(path) else {
        let missing =
            if path == "index.html" { "the console was not built into this binary" } else { "no such file" };
        return (StatusCode::NOT_FOUND, missing).into_response();
    };
    let kind = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    };
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            // A redirect leads to any instance, whose public URL this one cannot know beforehand.
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
             media-src 'self' blob:; connect-src 'self' http: https: ws: wss:; form-action 'self'; \
             frame-ancestors 'none'; base-uri 'none'",
        ),
    ];
    (headers, file.data).into_response()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceView {
    instance: String,
    public_url: String,
    dev: bool,
    instances: Vec<Neighbour>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Neighbour {
    name: String,
    public_url: String,
}

/// Which instance this is; in `--dev` also which others there are.
async fn instance(State(node): State<Arc<Node>>) -> Json<InstanceView> {
    let instances = if node.config.dev { neighbours(&node).await } else { Vec::new() };
    Json(InstanceView {
        instance: node.store.me.name().to_owned(),
        public_url: node.public_url.clone(),
        dev: node.config.dev,
        instances,
    })
}

async fn neighbours(node: &Node) -> Vec<Neighbour> {
    let client = node.store.scripts.client();
    let keys = &node.store.keys;
    let found = client
        .zrange::<Vec<String>, _, _, _>(keys.instances().to_string(), 0, -1, None, false, None, false)
        .await
        .unwrap_or_default();
    let mut neighbours = Vec::new();
    for instance in found.iter().filter_map(|text| text.parse::<Instance>().ok()) {
        let record = keys.instance(&instance).to_string();
        if let Ok(Some(public_url)) = client.hget::<Option<String>, _, _>(record, "public_url").await {
            neighbours.push(Neighbour { name: instance.name().to_owned(), public_url });
        }
    }
    neighbours
}

#[derive(Deserialize)]
struct TokenRequest {
    user: String,
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    room: Option<String>,
}

#[derive(Serialize)]
struct TokenAnswer {
    token: String,
    app: String,
}

/// A token for whoever asks: in `--dev` only, where everybody is you.
async fn token(State(node): State<Arc<Node>>, Json(request): Json<TokenRequest>) -> Response {
    if !node.config.dev {
        return (StatusCode::NOT_FOUND, "tokens are given out in --dev only").into_response();
    }
    match mint(&node, &request) {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

fn mint(node: &Node, request: &TokenRequest) -> Result<TokenAnswer, ApiError> {
    let bad = |error: key_prefix::IdError| ApiError::bad_request(error.to_string());
    let app = node.config.apps.first().ok_or_else(|| ApiError::bad_request("no app is configured"))?;
    let role = match request.role.as_deref() {
        None => TokenRole::Guest,
        Some(name) => TokenRole::of_name(name)
            .ok_or_else(|| ApiError::bad_request("`role` must be guest, host or monitor"))?,
    };
    let user = UserId::new(&request.user).map_err(bad)?;
    let room = request.room.as_deref().map(RoomId::new).transpose().map_err(bad)?;
    let name = user.to_string();
    let with = MintRequest {
        app: app.code.clone(),
        user,
        role,
        room,
        name: Some(name),
        auth_version: None,
        admin: false,
        ttl: TOKEN_TTL,
    };
    let token = node
        .verifier
        .mint(&with, unix_seconds())
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(TokenAnswer { token, app: app.code.to_string() })
}
