//! Memory of connections: idle ones, and what large messages may take.

use std::time::Duration;

use anyhow::Context as _;
use gateway::Config;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    access::without_ticks,
    client::{Client, hello},
};
use crate::world::{PATIENCE, Tenant, World};

/// A client of LurkBot's protocol that keeps nothing in memory.
struct Raw {
    socket: TcpStream,
    /// Bytes of a frame that is not whole.
    rest: Vec<u8>,
}

impl Raw {
    async fn open(world: &World, of: &Tenant) -> anyhow::Result<Self> {
        let mut raw = Self { socket: TcpStream::connect(world.http).await?, rest: Vec::new() };
        let upgrade = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        raw.socket.write_all(upgrade.as_bytes()).await?;
        // The server waits for the first frame.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(raw.socket.read_u8().await?);
        }
        raw.send(&hello(&of.key)).await?;
        raw.until("\"hello-ok\"}").await?;
        Ok(raw)
    }

    async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        let text = frame.to_string();
        self.announce(text.len() as u64).await?;
        Ok(self.socket.write_all(text.as_bytes()).await?)
    }

    /// Sends the header of a text frame, masked with zeros.
    async fn announce(&mut self, length: u64) -> anyhow::Result<()> {
        let mut header = vec![0x81, 0xff];
        header.extend(length.to_be_bytes());
        header.extend([0; 4]);
        Ok(self.socket.write_all(&header).await?)
    }

    /// Reads frames until a text has come, and returns what they carry.
    async fn until(&mut self, text: &str) -> anyhow::Result<Vec<u8>> {
        let (mut told, mut part) = (Vec::new(), [0; 4096]);
        let all = async {
            while !told.windows(text.len()).any(|window| window == text.as_bytes()) {
                let count = self.socket.read(&mut part).await?;
                anyhow::ensure!(count > 0, "the connection has ended");
                self.rest.extend_from_slice(&part[..count]);
                while let Some((start, end)) = first_frame(&self.rest) {
                    told.extend_from_slice(&self.rest[start..end]);
                    self.rest.drain(..end);
                }
            }
            self.rest.shrink_to_fit();
            Ok(told)
        };
        timeout(PATIENCE, all).await.with_context(|| format!("no `{text}` came"))?
    }
}

/// Where the payload of the first frame of a server begins and ends; `None` if it is not whole.
fn first_frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let (start, length) = match *bytes.get(1)? {
        126 => (4, u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
        length => (2, u64::from(length)),
    };
    let end = start + usize::try_from(length).ok()?;
    (bytes.len() >= end).then_some((start, end))
}

/// Memory of this process that is no file's, in kilobytes.
fn own_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_idle_connection_costs_little_and_a_large_message_leaves_nothing_behind() {
    // These clients answer no pings.
    let world = World::start_with(without_ticks).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(Raw::open(&world, &world.anna).await.unwrap());
    }
    sleep(Duration::from_millis(300)).await;
    let before = own_memory();
    for _ in 0..300 {
        open.push(Raw::open(&world, &world.anna).await.unwrap());
    }
    sleep(Duration::from_millis(300)).await;
    let each = (own_memory() - before) / 300.0;
    println!("{each:.1} kB for each idle connection");
    assert!(each < 28.0, "{each:.1} kB");

    let (before, large) = (own_memory(), 4 * 1024 * 1024);
    let request = |id: &str, params: Value| json!({ "type": "request", "id": id, "method": "health", "params": params });
    for raw in &mut open[..20] {
        raw.send(&request("large", json!({ "x": "x".repeat(large) }))).await.unwrap();
        raw.until("\"large\"").await.unwrap();
        // A frame behind it is read by the next codec.
        raw.send(&request("small", json!({}))).await.unwrap();
        let answer = String::from_utf8_lossy(&raw.until("\"small\"").await.unwrap()).into_owned();
        assert!(answer.contains("\"result\""), "{answer}");
    }
    sleep(Duration::from_millis(300)).await;
    let kept = (own_memory() - before) / 1024.0;
    println!("{kept:.1} MB kept after 20 messages of 4 MB");
    assert!(kept < 40.0, "{kept:.1} MB");
}

#[tokio::test]
async fn large_messages_of_a_tenant_have_a_limit_together_and_others_have_theirs() {
    let small = |config: &mut Config| config.gateway.body_bytes_per_tenant = 80 * 1024 * 1024;
    let world = World::start_with(small).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::open(&world, &world.anna).await.unwrap();
        raw.announce(24 * 1024 * 1024).await.unwrap();
        open.push(raw);
    }
    sleep(Duration::from_millis(300)).await;

    let mut refused = Raw::open(&world, &world.anna).await.unwrap();
    refused.announce(24 * 1024 * 1024).await.unwrap();
    let told = refused.until("try again").await.unwrap();
    // The code of the end is before its reason.
    assert!(told.windows(2).any(|code| code == 1013_u16.to_be_bytes()), "{told:?}");

    // Small messages, and those of others, are read.
    let mut anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
    anna.call("health", json!({})).await.unwrap().unwrap();
    let mut ben = Client::openclaw(world.http, &world.ben.key).await.unwrap();
    let large = json!({ "x": "x".repeat(2_000_000) });
    let told: Value = ben.call("health", large).await.unwrap().unwrap_err();
    assert!(told["message"].as_str().unwrap().contains("unknown field `x`"), "{told}");
    // What is dropped is free again.
    drop(open);
    let again = async {
        // More than there was room for.
        while anna.call("health", json!({ "x": "x".repeat(9_000_000) })).await.is_err() {
            sleep(Duration::from_millis(100)).await;
            anna = Client::openclaw(world.http, &world.anna.key).await.unwrap();
        }
    };
    timeout(3 * PATIENCE, again).await.unwrap();
}
