//! A caller of the OpenAI-compatible API.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::models::Model;

/// A caller who keeps the conversation, as the clients of this API do.
#[derive(Debug)]
pub struct Conversation {
    http: reqwest::Client,
    url: String,
    key: SecretString,
    model: String,
    user: String,
    messages: Vec<Value>,
}

impl Conversation {
    /// A conversation with an agent, in a session of the name `user`.
    pub fn new(
        at: SocketAddr,
        key: &SecretString,
        model: Model,
        user: String,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            http: reqwest::Client::builder().tcp_nodelay(true).no_proxy().build()?,
            url: format!("http://{at}/v1/chat/completions"),
            key: key.clone(),
            model: format!("holdfast/{}", model.name()),
            user,
            messages: Vec::new(),
        })
    }

    /// Says something and waits for the whole answer.
    pub async fn turn(&mut self, text: &str) -> anyhow::Result<Duration> {
        self.messages.push(json!({ "role": "user", "content": text }));
        let body = json!({ "model": self.model, "user": self.user, "messages": self.messages });
        let sent = Instant::now();
        let answer = self
            .http
            .post(&self.url)
            .bearer_auth(self.key.expose_secret())
            .json(&body)
            .send()
            .await?;
        let status = answer.status();
        let answer: Value = answer.json().await?;
        let took = sent.elapsed();
        ensure!(status.is_success(), "the API answered {status}: {}", answer["error"]["message"]);
        let message = answer["choices"][0]["message"].clone();
        ensure!(!message["content"].as_str().unwrap_or_default().is_empty(), "an empty answer");
        self.messages.push(message);
        Ok(took)
    }
}
