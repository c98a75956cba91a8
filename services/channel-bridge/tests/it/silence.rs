//! Log lines, which must contain no secret and no message text.

use std::{
    io,
    sync::{Arc, Mutex},
};

use holdfast_testkit::{Fault, telegram::Incoming};
use serde_json::json;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::world::{TOKEN, World};

#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn neither_tokens_nor_texts_are_logged_whatever_goes_wrong() {
    let lines = Lines::default();
    // The fakes run in this process too: exclude the HTTP library's own traces.
    let filter = EnvFilter::new("debug,channel_bridge=trace,reqwest=trace");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines.clone()).init();
    let world = World::new().await;
    let settings = json!({"allow": [7]});
    let account = world.account("telegram", settings, json!({"token": TOKEN})).await;
    let bridge = world.bridge().await;

    world.telegram.push(TOKEN, Incoming::private(7, "hush-in"));
    world.telegram.push(TOKEN, Incoming::private(8, "hush-stranger"));
    world.telegram.push_raw(TOKEN, json!({"message": {"message_id": 5, "text": "hush-malformed"}}));
    world.confirmed().await;
    world.telegram.refuse_entities(1);
    let plain = world.reply("telegram", account.id, "7", "hush-plain").await;
    world.delivered(plain, "sent").await;
    for (fault, state) in [
        (Fault::Status(400), "dead"),
        (Fault::Status(502), "unknown"),
        (Fault::CutBefore, "unknown"),
    ] {
        world.telegram.faults().next(1, &fault);
        let id = world.reply("telegram", account.id, "7", "hush-out").await;
        world.delivered(id, state).await;
    }
    world.telegram.revoke(TOKEN);
    let refused = world.reply("telegram", account.id, "7", "hush-revoked").await;
    world.delivered(refused, "dead").await;
    bridge.stop().await;

    let lines = lines.text();
    assert!(lines.contains("an update is not understood"), "{lines}");
    assert!(lines.contains("a reply was given up"), "{lines}");
    for secret in ["TEST-token", "hush", crate::world::SECRET] {
        let line = lines.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
}
