//! Routes of the HTTP API, and tools of the MCP server.

use std::collections::BTreeSet;

use holdfast_directory::{Actor, NewProvider};
use holdfast_testkit::{
    model::audio::{AudioVendor, FakeAudio},
    openapi::Description,
};
use reqwest::{
    Method, RequestBuilder,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    callers::{Caller, Setting},
    matrix::{self, Cell, Row, yes_or_no},
    objects::Object,
    unaffected,
};
use crate::world::{Tenant, World};

/// What shows that a call has reached an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The answer is no error.
    Success,
    /// The answer contains what was said in the conversation.
    Text,
    /// The conversation has the message.
    Written,
    /// The conversation of `OpenAI`'s API has the message.
    WrittenInConversation,
    /// Whoever wrote in the conversation does not find it any more.
    Gone,
}

/// What the HTTP API knows of an object.
#[derive(Default)]
struct Target {
    /// Name by which its own caller names the conversation.
    name: String,
    key: String,
    mark: String,
    /// A response in it.
    response: String,
    /// A conversation of `OpenAI`'s API of the same caller.
    conversation: String,
    /// What is said now.
    text: String,
}

/// An operation or a tool, and a request that names an object; `None` if the object has no such part.
struct Door {
    call: &'static str,
    proof: Proof,
    ask: fn(&World, &Tenant, &Target) -> Option<RequestBuilder>,
}

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const CONVERSATIONS: &str = "/v1/conversations";

fn given(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

/// Requests that name a conversation to write in it.
fn writing() -> Vec<Door> {
    let door = |call, proof, ask| Door { call, proof, ask };
    let written = Proof::Written;
    vec![
        door("post /chat – `threadId`", written, |world, who, of| {
            let messages = json!([{"id": "1", "role": "user", "content": of.text}]);
            let body = json!({"threadId": of.name, "runId": of.text, "messages": messages});
            Some(world.post(who, "/chat").json(&body))
        }),
        door("post /v1/chat/completions – `user`", written, |world, who, of| {
            let messages = json!([{"role": "user", "content": of.text}]);
            let body = json!({"model": "holdfast", "user": of.name, "messages": messages});
            Some(world.post(who, CHAT).json(&body))
        }),
        // Without a history, the request would begin another conversation of the same user.
        door("post /v1/messages – `metadata.user_id`", written, |world, who, of| {
            let messages = json!([
                {"role": "user", "content": "unanswered"},
                {"role": "assistant", "content": ""},
                {"role": "user", "content": of.text},
            ]);
            let metadata = json!({"user_id": of.name});
            let body = json!({
                "model": "holdfast", "max_tokens": 9, "metadata": metadata, "messages": messages,
            });
            Some(world.post(who, "/v1/messages").json(&body))
        }),
        door("post /v1/responses – `user`", written, |world, who, of| {
            let body = json!({"model": "holdfast", "user": of.name, "input": of.text});
            Some(world.post(who, RESPONSES).json(&body))
        }),
        door(
            "post /v1/responses – `conversation`",
            Proof::WrittenInConversation,
            |world, who, of| {
                let conversation = given(&of.conversation)?;
                let body = json!({
                    "model": "holdfast", "conversation": conversation, "input": of.text,
                });
                Some(world.post(who, RESPONSES).json(&body))
            },
        ),
        // Behind an earlier response, the message is in a branch.
        door("post /v1/responses – `previous_response_id`", Proof::Success, |world, who, of| {
            let previous = given(&of.response)?;
            let body = json!({
                "model": "holdfast", "previous_response_id": previous, "input": of.text,
            });
            Some(world.post(who, RESPONSES).json(&body))
        }),
        door("tool ask", written, |world, who, of| {
            Some(tool(world, who, "ask", &json!({"session": of.key, "message": of.text})))
        }),
    ]
}

fn reading() -> Vec<Door> {
    vec![
        Door {
            call: "get /v1/responses/{response}",
            proof: Proof::Success,
            ask: |world, who, of| Some(world.get(who, &response_path(of, "")?)),
        },
        Door {
            call: "get /v1/responses/{response}/input_items",
            proof: Proof::Success,
            ask: |world, who, of| Some(world.get(who, &response_path(of, "/input_items")?)),
        },
        Door {
            call: "get /v1/conversations/{conversation}/items",
            proof: Proof::Text,
            ask: |world, who, of| {
                let conversation = given(&of.conversation)?;
                Some(world.get(who, &format!("{CONVERSATIONS}/{conversation}/items")))
            },
        },
        Door {
            call: "tool read_history",
            proof: Proof::Text,
            ask: |world, who, of| {
                Some(tool(world, who, "read_history", &json!({"session": of.key, "limit": 1000})))
            },
        },
        Door {
            call: "post /v1/responses/{response}/cancel",
            proof: Proof::Success,
            ask: |world, who, of| Some(world.post(who, &response_path(of, "/cancel")?)),
        },
    ]
}

/// Requests after which the object is no more; it is made anew.
fn ending() -> Vec<Door> {
    vec![
        Door {
            call: "delete /v1/responses/{response}",
            proof: Proof::Success,
            ask: |world, who, of| {
                let url = world.url(&response_path(of, "")?);
                Some(world.client.request(Method::DELETE, url).bearer_auth(&who.key))
            },
        },
        Door {
            call: "delete /v1/conversations/{conversation}",
            proof: Proof::Gone,
            ask: |world, who, of| {
                let conversation = given(&of.conversation)?;
                let url = world.url(&format!("{CONVERSATIONS}/{conversation}"));
                Some(world.client.request(Method::DELETE, url).bearer_auth(&who.key))
            },
        },
    ]
}

fn response_path(of: &Target, rest: &str) -> Option<String> {
    given(&of.response).map(|response| format!("{RESPONSES}/{response}{rest}"))
}

/// Calls an MCP tool.
fn tool(world: &World, who: &Tenant, name: &str, input: &Value) -> RequestBuilder {
    let params = json!({"name": name, "arguments": input});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let accept = "application/json, text/event-stream";
    world.post(who, "/mcp").header("accept", accept).json(&body)
}

/// An operation or a tool, and a request to it.
type OtherDoor = (&'static str, fn(&World, &Tenant) -> RequestBuilder);

/// Requests that name nothing of a person.
fn other() -> Vec<OtherDoor> {
    vec![
        ("post /v1/conversations", |world, who| world.post(who, CONVERSATIONS).json(&json!({}))),
        ("get /v1/conversations/{conversation}", |world, who| {
            world.get(who, &format!("{CONVERSATIONS}/conv_0190f3c4d5e67890abcd1234567890ab"))
        }),
        ("post /v1/embeddings", |world, who| {
            world.post(who, "/v1/embeddings").json(&json!({"model": "holdfast", "input": "hi"}))
        }),
        ("post /v1/audio/transcriptions", |world, who| {
            let file = Part::bytes(&b"OggS\0 somebody says something"[..]).file_name("a.ogg");
            let form = Form::new().part("file", file).text("model", "holdfast");
            world.post(who, "/v1/audio/transcriptions").multipart(form)
        }),
        ("post /v1/audio/speech", |world, who| {
            let body = json!({"model": "holdfast", "input": "hi", "voice": "alloy"});
            world.post(who, "/v1/audio/speech").json(&body)
        }),
        ("post /v1/messages/count_tokens", |world, who| {
            let messages = json!([{"role": "user", "content": "hi"}]);
            let body = json!({"model": "holdfast", "messages": messages});
            world.post(who, "/v1/messages/count_tokens").json(&body)
        }),
        ("get /v1/models", |world, who| world.get(who, "/v1/models")),
        ("get /v1/models/{model}", |world, who| world.get(who, "/v1/models/holdfast")),
        ("tool list_agents", |world, who| tool(world, who, "list_agents", &json!({}))),
        ("tool list_files", |world, who| tool(world, who, "list_files", &json!({}))),
        ("tool read_file", |world, who| {
            tool(world, who, "read_file", &json!({"path": "AGENTS.md"}))
        }),
        ("tool write_file", |world, who| {
            tool(world, who, "write_file", &json!({"path": "a.md", "content": "a"}))
        }),
    ]
}

/// Name of an operation or tool, without what a row says about it.
fn operation(call: &str) -> &str {
    call.split_once(" – ").map_or(call, |(operation, _)| operation)
}

#[tokio::test]
async fn every_route_and_tool_has_a_row_or_a_reason_for_none() {
    let world = World::start().await.unwrap();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let accept = "application/json, text/event-stream";
    let listed = world.post(&world.anna, "/mcp").header("accept", accept).json(&list);
    let listed = answer(listed).await.1;
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    let tools = tools.map(|tool| format!("tool {}", tool["name"].as_str().unwrap()));
    let known: BTreeSet<String> =
        Description::read().unwrap().operations().into_iter().chain(tools).collect();

    let doors = [writing(), reading(), ending()].into_iter().flatten().map(|door| door.call);
    let others = other().into_iter().map(|(call, _)| call);
    let tried: BTreeSet<&str> =
        doors.chain(others).chain(["tool list_sessions"]).map(operation).collect();
    let reasons = unaffected::names(unaffected::ROUTES);
    assert!(tried.is_disjoint(&reasons));
    let all: BTreeSet<String> = (&tried | &reasons).into_iter().map(str::to_owned).collect();
    assert_eq!(all, known);
}

/// Whether a request succeeded, and the answer. Events of a stream are the messages in it.
async fn answer(request: RequestBuilder) -> (bool, Value) {
    let response = request.send().await.unwrap();
    let is_success = response.status().is_success();
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
    let body: Value = match events.as_slice() {
        [] => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        // An answer to one JSON-RPC call.
        [only] if only["jsonrpc"] == "2.0" => only.clone(),
        _ => Value::Array(events),
    };
    let is_failed_tool = body["result"]["isError"] == true || body["error"].is_object();
    (is_success && !is_failed_tool, body)
}

/// Whether the newest entries of an object's conversation contain a text.
async fn is_written(world: &World, object: &Object, text: &str) -> bool {
    let views = world.sessions.views();
    let session = views.find(world.anna.id, &object.key.parse().unwrap()).await.unwrap();
    let entries = views.history(world.anna.id, session.unwrap(), 20, None).await.unwrap();
    format!("{entries:?}").contains(text)
}

impl Target {
    /// What an object is for the HTTP API, whose response its writer makes.
    async fn of(world: &World, object: &Object, writer: Option<&Tenant>) -> Self {
        let name = object.name();
        // Those who have a name space do not write it.
        let name = match object.letter {
            'o' => name.rsplit('/').next().unwrap(),
            _ => name,
        };
        let mut target = Self {
            name: name.to_owned(),
            key: object.key.clone(),
            mark: object.mark.clone(),
            ..Self::default()
        };
        let Some(writer) = writer else { return target };
        target.respond(world, object, writer).await;
        if matches!(object.letter, 'o' | 'p' | 'u') {
            target.converse(world, writer).await;
        }
        target
    }

    /// Begins a conversation of `OpenAI`'s API, if the caller may have one.
    async fn converse(&mut self, world: &World, writer: &Tenant) {
        let (is_made, made) = answer(world.post(writer, CONVERSATIONS).json(&json!({}))).await;
        if !is_made {
            return;
        }
        self.conversation = made["id"].as_str().unwrap().to_owned();
        let (conversation, input) = (&self.conversation, format!("say {}", self.mark));
        let body = json!({"model": "holdfast", "conversation": conversation, "input": input});
        assert!(answer(world.post(writer, RESPONSES).json(&body)).await.0);
    }

    /// Text of the conversation of `OpenAI`'s API, as its writer reads it.
    async fn items(&self, world: &World, writer: &Tenant) -> String {
        let path = format!("{CONVERSATIONS}/{}/items", self.conversation);
        answer(world.get(writer, &path)).await.1.to_string()
    }

    /// Makes a response in the conversation.
    async fn respond(&mut self, world: &World, object: &Object, writer: &Tenant) {
        // Behind an earlier one, the response would be in a branch.
        let newest = object.say(world, "say").await.message;
        let previous = newest.to_string().replacen("msg_", "resp_", 1);
        let body = json!({"model": "holdfast", "previous_response_id": previous, "input": "say"});
        let (is_made, made) = answer(world.post(writer, RESPONSES).json(&body)).await;
        assert!(is_made, "{}: {made}", object.key);
        self.response = made["id"].as_str().unwrap().to_owned();
    }
}

/// Somebody's object for the HTTP API, and who writes in it.
struct Reached<'a> {
    object: &'a Object,
    writer: Option<&'a Tenant>,
    target: Target,
}

impl<'a> Reached<'a> {
    async fn new(world: &World, object: &'a Object, writer: Option<&'a Tenant>) -> Self {
        Self { object, writer, target: Target::of(world, object, writer).await }
    }
}

/// Tries a request with each object.
async fn try_objects<'a>(
    world: &World,
    caller: &Caller,
    door: &Door,
    own: Option<&mut Reached<'a>>,
    all: &mut [Reached<'a>],
) -> String {
    let mut cell = Cell::default();
    for reached in own.into_iter().chain(all) {
        let Reached { object, writer, target } = reached;
        target.text = format!("hello {}", Uuid::now_v7().simple());
        let Some(request) = (door.ask)(world, &caller.access, target) else { continue };
        let (is_success, body) = answer(request).await;
        let is_allowed = is_success
            && match (door.proof, *writer) {
                (Proof::Gone, Some(writer)) => {
                    !target.items(world, writer).await.contains(&target.mark)
                }
                (Proof::WrittenInConversation, Some(writer)) => {
                    target.items(world, writer).await.contains(&target.text)
                }
                (Proof::Written, _) => is_written(world, object, &target.text).await,
                (Proof::Text, _) => body.to_string().contains(&target.mark),
                (Proof::Success | Proof::Gone | Proof::WrittenInConversation, _) => true,
            };
        cell.add(object.letter, is_allowed);
        if let (true, Some(writer)) = (is_allowed && door.call.starts_with("delete "), *writer) {
            match door.proof {
                Proof::Gone => target.converse(world, writer).await,
                Proof::Success | Proof::Text | Proof::Written | Proof::WrittenInConversation => {
                    target.respond(world, object, writer).await
                }
            }
        }
    }
    cell.shown()
}

#[tokio::test]
async fn routes_and_tools_reach_what_the_page_says() {
    let setting = Setting::start().await;
    let world = &setting.world;
    let audio = FakeAudio::start(AudioVendor::OpenAi, "good day").await.unwrap();
    let openai = NewProvider {
        name: "openai".to_owned(),
        base_url: audio.url(),
        api_key: Some("sk-anna".into()),
        ..NewProvider::default()
    };
    world.directory.providers().put(world.anna.id, Actor::Operator, openai).await.unwrap();
    let mut all = Vec::new();
    for object in setting.objects.all() {
        let writer = if object.letter == 'p' { &setting.other.access } else { &world.anna };
        all.push(Reached::new(world, object, Some(writer)).await);
    }
    let mut owns = Vec::new();
    for caller in &setting.callers {
        let writer = Some(&caller.access).filter(|_| caller.name != "viewer");
        owns.push(match &caller.own {
            Some(own) => Some(Reached::new(world, own, writer).await),
            None => None,
        });
    }

    let mut rows = Vec::new();
    let mut cells = Vec::new();
    for caller in &setting.callers {
        let (_, listed) =
            answer(tool(world, &caller.access, "list_sessions", &json!({"limit": 200}))).await;
        let listed = listed.to_string();
        let mut cell = Cell::default();
        for object in setting.objects_for(caller) {
            cell.add(object.letter, object.is_in(&listed));
        }
        cells.push(cell.shown());
    }
    rows.push(Row { call: "tool list_sessions".to_owned(), cells });
    for door in [writing(), reading(), ending()].into_iter().flatten() {
        let mut cells = Vec::new();
        for (caller, own) in setting.callers.iter().zip(&mut owns) {
            cells.push(try_objects(world, caller, &door, own.as_mut(), &mut all).await);
        }
        rows.push(Row { call: door.call.to_owned(), cells });
    }
    for (call, ask) in other() {
        let mut cells = Vec::new();
        for caller in &setting.callers {
            cells.push(yes_or_no(answer(ask(world, &caller.access)).await.0));
        }
        rows.push(Row { call: call.to_owned(), cells });
    }

    matrix::check("routes and tools", &rows);
}
