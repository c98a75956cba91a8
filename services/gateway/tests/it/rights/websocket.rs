//! Methods of the WebSocket gateway, in both protocols.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    callers::{Caller, Setting},
    matrix::{self, Cell, Row, yes_or_no},
    objects::{Object, Part},
    unaffected,
};
use crate::{websocket::sweep::Connection, world::World};

/// What has to be done after a call was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    BeginAnew,
    PairAnew,
}

/// A method, what it names, and parameters with that.
type Door = (&'static str, Part, After, fn(&str) -> Value);

fn doors() -> Vec<Door> {
    [lists(), reading(), writing(), people(), ends()].concat()
}

fn lists() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("sessions.list", Part::List, none, |_| json!({"limit": 200})),
        ("sessions.usage", Part::List, none, |_| json!({"limit": 200})),
        ("tasks.list", Part::List, none, |_| json!({"limit": 200})),
        ("device.pair.list", Part::List, none, |_| json!({})),
        (
            "sessions.resolve – `sessionId`",
            Part::SessionId,
            none,
            |id| json!({"sessionId": id, "allowMissing": true}),
        ),
    ]
}

fn reading() -> Vec<Door> {
    let none = After::Nothing;
    let key = |key: &str| json!({ "key": key });
    let session = |key: &str| json!({ "sessionKey": key });
    vec![
        ("chat.history", Part::Key, none, session),
        ("chat.startup", Part::Key, none, session),
        ("chat.metadata", Part::Key, none, session),
        ("agent.identity.get", Part::Key, none, session),
        ("chat.message.get", Part::Key, none, |key| json!({"sessionKey": key, "messageId": "x"})),
        ("sessions.describe", Part::Key, none, key),
        ("sessions.get", Part::Key, none, key),
        ("sessions.resolve", Part::Key, none, key),
        ("sessions.preview", Part::Key, none, |key| json!({"keys": [key]})),
        ("sessions.branches.list", Part::Key, none, session),
        ("sessions.messages.subscribe", Part::Key, none, key),
        ("sessions.messages.unsubscribe", Part::Key, none, key),
        ("events.subscribe", Part::Key, none, session),
        ("events.log.subscribe", Part::Key, none, session),
        ("progressCard.get", Part::Key, none, session),
        ("tools.effective", Part::Key, none, session),
        ("tasks.get", Part::Subagent, none, |id| json!({"taskId": id})),
        ("agent.wait", Part::Run, none, |run| json!({"runId": run})),
    ]
}

fn writing() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        (
            "agent",
            Part::Key,
            none,
            |key| json!({"sessionKey": key, "message": "hello", "idempotencyKey": unique()}),
        ),
        (
            "chat.send",
            Part::Key,
            none,
            |key| json!({"sessionKey": key, "message": "hello", "idempotencyKey": unique()}),
        ),
        ("chat.inject", Part::Key, none, |key| json!({"sessionKey": key, "message": "hello"})),
        ("sessions.create", Part::Key, none, |key| json!({"key": key, "message": "hello"})),
        ("sessions.send", Part::Key, none, |key| json!({"key": key, "message": "hello"})),
        ("sessions.spawn", Part::Key, none, |key| json!({"key": key, "message": "hello"})),
        ("sessions.patch", Part::Key, none, |key| json!({"key": key, "pinned": true})),
        (
            "sessions.patchMany",
            Part::Key,
            none,
            |key| json!({"targets": [{ "key": key }], "patch": {"pinned": true}}),
        ),
        ("sessions.reset", Part::Key, none, |key| json!({ "key": key })),
        ("sessions.compact", Part::Key, none, |key| json!({ "key": key })),
        ("wake", Part::Key, none, |key| json!({"sessionKey": key, "text": "hello", "mode": "now"})),
        ("chat.abort", Part::Key, none, |key| json!({ "sessionKey": key })),
        ("sessions.abort", Part::Key, none, |key| json!({ "key": key })),
        ("tasks.cancel", Part::Subagent, none, |id| json!({"taskId": id})),
    ]
}

fn people() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        (
            "device.token.rotate",
            Part::Device,
            none,
            |id| json!({"deviceId": id, "role": "operator"}),
        ),
        (
            "device.token.revoke",
            Part::Device,
            none,
            |id| json!({"deviceId": id, "role": "operator"}),
        ),
    ]
}

fn ends() -> Vec<Door> {
    vec![
        (
            "device.pair.approve",
            Part::DeviceRequest,
            After::PairAnew,
            |id| json!({"requestId": id}),
        ),
        ("device.pair.reject", Part::DeviceRequest, After::PairAnew, |id| json!({"requestId": id})),
        ("device.pair.remove", Part::Device, After::PairAnew, |id| json!({"deviceId": id})),
        ("sessions.delete", Part::Key, After::BeginAnew, |key| json!({ "key": key })),
    ]
}

/// Calls about tool calls that wait. The conversations wait with them, so they are last.
fn approvals() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("exec.approval.list", Part::List, none, |_| json!({})),
        ("exec.approval.get", Part::Approval, none, |id| json!({ "id": id })),
        ("approval.get", Part::Approval, none, |id| json!({ "id": id })),
        ("exec.approval.resolve", Part::Approval, none, |id| json!({"id": id, "decision": "deny"})),
        ("approval.resolve", Part::Approval, none, |id| json!({"id": id, "decision": "deny"})),
        ("approval.history", Part::List, none, |_| json!({"limit": 100})),
    ]
}

fn unique() -> String {
    Uuid::now_v7().simple().to_string()
}

/// Name of a method, without what a row says about it.
fn method_of(&(name, ..): &Door) -> &str {
    name.split_once(" – ").map_or(name, |(method, _)| method)
}

/// Whether the right to something is missing.
///
/// # Panics
///
/// If the request is wrong, so that the answer says nothing about rights.
fn is_refused(call: &str, who: &str, answer: &Result<Value, Value>) -> bool {
    match answer {
        // Of several sessions each has its own error.
        Ok(done) => done["outcomes"][0]["error"]["code"] == "FORBIDDEN",
        Err(error) if is_refusal(error) => true,
        // Decided before, or ended.
        Err(error) if is_state(error["message"].as_str().unwrap_or_default()) => false,
        Err(error) => panic!("{call} by {who}: {error}"),
    }
}

/// Whether an error says that a right is missing. One of the protocols has no code for that.
fn is_refusal(error: &Value) -> bool {
    let told = error["message"].as_str().unwrap_or_default();
    let is_told = |begin: &&str| told.starts_with(*begin);
    error["code"] == "FORBIDDEN"
        || error["details"]["code"] == "MISSING_SCOPE"
        || ["this conversation is not", "this needs the"].iter().any(is_told)
}

/// Whether an error is about the state of something, which is told to those only who may reach it.
fn is_state(message: &str) -> bool {
    ["was decided", "already", "has ended"].iter().any(|words| message.contains(words))
}

async fn try_objects(
    world: &World,
    (caller, connection): (&Caller, &mut Connection),
    door: &Door,
    objects: Vec<&mut Object>,
) -> String {
    let (method, (name, part, after, params)) = (method_of(door), door);
    let mut cell = Cell::default();
    if *part == Part::List {
        let answer = connection.call(method, &params("")).await;
        let shown = match is_refused(name, &caller.name, &answer) {
            true => String::new(),
            false => answer.map(|answer| answer.to_string()).unwrap_or_default(),
        };
        for object in objects.iter().filter(|object| object.is_listed_by(method)) {
            cell.add(object.letter, object.is_in(&shown));
        }
        return cell.shown();
    }
    for object in objects {
        for named in object.names(*part) {
            let answer = connection.call(method, &params(named)).await;
            let who = format!("{} on {named}", caller.name);
            let is_missing = answer
                .as_ref()
                .is_ok_and(|answer| *part == Part::SessionId && answer["ok"] == false);
            cell.add(object.letter, !is_refused(name, &who, &answer) && !is_missing);
        }
        match after {
            After::Nothing => {}
            After::BeginAnew => object.begin(world).await,
            After::PairAnew if object.names(Part::Device).is_empty() => {}
            After::PairAnew => object.pair_again(world).await,
        }
    }
    cell.shown()
}

async fn rows(setting: &mut Setting, connections: &mut [Connection], doors: &[Door]) -> Vec<Row> {
    let Setting { world, callers, objects, .. } = setting;
    let mut rows = Vec::new();
    for door in doors {
        let mut cells = Vec::new();
        for (caller, connection) in callers.iter_mut().zip(connections.iter_mut()) {
            let mut own = caller.own.take();
            let all = own.iter_mut().chain(objects.all_mut()).collect();
            cells.push(try_objects(world, (caller, connection), door, all).await);
            caller.own = own;
        }
        rows.push(Row { call: door.0.to_owned(), cells });
    }
    rows
}

async fn connect(setting: &Setting, is_lurkbot: bool) -> Vec<Connection> {
    let mut connections = Vec::new();
    for caller in &setting.callers {
        connections
            .push(Connection::open(setting.world.http, &caller.access.key, is_lurkbot).await);
    }
    connections
}

#[tokio::test]
async fn every_websocket_method_has_a_row_or_a_reason_for_none() {
    let world = World::start().await.unwrap();
    let mut known = BTreeSet::new();
    for is_lurkbot in [false, true] {
        let mut connection = Connection::open(world.http, &world.anna.key, is_lurkbot).await;
        for method in connection.methods.clone() {
            // Names of one protocol for methods of both.
            if !["agents.identity", "sessions.history", "cron.wake"].contains(&method.as_str()) {
                let fields = connection.fields(&method).await;
                known.insert((method, fields));
            }
        }
    }
    let (doors, approvals) = (doors(), approvals());
    let tried: BTreeSet<&str> = doors.iter().chain(&approvals).map(method_of).collect();
    let reasons = unaffected::names(unaffected::WEBSOCKET);

    assert!(tried.is_disjoint(&reasons));
    let names: BTreeSet<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(&tried | &reasons, names);
    const NAMES: [&str; 6] = ["sessionKey", "key", "keys", "sessionId", "taskId", "deviceId"];
    for (name, fields) in &known {
        let named: Vec<_> = fields.iter().filter(|field| NAMES.contains(&field.as_str())).collect();
        assert!(!reasons.contains(name.as_str()) || named.is_empty(), "{name}: {named:?}");
    }
}

#[tokio::test]
async fn websocket_methods_reach_what_the_page_says() {
    let mut setting = Setting::start().await;
    // All methods but those of LurkBot's protocol only.
    let (openclaw, lurkbot): (Vec<Door>, Vec<Door>) =
        doors().into_iter().partition(|door| door.0 != "events.subscribe");
    let mut connections = connect(&setting, false).await;
    let mut all = rows(&mut setting, &mut connections, &openclaw).await;
    let mut others = connect(&setting, true).await;
    all.append(&mut rows(&mut setting, &mut others, &lurkbot).await);
    let Setting { world, callers, objects, .. } = &mut setting;
    for object in objects.all_mut().chain(callers.iter_mut().filter_map(|it| it.own.as_mut())) {
        object.ask(world).await;
    }
    all.append(&mut rows(&mut setting, &mut connections, &approvals()).await);

    matrix::check("websocket methods", &all);
}

#[tokio::test]
async fn websocket_methods_that_name_nothing_of_a_person_are_permitted_to_whom_the_page_says() {
    let setting = Setting::start().await;
    let mut connections = connect(&setting, false).await;
    let mut others = connect(&setting, true).await;
    let mut all = Vec::new();
    for (_, methods) in unaffected::WEBSOCKET {
        for method in *methods {
            let mut cells = Vec::new();
            let is_lurkbot = method.starts_with("events.") && !method.starts_with("events.log");
            let used = if is_lurkbot { &mut others } else { &mut connections };
            for connection in used {
                let answer = connection.call(method, &json!({})).await;
                let refused = answer.is_err_and(|error| is_refusal(&error));
                cells.push(yes_or_no(!refused));
            }
            all.push(Row { call: (*method).to_owned(), cells });
        }
    }

    matrix::check("other websocket methods", &all);
}
