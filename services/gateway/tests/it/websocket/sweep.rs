//! All methods of both protocols: hostile parameters, another tenant's ids, missing scopes.
//!
//! Methods and their fields are read from the gateway: `features.methods` has the registered names,
//! and the refusal of an unknown field names the known ones. A new method is in the sweep by itself.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use gateway::Config;
use serde_json::{Map, Value, json};

use super::client::{Client, connect_params, hello};
use crate::{foreign::Things, world::World};

/// Hostile inputs for each method and protocol.
const ROUNDS: usize = 8;

/// A connection in one of the protocols.
pub struct Connection {
    client: Client,
    is_lurkbot: bool,
    /// Names of the methods that the connection may call.
    pub methods: Vec<String>,
    next: usize,
}

/// Answer to a request: the result, or the error.
pub type Answer = Result<Value, Value>;

impl Connection {
    pub async fn open(at: SocketAddr, key: &str, is_lurkbot: bool) -> Self {
        let (client, greeting) = match is_lurkbot {
            true => Client::lurkbot(at, hello(key)).await.unwrap(),
            false => {
                let (client, answer) = Client::connect(at, connect_params(key)).await.unwrap();
                (client, answer.unwrap())
            }
        };
        let methods = greeting["features"]["methods"].as_array().unwrap();
        let methods = methods.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        Self { client, is_lurkbot, methods, next: 0 }
    }

    /// Calls a method. The answer has the form that its protocol prescribes.
    pub async fn call(&mut self, method: &str, params: &Value) -> Answer {
        self.next += 1;
        let id = format!("s{}", self.next);
        let kind = if self.is_lurkbot { "request" } else { "req" };
        let frame = json!({ "type": kind, "id": id, "method": method, "params": params });
        self.client.send(&frame).await.unwrap();
        let answer = loop {
            let frame = self.client.frame().await;
            let frame = frame.unwrap_or_else(|error| panic!("{method} {params}: {error}"));
            if frame["id"] == id {
                break frame;
            }
        };
        match self.is_lurkbot {
            true => lurkbot_answer(&answer),
            false => openclaw_answer(&answer),
        }
        .unwrap_or_else(|| panic!("{method} {params}: no answer of the protocol: {answer}"))
    }

    /// Names of the fields of a method's parameters.
    pub async fn fields(&mut self, method: &str) -> Vec<String> {
        let error = self.call(method, &json!({ "noSuchField": 1 })).await.expect_err(method);
        let told = error["message"].as_str().unwrap();
        let (_, known) = told.split_once("expected ").unwrap_or_default();
        quoted(known)
    }

    /// Parameters that a method accepts, as far as its refusals say what is missing.
    async fn learn(&mut self, method: &str) -> Value {
        let mut params = json!({});
        for _ in 0..24 {
            let Err(error) = self.call(method, &params).await else { break };
            if !fill(&mut params, error["message"].as_str().unwrap()) {
                break;
            }
        }
        params
    }
}

fn openclaw_answer(frame: &Value) -> Option<Answer> {
    let frame = frame.as_object()?;
    let is_known =
        |key: &String| matches!(key.as_str(), "type" | "id" | "ok" | "payload" | "error");
    if frame["type"] != "res" || !frame.keys().all(is_known) {
        return None;
    }
    match (frame["ok"].as_bool()?, frame.get("payload"), frame.get("error")) {
        (true, Some(payload), None) => Some(Ok(payload.clone())),
        (false, None, Some(error)) => {
            let codes = [
                "INVALID_REQUEST",
                "FORBIDDEN",
                "NOT_PAIRED",
                "APPROVAL_NOT_FOUND",
                "UNAVAILABLE",
                "AGENT_TIMEOUT",
                "NOT_LINKED",
            ];
            let optional = ["details", "retryable", "retryAfterMs"];
            checked_error(error, &codes, &optional).map(Err)
        }
        _ => None,
    }
}

fn lurkbot_answer(frame: &Value) -> Option<Answer> {
    let frame = frame.as_object()?;
    let is_known = |key: &String| matches!(key.as_str(), "type" | "id" | "result" | "error");
    if frame["type"] != "response" || !frame.keys().all(is_known) {
        return None;
    }
    match (frame.get("result"), frame.get("error")) {
        (Some(result), None) => Some(Ok(result.clone())),
        (None, Some(error)) => {
            let codes = [
                "INVALID_REQUEST",
                "METHOD_NOT_FOUND",
                "NOT_PAIRED",
                "AGENT_TIMEOUT",
                "UNAVAILABLE",
                "INTERNAL_ERROR",
            ];
            checked_error(error, &codes, &["details"]).map(Err)
        }
        _ => None,
    }
}

fn checked_error(error: &Value, codes: &[&str], optional: &[&str]) -> Option<Value> {
    let fields = error.as_object()?;
    let is_known = |key: &String| {
        matches!(key.as_str(), "code" | "message") || optional.contains(&key.as_str())
    };
    let is_right = codes.contains(&fields["code"].as_str()?)
        && !fields["message"].as_str()?.is_empty()
        && fields.keys().all(is_known)
        && fields.get("details").is_none_or(Value::is_object)
        && fields.get("retryAfterMs").is_none_or(Value::is_u64);
    is_right.then(|| error.clone())
}

/// Whether an error is a defect of the gateway.
fn is_defect(error: &Value) -> bool {
    error["code"] == "INTERNAL_ERROR" || error["message"] == "internal error"
}

/// Words in back quotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Changes parameters as a refusal demands; `false` if it demands nothing that is known.
fn fill(params: &mut Value, told: &str) -> bool {
    let told = told.split_once(" params: ").map_or(told, |(_, told)| told);
    if let Some((path, rest)) = told.split_once("missing field ") {
        let Some(field) = quoted(rest).into_iter().next() else { return false };
        let Some(Value::Object(fields)) = at(params, path.trim_end_matches(": ")) else {
            return false;
        };
        // A field that is there is not the one that is missing.
        return fields.insert(field.clone(), sample(&field)).is_none();
    }
    let Some((path, problem)) = told.split_once(": ") else { return false };
    let Some(value) = at(params, path) else { return false };
    let (_, expected) = problem.split_once("expected ").unwrap_or_default();
    let new = match expected.split_whitespace().next().unwrap_or_default() {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => json!(60_000),
        "a" if expected.starts_with("a boolean") => json!(true),
        "a" if expected.starts_with("a sequence") => json!([]),
        "a" if expected.starts_with("a string") => json!("x"),
        "a" if expected.starts_with("a map") => json!({}),
        "struct" | "internally" | "enum" | "adjacently" => json!({}),
        _ => match quoted(expected).into_iter().next() {
            Some(variant) => json!(variant),
            None => return false,
        },
    };
    std::mem::replace(value, new.clone()) != new
}

fn sample(field: &str) -> Value {
    match field {
        "sessionKey" | "key" => json!("agent:main:swept"),
        "keys" => json!(["agent:main:swept"]),
        "agentId" => json!("main"),
        _ => json!("x"),
    }
}

/// Value at a path such as `schedule.kind` or `items[0]`.
fn at<'a>(params: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let path = path.replace('[', ".").replace(']', "");
    let mut value = params;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        value = match part.parse::<usize>() {
            Ok(index) => value.get_mut(index)?,
            Err(_) => value.get_mut(part)?,
        };
    }
    Some(value)
}

/// Numbers that are the same in each run (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    fn value(&mut self) -> Value {
        let texts = [
            "",
            " ",
            "\0",
            "a\0b",
            "\u{202e}x",
            "../../etc/passwd",
            "main",
            "agent:main:main",
            "agent:main:dm:telegram:7",
            "agent::",
            "null",
            "-1",
            "'; drop table x; --",
            "%00",
            "{}",
            "ses_0190f3c4d5e67890abcd1234567890ab",
            "evc1_zz",
            "evc1_7fffffffffffffff",
            "👩‍👩‍👧‍👦",
            "2026-02-30T25:61:00Z",
            "* * * * *",
            "/new",
            "data:;base64,AA",
        ];
        match self.below(16) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!([0, 1, -1][self.below(3)]),
            3 => json!([i64::MAX, i64::MIN][self.below(2)]),
            4 => json!([u64::MAX, 4_294_967_296][self.below(2)]),
            5 => json!(1e308),
            6 => json!([]),
            7 => json!([null, "x", 1, {}]),
            8 => json!({ "a": { "b": [null] }, "\0": 1 }),
            9 => "x".repeat(5_000).into(),
            10 => (0..60).fold(json!(1), |inner, _| json!([inner])),
            _ => texts[self.below(texts.len())].into(),
        }
    }

    /// Parameters that resemble ones that were accepted.
    fn mutated(&mut self, params: &Value, fields: &[String]) -> Value {
        if self.below(20) == 0 {
            return self.value();
        }
        let mut params = params.clone();
        let Some(known) = params.as_object_mut() else { return params };
        for field in fields {
            match self.below(6) {
                0 => drop(known.insert(field.clone(), self.value())),
                1 => drop(known.remove(field)),
                2 if known.contains_key(field) => {
                    if let Some(inner) = known.get_mut(field).and_then(Value::as_object_mut) {
                        self.change(inner);
                    }
                }
                _ => {}
            }
        }
        params
    }

    fn change(&mut self, fields: &mut Map<String, Value>) {
        let names: Vec<String> = fields.keys().cloned().collect();
        for name in names {
            if self.below(2) == 0 {
                fields.insert(name, self.value());
            }
        }
    }
}

/// As many calls as the sweep makes.
fn unlimited(config: &mut Config) {
    config.gateway.rate_window = Duration::from_secs(600);
}

#[tokio::test]
async fn every_method_survives_every_parameter() {
    let world = World::start_with(unlimited).await.unwrap();
    let (mut dice, mut defects, mut accepted) = (Dice(7), Vec::new(), 0);
    for is_lurkbot in [false, true] {
        let mut caller = Connection::open(world.http, &world.anna.key, is_lurkbot).await;
        let methods = caller.methods.clone();
        assert!(methods.len() > 80, "{}", methods.len());
        for method in &methods {
            let fields = caller.fields(method).await;
            let valid = caller.learn(method).await;
            for _ in 0..ROUNDS {
                let params = dice.mutated(&valid, &fields);
                match caller.call(method, &params).await {
                    Ok(_) => accepted += 1,
                    Err(error) if is_defect(&error) => {
                        defects.push(format!("{method} {params}: {error}"))
                    }
                    Err(_) => {}
                }
            }
        }
        let health = caller.call("health", &json!({})).await;
        assert!(health.is_ok(), "{health:?}");
    }
    assert!(defects.is_empty(), "{}", defects.join("\n"));
    // Otherwise nothing was tried but the check of the parameters.
    assert!(accepted > 100, "{accepted}");
}

/// Ids and names of a tenant that a field of this name could have.
fn candidates<'a>(field: &str, of: &'a Things) -> Vec<&'a str> {
    let name = field.to_lowercase();
    let all: &[&String] =
        if name.contains("session") || name.ends_with("key") || name.ends_with("keys") {
            &[&of.session, &of.session_key]
        } else if name.contains("agent") {
            &[&of.agent, &of.agent_name]
        } else if name.contains("run") {
            &[&of.run, &of.message, &of.request_id]
        } else if name.ends_with("id") || name.ends_with("ids") {
            &[
                &of.agent_name,
                &of.session,
                &of.message,
                &of.run,
                &of.approval,
                &of.approval_rule,
                &of.job_id,
                &of.reminder,
                &of.node,
                &of.account,
            ]
        } else if matches!(name.as_str(), "target" | "to" | "peer" | "reference") {
            &[&of.agent_name, &of.job, &of.session_key]
        } else {
            &[]
        };
    all.iter().map(|id| id.as_str()).collect()
}

/// Parameters with another value in one field, which may be a list.
fn with(params: &Value, field: &str, value: &str) -> Value {
    let mut params = params.clone();
    let is_list = params[field].is_array()
        || field.ends_with("Keys")
        || field.ends_with("Ids")
        || field == "keys";
    params[field] = if is_list { json!([value]) } else { json!(value) };
    params
}

#[tokio::test]
async fn an_id_of_another_tenant_is_an_unknown_one_to_every_method() {
    let world = World::start_with_memory_and(unlimited).await.unwrap();
    let (annas, nobodys) = (Things::of_anna(&world).await.unwrap(), Things::of_nobody());
    let (mut tried, mut told, mut methods_tried) = (0, Vec::new(), BTreeSet::new());
    let mut swept = BTreeSet::new();
    for is_lurkbot in [false, true] {
        let mut ben = Connection::open(world.http, &world.ben.key, is_lurkbot).await;
        for method in ben.methods.clone() {
            // What both protocols have is one method.
            if !swept.insert(method.clone()) {
                continue;
            }
            let fields = ben.fields(&method).await;
            let valid = ben.learn(&method).await;
            for field in &fields {
                let pairs = candidates(field, &annas).into_iter().zip(candidates(field, &nobodys));
                for (foreign, unknown) in pairs {
                    let params = with(&valid, field, foreign);
                    let answer = ben.call(&method, &params).await;
                    let never = ben.call(&method, &with(&valid, field, unknown)).await;
                    let is_same = match (&answer, &never) {
                        // What was asked for may be repeated, and nothing else of it.
                        (Ok(found), Ok(_)) => {
                            !found.to_string().replace(foreign, "").contains("annas")
                        }
                        (Err(found), Err(never)) => {
                            // The ids of a run and its message differ in their prefixes.
                            let masked = |of: &Things, asked: &str, error: &Value| {
                                let id = asked.rsplit('_').next().unwrap_or(asked);
                                let told = error.to_string().replace(asked, "<id>");
                                of.masked(&told.replace(id, "<id>")).replace("msg_<id>", "<id>")
                            };
                            masked(&annas, foreign, found) == masked(&nobodys, unknown, never)
                        }
                        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
                    };
                    if !is_same {
                        told.push(format!(
                            "{method} {params}: {answer:?}, of an unknown one {never:?}"
                        ));
                    }
                    tried += 1;
                    methods_tried.insert(method.clone());
                }
            }
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
    assert!(tried > 200 && methods_tried.len() > 40, "{tried} {methods_tried:?}");
}

#[tokio::test]
async fn a_method_whose_scope_a_connection_lacks_is_refused_as_the_protocol_says() {
    let world = World::start_with(unlimited).await.unwrap();
    for is_lurkbot in [false, true] {
        let all = Connection::open(world.http, &world.anna.key, is_lurkbot).await.methods;
        let mut refused = BTreeSet::new();
        for scope in ["platform", "events", "read", "chat", "approve", "admin"] {
            let key = world.key(&world.anna, &[scope], None).await.unwrap();
            let mut caller = Connection::open(world.http, &key, is_lurkbot).await;
            let allowed: BTreeSet<String> = caller.methods.iter().cloned().collect();
            for method in all.iter().filter(|method| !allowed.contains(*method)) {
                let error = caller.call(method, &json!({})).await.expect_err(method);
                let code = if is_lurkbot { "INVALID_REQUEST" } else { "FORBIDDEN" };
                let details = &error["details"];
                assert_eq!(
                    (&error["code"], &details["code"]),
                    (&json!(code), &json!("MISSING_SCOPE")),
                    "{method}: {error}"
                );
                assert!(
                    details["missingScope"].as_str().unwrap().starts_with("operator."),
                    "{method}: {error}"
                );
                refused.insert(method.clone());
            }
        }
        let free: Vec<&String> = all.iter().filter(|method| !refused.contains(*method)).collect();
        // A device may ask for the scopes that it lacks.
        let allowed = ["device.scopes.requestUpgrade", "device.scopes.waitUpgrade", "health"];
        assert_eq!(free, allowed, "these need no scope");
    }
}
