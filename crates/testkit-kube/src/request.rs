//! Requests: what a path and a method ask for, and the answers of failures.

use std::collections::HashMap;

use serde_json::{Value, json};

/// A request, as it arrived.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: HashMap<String, String>,
    pub accept: String,
    pub content_type: String,
    /// The bearer token.
    pub token: String,
    pub body: Value,
}

/// Object or collection that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    pub subresource: String,
}

/// A failure, as the server answers it.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

impl Refusal {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn invalid(target: &Target, problems: &[String]) -> Self {
        let message = format!("{} is invalid: {}", target.shown(), problems.join(", "));
        Self::new(422, "Invalid", message)
    }

    pub fn not_found(target: &Target) -> Self {
        Self::new(404, "NotFound", format!("{} not found", target.shown()))
    }

    pub fn conflict(target: &Target, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {}: {why}", target.shown());
        Self::new(409, "Conflict", message)
    }

    pub fn gone() -> Self {
        Self::new(410, "Expired", "too old resource version")
    }

    /// The object `Status` of this failure.
    pub fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}

impl Target {
    /// Parses `/api/v1/…` and `/apis/<group>/<version>/…`.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').map(str::to_owned);
        let group = match parts.next()?.as_str() {
            "api" => String::new(),
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let mut rest: Vec<String> = parts.collect();
        let mut namespace = String::new();
        if rest.first().is_some_and(|part| part == "namespaces") && rest.len() > 2 {
            namespace = rest.remove(1);
            rest.remove(0);
        }
        let mut rest = rest.into_iter();
        let plural = rest.next()?;
        let name = rest.next().unwrap_or_default();
        let subresource = rest.next().unwrap_or_default();
        rest.next().is_none().then_some(Self {
            group,
            version,
            plural,
            namespace,
            name,
            subresource,
        })
    }

    /// `group/plural`.
    pub fn resource(&self) -> String {
        format!("{}/{}", self.group, self.plural)
    }

    fn shown(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        format!("{}{group} \"{}\"", self.plural, self.name)
    }

    /// The verb that RBAC checks.
    pub fn verb(&self, request: &Request) -> &'static str {
        let is_watch = request.query.get("watch").is_some_and(|value| value == "true");
        match (request.method.as_str(), self.name.is_empty()) {
            ("GET", true) if is_watch => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => "unknown",
        }
    }
}
