//! RBAC: which token may do what.

use std::collections::HashMap;

use serde_json::Value;

use crate::request::{Refusal, Target};

/// Rules of a Role (with its namespace) or of a `ClusterRole`.
#[derive(Debug, Clone)]
struct Grant {
    namespace: Option<String>,
    rules: Vec<Value>,
}

/// Grants of each token. The administrator's token may do everything.
#[derive(Debug, Default)]
pub struct Access {
    grants: HashMap<String, Vec<Grant>>,
    denied: Vec<String>,
}

impl Access {
    /// Adds the rules of a rendered Role or `ClusterRole`.
    pub fn grant(&mut self, token: &str, role: &Value) {
        let is_of_cluster = role["kind"] == "ClusterRole";
        let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        let grant = Grant { namespace: namespace.filter(|_| !is_of_cluster), rules };
        self.grants.entry(token.to_owned()).or_default().push(grant);
    }

    pub fn denied(&self) -> &[String] {
        &self.denied
    }

    /// # Errors
    ///
    /// 401 for an unknown token, 403 if no rule permits the request.
    pub fn check(&mut self, token: &str, verb: &str, target: &Target) -> Result<(), Refusal> {
        if token == crate::ADMIN {
            return Ok(());
        }
        let Some(grants) = self.grants.get(token) else {
            return Err(Refusal::new(401, "Unauthorized", "Unauthorized"));
        };
        let is_granted = grants
            .iter()
            .filter(|grant| grant.namespace.as_ref().is_none_or(|name| *name == target.namespace))
            .any(|grant| grant.rules.iter().any(|rule| permits(rule, verb, target)));
        if is_granted {
            return Ok(());
        }
        let resource = match target.subresource.as_str() {
            "" => target.plural.clone(),
            subresource => format!("{}/{subresource}", target.plural),
        };
        let message = format!(
            "User \"{token}\" cannot {verb} resource \"{resource}\" in API group \"{}\" in the \
             namespace \"{}\"",
            target.group, target.namespace
        );
        self.denied.push(message.clone());
        Err(Refusal::new(403, "Forbidden", message))
    }
}

fn permits(rule: &Value, verb: &str, target: &Target) -> bool {
    let names = |field: &str, wanted: &str| {
        let listed = rule[field].as_array().into_iter().flatten();
        listed.into_iter().any(|item| item == wanted || item == "*")
    };
    let resource = match target.subresource.as_str() {
        "" => target.plural.clone(),
        subresource => format!("{}/{subresource}", target.plural),
    };
    // A rule with names never permits to create or list, as the name is not known then.
    let has_name = match rule["resourceNames"].as_array() {
        Some(listed) if !listed.is_empty() => {
            verb != "create" && listed.iter().any(|item| *item == *target.name)
        }
        Some(_) | None => true,
    };
    names("verbs", verb)
        && names("apiGroups", &target.group)
        && names("resources", &resource)
        && has_name
}
