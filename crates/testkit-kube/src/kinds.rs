//! Resources that the server knows: built-in ones, and those of installed definitions.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube_cel::CompiledSchema;
use serde_json::{Value, json};

use crate::{
    pods,
    request::{Refusal, Target},
};

#[derive(Debug, Clone)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub is_namespaced: bool,
    pub has_status: bool,
    /// Null for a built-in resource.
    pub schema: Value,
    pub rules: Arc<CompiledSchema>,
}

const BUILT_IN: [(&str, &str, &str, &str, bool); 7] = [
    ("", "v1", "namespaces", "Namespace", false),
    ("", "v1", "secrets", "Secret", true),
    ("", "v1", "configmaps", "ConfigMap", true),
    ("", "v1", "pods", "Pod", true),
    ("coordination.k8s.io", "v1", "leases", "Lease", true),
    ("events.k8s.io", "v1", "events", "Event", true),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
];

pub fn built_in() -> Vec<Kind> {
    let kind =
        |(group, version, plural, kind, is_namespaced): (&str, &str, &str, &str, bool)| Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            is_namespaced,
            has_status: kind == "Pod",
            schema: Value::Null,
            rules: Arc::new(kube_cel::compile_schema(&Value::Null)),
        };
    BUILT_IN.map(kind).to_vec()
}

/// The kinds of a definition, one for each served version.
pub fn of_definition(definition: &Value) -> Vec<Kind> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["served"] == true)
        .map(|version| Kind {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            plural: text(&spec["names"]["plural"]),
            kind: text(&spec["names"]["kind"]),
            is_namespaced: spec["scope"] == "Namespaced",
            has_status: version["subresources"]["status"].is_object(),
            schema: version["schema"]["openAPIV3Schema"].clone(),
            rules: Arc::new(kube_cel::compile_schema(&version["schema"]["openAPIV3Schema"])),
        })
        .collect()
}

impl Kind {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub fn is_custom(&self) -> bool {
        !self.schema.is_null()
    }

    /// Checks a built-in object as far as the server would.
    pub fn check_built_in(
        &self,
        target: &Target,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Refusal> {
        let mut problems = Vec::new();
        match self.kind.as_str() {
            "Secret" => check_secret(object, old, &mut problems),
            "Event" => check_event(object, &mut problems),
            "Lease" => {
                let seconds = &object["spec"]["leaseDurationSeconds"];
                if !seconds.is_null() && seconds.as_i64().is_none_or(|seconds| seconds <= 0) {
                    problems.push("spec.leaseDurationSeconds: must be greater than 0".to_owned());
                }
            }
            "CustomResourceDefinition" => check_definition(object, &mut problems),
            "Pod" => pods::check(object, old, &mut problems)?,
            _ => {}
        }
        if problems.is_empty() { Ok(()) } else { Err(Refusal::invalid(target, &problems)) }
    }
}

fn check_secret(object: &mut Value, old: Option<&Value>, problems: &mut Vec<String>) {
    if let Some(plain) = object.as_object_mut().and_then(|fields| fields.remove("stringData")) {
        for (name, value) in plain.as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            object["data"][name] = STANDARD.encode(text).into();
        }
    }
    if object["type"].is_null() {
        object["type"] = json!("Opaque");
    }
    if old.is_some_and(|old| old["type"] != object["type"]) {
        problems.push("type: field is immutable".to_owned());
    }
    for (name, value) in object["data"].as_object().into_iter().flatten() {
        if value.as_str().is_none_or(|text| STANDARD.decode(text).is_err()) {
            problems.push(format!("data[{name}]: illegal base64 data"));
        }
    }
}

fn check_event(object: &Value, problems: &mut Vec<String>) {
    for field in ["reportingController", "reportingInstance", "action", "reason", "type"] {
        let length = object[field].as_str().map_or(0, str::len);
        if length == 0 || length > 128 {
            problems.push(format!("{field}: must have 1 to 128 characters"));
        }
    }
    if object["eventTime"].is_null() {
        problems.push("eventTime: Required value".to_owned());
    }
    if object["note"].as_str().is_some_and(|note| note.len() > 1024) {
        problems.push("note: can have at most 1024 bytes".to_owned());
    }
    if object["regarding"]["namespace"] != object["metadata"]["namespace"] {
        problems.push("regarding.namespace: does not match event.namespace".to_owned());
    }
}

fn check_definition(object: &Value, problems: &mut Vec<String>) {
    let spec = &object["spec"];
    let name = format!(
        "{}.{}",
        spec["names"]["plural"].as_str().unwrap_or_default(),
        spec["group"].as_str().unwrap_or_default()
    );
    if object["metadata"]["name"] != name {
        problems.push(format!("metadata.name: must be {name}"));
    }
    for kind in of_definition(object) {
        problems.extend(crate::schema::problems_of_definition(&kind.schema));
    }
}
