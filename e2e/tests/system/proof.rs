//! Which Redis an instance takes, and what it says of one that it does not.

#![expect(clippy::unwrap_used, reason = "helpers of tests: what fails here fails the test")]

use e2e::coordinator::CoordinatorOptions;
use e2e::driver::Driver;
use e2e::http;
use e2e::janus::Janus;
use e2e::process::Process;
use e2e::servers::{Flavor, RedisServer, ServerOptions};
use e2e::token::Token;
use e2e::wait::{self, SOON};
use e2e::{cluster::Cluster, place};
use key_prefix::KeyKind;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};
use tempfile::TempDir;

use crate::janus_rooms::section;
use crate::stored::of_room;

fn binary() -> PathBuf {
    env::var_os("DAIS_COORDINATOR").map_or_else(|| place::profile().join("coordinator"), PathBuf::from)
}

/// `coordinator check` with these options, ended; and its exit code.
async fn check(options: &CoordinatorOptions, flags: &[&str]) -> (Option<i32>, Process) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dais.toml");
    fs::write(&file, options.render()).unwrap();
    let mut command = Command::new(binary());
    command.arg("check").arg("--config").arg(&file).args(flags).current_dir(folder.path());
    let process = Process::start("check", command);
    let code = process.exit(SOON).await.code();
    (code, process)
}

/// Waits for this text: the last lines of a process may be read after its end.
async fn says(process: &Process, text: &str) {
    process.line(text, 0, SOON, |line| line.contains(text).then_some(())).await;
}

/// `serve` and `check` both end with 1 and say all of this; neither says any of `secrets`.
async fn refused(url: &str, said: &[&str], secrets: &[&str]) {
    let options = CoordinatorOptions::new("a", url);
    let (serve, _folder) = options.spawn();
    let serve_code = serve.exit(SOON).await.code();
    let (check_code, check) = check(&options, &[]).await;
    assert_eq!((serve_code, check_code), (Some(1), Some(1)));
    for process in [serve, check] {
        for text in said {
            says(&process, text).await;
        }
        let log = process.log_lines().join("\n");
        for unsaid in secrets.iter().chain(&["\"message\":\"ready\"", "panicked"]) {
            assert!(!log.contains(unsaid), "{unsaid:?} in:\n{log}");
        }
    }
}

#[tokio::test]
async fn a_cluster_node_is_refused() {
    let server = ServerOptions::new(Flavor::Redis).cluster().start().await;
    refused(
        &server.url(),
        &[&server.url(), "Redis Cluster", "use a standalone server, or one managed by Sentinel"],
        &[],
    )
    .await;
    let written = server.command(&["CLUSTER", "COUNTKEYSINSLOT", "0"]).await;
    assert_eq!(written.number(), Some(0));
}

#[tokio::test]
async fn media_servers_are_asked_how_they_are() {
    let redis = RedisServer::start(Flavor::Redis).await;
    let janus = Janus::start().await;
    let there = CoordinatorOptions::new("a", &redis.url()).toml(&section("there", &janus));
    let (code, process) = check(&there, &[]).await;
    says(&process, "media server \"there\": janus, works").await;
    assert_eq!(code, Some(0), "{:?}", process.log_lines());
    let gone = "[[media]]\nname = \"gone\"\nkind = \"generic\"\nurl = \"http://127.0.0.1:1\"\n\
                credentials = { secret = \"a secret that both sides know and keep\" }\n";
    let (code, process) = check(&there.toml(gone), &[]).await;
    says(&process, "media server \"gone\": generic, media server unavailable").await;
    says(&process, "media server \"there\": janus, works").await;
    says(&process, "a media server cannot be used").await;
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn an_old_redis_is_refused() {
    let server = RedisServer::start(Flavor::Redis62).await;
    refused(&server.url(), &["it is redis 6.2", "redis 7.0 or newer is needed: upgrade it"], &[]).await;
    assert_eq!(server.command(&["DBSIZE"]).await.number(), Some(0), "nothing was written into it");
}

#[tokio::test]
async fn a_redis_that_evicts_is_refused() {
    let server = ServerOptions::new(Flavor::Redis).maxmemory_policy("allkeys-lru").start().await;
    refused(
        &server.url(),
        &["its maxmemory-policy is allkeys-lru", "set `maxmemory-policy noeviction`"],
        &[],
    )
    .await;
}

#[tokio::test]
async fn a_redis_that_forgets_is_refused_except_in_dev() {
    let server = ServerOptions::new(Flavor::Redis).aof(None).start().await;
    refused(&server.url(), &["its append-only file is off", "set `appendonly yes`"], &[]).await;
    let (code, said) = check(&CoordinatorOptions::new("a", &server.url()), &["--dev"]).await;
    assert_eq!(code, Some(0));
    says(&said, "append-only file off").await;
}

#[tokio::test]
async fn everything_that_is_wrong_is_said_at_once() {
    let options = ServerOptions::new(Flavor::Redis62).maxmemory_policy("volatile-ttl").aof(None);
    let server = options.start().await;
    refused(&server.url(), &["redis 7.0 or newer", "volatile-ttl", "appendonly yes"], &[]).await;
}

#[tokio::test]
async fn a_redis_that_is_not_there_is_named_without_its_password() {
    // Bound, so that nobody else listens there; a connection is refused, because nobody listens at all.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("redis://someone:hush-hush@127.0.0.1:{port}");
    let shown = format!("redis://127.0.0.1:{port}");
    refused(&url, &[&shown, "cannot be reached", "redis.url"], &["hush-hush"]).await;
}

#[tokio::test]
async fn a_wrong_password_is_said_to_be_one() {
    let server = ServerOptions::new(Flavor::Redis).argument("--requirepass", "right-one").start().await;
    let url = format!("redis://:wrong-one@127.0.0.1:{}", server.port());
    refused(&url, &["WRONGPASS"], &["wrong-one"]).await;
    let good = format!("redis://:right-one@127.0.0.1:{}", server.port());
    let (code, _) = check(&CoordinatorOptions::new("a", &good), &[]).await;
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn a_room_runs_on_every_server_that_is_accepted() {
    for flavor in Flavor::ACCEPTED {
        let cluster = Cluster::start_on(RedisServer::start(flavor).await, 1, |options| options).await;
        let (code, said) = check(cluster[0].options(), &[]).await;
        assert_eq!(code, Some(0));
        says(&said, if flavor == Flavor::Valkey { "Redis: valkey 9." } else { "Redis: redis " }).await;
        says(&said, "append-only file on").await;
        let driver = Driver::start().await;
        let joined =
            driver.join("ann", &cluster[0].url(), &cluster.token("ann", "host"), "math").await.unwrap();
        assert_eq!(joined["ack"]["room"]["peerCount"], 1);
    }
}

/// A Sentinel that watches one master by the name `dais`.
async fn sentinel(master: &RedisServer) -> (Process, u16, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = folder.path().join("sentinel.conf");
    let config = format!(
        "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor dais 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds dais 60000\n",
        folder.path().display(),
        master.port()
    );
    fs::write(&file, config).unwrap();
    let mut command = Command::new(place::on_path("redis-server").expect("redis-server on PATH"));
    command.arg(&file).arg("--sentinel");
    let process = Process::start("sentinel", command);
    process.line("+monitor", 0, SOON, |line| line.contains("+monitor master dais").then_some(())).await;
    (process, port, folder)
}

#[tokio::test]
async fn a_room_runs_on_the_master_that_a_sentinel_names() {
    let unguarded = RedisServer::start(Flavor::Redis).await;
    let (sentinel_of_it, port, _its_folder) = sentinel(&unguarded).await;
    let url = format!("redis-sentinel://127.0.0.1:{port}?sentinelServiceName=dais");
    refused(&url, &["min-replicas-to-write 1"], &[]).await;
    drop(sentinel_of_it);

    let guarded = ServerOptions::new(Flavor::Redis).argument("--min-replicas-to-write", "1");
    let master = guarded.argument("--min-replicas-max-lag", "5").start().await;
    let (_sentinel, port, _folder) = sentinel(&master).await;
    let replica = ServerOptions::new(Flavor::Redis)
        .argument("--replicaof", &format!("127.0.0.1 {}", master.port()))
        .start()
        .await;
    wait::until("the replica follows", SOON, || async {
        replica.command(&["INFO", "replication"]).await.text().contains("master_link_status:up")
    })
    .await;
    let url = format!("redis-sentinel://127.0.0.1:{port}?sentinelServiceName=dais");
    let ledger = place::ledger_url(&master.url(), "test");
    let instance = CoordinatorOptions::new("a", &url).text("ledger", "url", &ledger).start().await;
    let driver = Driver::start().await;
    let token = Token::new("ann", "host").sign();
    let joined = driver.join("ann", &instance.url(), &token, "math").await.unwrap();
    assert_eq!(joined["ack"]["room"]["peerCount"], 1);
    assert_eq!(master.command(&["EXISTS", &of_room(KeyKind::Room, "math")]).await.number(), Some(1));
    assert_eq!(http::get(&format!("{}/healthz", instance.url())).await.unwrap().status, 200);

    // The same, named by the two keys instead of one URL.
    let listed = CoordinatorOptions::new("b", "redis://127.0.0.1")
        .texts("redis", "sentinels", &[&format!("127.0.0.1:{port}")])
        .text("redis", "sentinel_service", "dais")
        .text("ledger", "url", &ledger);
    let (code, _) = check(&listed, &[]).await;
    assert_eq!(code, Some(0));
    // A master that no Sentinel knows.
    let unknown = format!("redis-sentinel://127.0.0.1:{port}?sentinelServiceName=nobody");
    refused(&unknown, &["cannot be reached"], &[]).await;
}
