//! A browser in which people use the console: cookies, requests of its page, gRPC-web.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context as _, bail, ensure};
use futures::StreamExt as _;
use prost::Message;
use reqwest::{Client, Method, RequestBuilder, Response, redirect::Policy};
use serde_json::{Value, json};
use tonic::Code;

use crate::world::World;

/// Cookies and pages of one person.
pub struct Browser {
    address: SocketAddr,
    pub client: Client,
    /// `None` for a program, which sends none.
    pub origin: Option<String>,
    pub cookies: BTreeMap<String, String>,
}

/// Status of a call, and its messages.
#[derive(Debug)]
pub struct Called {
    pub code: Code,
    pub message: String,
    pub answers: Vec<Vec<u8>>,
}

impl Browser {
    pub fn new(world: &World) -> Self {
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        let origin = Some(format!("http://{}", world.http));
        Self { address: world.http, client, origin, cookies: BTreeMap::new() }
    }

    /// Value of the header `cookie`.
    pub fn cookie_header(&self) -> String {
        let pairs = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }

    /// A request of the page.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = if path.starts_with('/') {
            format!("http://{}{path}", self.address)
        } else {
            path.to_owned()
        };
        let mut request = self.client.request(method, url);
        if let Some(origin) = &self.origin {
            request = request.header("origin", origin);
        }
        request.header("cookie", self.cookie_header())
    }

    /// Sends a request, and keeps the cookies of its answer. Returns them as they were sent.
    pub async fn send(
        &mut self,
        request: RequestBuilder,
    ) -> anyhow::Result<(Response, Vec<String>)> {
        let response = request.send().await?;
        let set = response.headers().get_all("set-cookie").iter();
        let set: Vec<String> = set.map(|set| set.to_str().unwrap().to_owned()).collect();
        for cookie in &set {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok((response, set))
    }

    /// Tries to sign in; returns the status and the body.
    pub async fn try_sign_in(&mut self, body: Value) -> anyhow::Result<(u16, Value)> {
        let request = self.request(Method::POST, "/console/sign-in").json(&body);
        let (response, _) = self.send(request).await?;
        Ok((response.status().as_u16(), response.json().await?))
    }

    /// Signs in; returns the public id of the session.
    pub async fn sign_in(&mut self, body: Value) -> anyhow::Result<String> {
        let (status, body) = self.try_sign_in(body).await?;
        ensure!(status == 200, "{status}: {body}");
        Ok(body["session"].as_str().context("no session")?.to_owned())
    }

    pub async fn sign_in_with_key(&mut self, key: &str) -> anyhow::Result<String> {
        self.sign_in(json!({ "key": key })).await
    }

    /// A call of the page, to be changed before it is sent.
    pub fn call_request(
        &self,
        session: &str,
        method: &str,
        message: &impl Message,
    ) -> RequestBuilder {
        let mut body = vec![0];
        let message = message.encode_to_vec();
        body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&message);
        self.request(Method::POST, &format!("/console/api/holdfast.gateway.v1.{method}"))
            .header("content-type", "application/grpc-web+proto")
            .header("x-grpc-web", "1")
            .header("x-holdfast-session", session)
            .body(body)
    }

    /// Calls a method as the page does.
    pub async fn call(
        &self,
        session: &str,
        method: &str,
        message: &impl Message,
    ) -> anyhow::Result<Called> {
        Called::of(self.call_request(session, method, message).send().await?).await
    }

    /// Calls a unary method, and returns its answer or its status.
    pub async fn ask<A: Message + Default>(
        &self,
        session: &str,
        method: &str,
        message: &impl Message,
    ) -> anyhow::Result<A> {
        let called = self.call(session, method, message).await?;
        ensure!(called.code == Code::Ok, "{:?}: {}", called.code, called.message);
        Ok(A::decode(called.answers.first().context("no answer")?.as_slice())?)
    }
}

impl Called {
    pub async fn of(response: Response) -> anyhow::Result<Self> {
        let head = |name: &str| {
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        ensure!(response.status() == 200, "{}", response.status());
        let kind = head("content-type").unwrap_or_default();
        ensure!(kind.starts_with("application/grpc-web"), "{kind}");
        let mut status = head("grpc-status");
        let mut message = head("grpc-message").unwrap_or_default();
        let (mut answers, mut rest) = (Vec::new(), response.bytes().await?.to_vec());
        while !rest.is_empty() {
            ensure!(rest.len() >= 5, "a frame is cut");
            let length = u32::from_be_bytes(rest[1..5].try_into()?) as usize;
            let (flag, frame) = (rest[0], rest[5..5 + length].to_vec());
            rest.drain(..5 + length);
            if flag == 0 {
                answers.push(frame);
                continue;
            }
            for line in String::from_utf8(frame)?.lines() {
                let (name, value) = line.split_once(':').context("no trailer")?;
                match name.trim() {
                    "grpc-status" => status = Some(value.trim().to_owned()),
                    "grpc-message" => message = value.trim().to_owned(),
                    _ => {}
                }
            }
        }
        let Some(status) = status else { bail!("no status") };
        Ok(Self { code: Code::from_bytes(status.as_bytes()), message, answers })
    }
}

/// Reads messages of a stream until there are so many, and leaves it.
pub async fn first_messages(response: Response, count: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let (mut bytes, mut rest, mut messages) = (response.bytes_stream(), Vec::new(), Vec::new());
    while messages.len() < count {
        let part = tokio::time::timeout(crate::world::PATIENCE, bytes.next()).await?;
        rest.extend_from_slice(&part.context("the stream has ended")??);
        while rest.len() >= 5 {
            let length = u32::from_be_bytes(rest[1..5].try_into()?) as usize;
            if rest.len() < 5 + length {
                break;
            }
            ensure!(rest[0] == 0, "the stream has ended");
            messages.push(rest[5..5 + length].to_vec());
            rest.drain(..5 + length);
        }
    }
    Ok(messages)
}
