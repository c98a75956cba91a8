//! Checks of pods: those of the API server, and those of the Pod Security level `restricted`.

use serde_json::{Value, json};

use crate::request::Refusal;

/// Checks a pod, and fills what the server fills.
///
/// # Errors
///
/// 403 if the pod violates the level `restricted`.
pub fn check(
    object: &mut Value,
    old: Option<&Value>,
    problems: &mut Vec<String>,
) -> Result<(), Refusal> {
    check_labels(&object["metadata"]["labels"], problems);
    if let Some(old) = old {
        // Of the spec, only images, deadlines and tolerations can change; nobody here does.
        if object["spec"] != old["spec"] {
            problems.push("spec: Forbidden: pod updates may not change fields".to_owned());
        }
        return Ok(());
    }
    object["status"] = json!({"phase": "Pending"});
    let spec = &object["spec"];
    let containers = spec["containers"].as_array().cloned().unwrap_or_default();
    if containers.is_empty() {
        problems.push("spec.containers: Required value".to_owned());
    }
    let seconds = &spec["activeDeadlineSeconds"];
    if !seconds.is_null() && seconds.as_i64().is_none_or(|seconds| seconds <= 0) {
        problems.push("spec.activeDeadlineSeconds: must be greater than 0".to_owned());
    }
    let volumes: Vec<&Value> =
        spec["volumes"].as_array().into_iter().flatten().map(|volume| &volume["name"]).collect();
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        check_quantity(&volume["emptyDir"]["sizeLimit"], "sizeLimit", problems);
    }
    for container in &containers {
        check_container(container, &volumes, problems);
    }
    let violations = violations(spec, &containers);
    if violations.is_empty() {
        return Ok(());
    }
    let message = format!(
        "pods \"{}\" is forbidden: violates PodSecurity \"restricted:latest\": {}",
        object["metadata"]["name"].as_str().unwrap_or_default(),
        violations.join(", ")
    );
    Err(Refusal::new(403, "Forbidden", message))
}

fn check_container(container: &Value, volumes: &[&Value], problems: &mut Vec<String>) {
    for field in ["name", "image"] {
        if container[field].as_str().is_none_or(str::is_empty) {
            problems.push(format!("spec.containers[0].{field}: Required value"));
        }
    }
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        if !volumes.contains(&&mount["name"]) {
            problems.push(format!("spec.containers[0].volumeMounts: Not found: {}", mount["name"]));
        }
    }
    let resources = &container["resources"];
    for kind in ["requests", "limits"] {
        for (name, quantity) in resources[kind].as_object().into_iter().flatten() {
            check_quantity(quantity, name, problems);
        }
    }
}

fn check_quantity(quantity: &Value, name: &str, problems: &mut Vec<String>) {
    let is_quantity = quantity.as_str().is_some_and(|text| {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let suffix = &text[number.len()..];
        number.parse::<f64>().is_ok()
            && ["", "m", "k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti"].contains(&suffix)
    });
    if !quantity.is_null() && !is_quantity {
        problems.push(format!("{name}: Invalid value: {quantity}: quantities must match a number"));
    }
}

fn check_labels(labels: &Value, problems: &mut Vec<String>) {
    for (name, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or("?");
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let has_ends = value.chars().next().is_none_or(|c| c.is_ascii_alphanumeric())
            && value.chars().next_back().is_none_or(|c| c.is_ascii_alphanumeric());
        if value.len() > 63 || !value.chars().all(is_word) || !has_ends {
            problems.push(format!("metadata.labels: Invalid value: {name}"));
        }
    }
}

fn violations(spec: &Value, containers: &[Value]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec[host] == true {
            found.push("host namespaces");
        }
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    if volumes.into_iter().any(|volume| !volume["hostPath"].is_null()) {
        found.push("restricted volume types");
    }
    let pod = &spec["securityContext"];
    for container in containers {
        let own = &container["securityContext"];
        let either = |field: &str| if own[field].is_null() { &pod[field] } else { &own[field] };
        if *either("runAsNonRoot") != true || *either("runAsUser") == 0 {
            found.push("runAsNonRoot != true");
        }
        if !["RuntimeDefault", "Localhost"]
            .contains(&either("seccompProfile")["type"].as_str().unwrap_or_default())
        {
            found.push("seccompProfile");
        }
        if own["allowPrivilegeEscalation"] != false {
            found.push("allowPrivilegeEscalation != false");
        }
        if own["capabilities"]["drop"] != json!(["ALL"]) {
            found.push("unrestricted capabilities");
        }
    }
    found
}
