//! The rules of the API server: what each request does to the stored objects.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use serde_json::{Map, Value, json};

use crate::{
    access::Access,
    kinds::{self, Kind},
    ownership::{self, Manager},
    request::{Refusal, Request, Target},
    schema,
    store::{Key, Store},
};

/// The state of the server.
#[derive(Debug)]
pub struct Server {
    pub store: Store,
    pub access: Access,
    kinds: Vec<Kind>,
    namespaces: BTreeSet<String>,
    /// The request that is being answered changes nothing.
    is_dry_run: bool,
    /// Unknown fields that writers sent and that were dropped.
    pub pruned: Vec<String>,
    /// Number of requests of each verb and resource.
    pub counts: HashMap<String, usize>,
    /// Time that the answers of a verb and resource take.
    pub delays: HashMap<String, Duration>,
}

/// A watch that a request began.
#[derive(Debug, Clone)]
pub struct Watch {
    pub resource: String,
    pub namespace: Option<String>,
    pub api_version: String,
    pub kind: String,
    /// Version after which changes are sent.
    pub after: u64,
    pub is_metadata: bool,
    pub has_bookmarks: bool,
    pub timeout_seconds: u64,
}

pub enum Answer {
    Object(u16, Value),
    Watch(Watch),
    /// The process may be started in this pod.
    Exec(Target),
}

/// An object that is about to be stored.
struct Write<'a> {
    kind: &'a Kind,
    target: &'a Target,
    key: Key,
    old: Option<Value>,
}

impl Server {
    pub fn new(namespaces: &[&str]) -> Self {
        Self {
            store: Store::default(),
            access: Access::default(),
            kinds: kinds::built_in(),
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            is_dry_run: false,
            pruned: Vec::new(),
            counts: HashMap::new(),
            delays: HashMap::new(),
        }
    }

    /// Time that the answer of a request takes.
    pub fn delay(&self, request: &Request) -> Duration {
        let delay = Target::parse(&request.path).and_then(|target| {
            self.delays.get(&format!("{} {}", target.verb(request), target.plural))
        });
        delay.copied().unwrap_or_default()
    }

    /// # Errors
    ///
    /// What the API server answers a request that it refuses.
    pub fn answer(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let unknown =
            || Refusal::new(404, "NotFound", "the server could not find the requested resource");
        let target = Target::parse(&request.path).ok_or_else(unknown)?;
        let verb = target.verb(request);
        *self.counts.entry(format!("{verb} {}", target.plural)).or_default() += 1;
        self.access.check(&request.token, verb, &target)?;
        let kind = self.kind(&target).cloned().ok_or_else(unknown)?;
        if kind.kind == "Pod" && target.subresource == "exec" {
            // Older servers ask for the verb of the method only, newer ones also for `create`.
            self.access.check(&request.token, "create", &target)?;
            self.find(&target)?;
            return Ok(Answer::Exec(target));
        }
        let has_subresource =
            target.subresource.is_empty() || (target.subresource == "status" && kind.has_status);
        if !has_subresource {
            return Err(unknown());
        }
        match verb {
            "list" => self.list(&kind, &target, request),
            "watch" => self.watch(&kind, &target, request),
            "get" => {
                let object = self.find(&target)?.clone();
                Ok(Answer::Object(200, projected(object, request, &kind)))
            }
            "create" => self.create(&kind, &target, request),
            "update" => self.update(&kind, &target, request),
            "patch" => self.patch(&kind, &target, request),
            "delete" => self.delete(&target, &request.body),
            _ => Err(Refusal::new(405, "MethodNotAllowed", "this server has no such request")),
        }
    }

    /// Kinds of a group and version, for a path `/apis/<group>/<version>`.
    pub fn resources(&self, path: &str) -> Option<Value> {
        let (group, version) = path.strip_prefix("/apis/")?.split_once('/')?;
        let is_asked = |kind: &&Kind| kind.group == group && kind.version == version;
        let kinds: Vec<Value> = self
            .kinds
            .iter()
            .filter(is_asked)
            .map(|kind| {
                json!({"name": kind.plural, "singularName": "", "namespaced": kind.is_namespaced,
                    "kind": kind.kind, "verbs": []})
            })
            .collect();
        (!kinds.is_empty()).then(|| {
            json!({"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": format!("{group}/{version}"), "resources": kinds})
        })
    }

    pub fn kind_named(&self, kind: &str) -> Option<&Kind> {
        self.kinds.iter().find(|known| known.kind == kind)
    }

    fn kind(&self, target: &Target) -> Option<&Kind> {
        self.kinds.iter().find(|kind| {
            kind.group == target.group
                && kind.version == target.version
                && kind.plural == target.plural
        })
    }

    fn find(&self, target: &Target) -> Result<&Value, Refusal> {
        let stored = self.store.get(&key(target));
        stored.map(|stored| &stored.object).ok_or_else(|| Refusal::not_found(target))
    }

    fn list(&self, kind: &Kind, target: &Target, request: &Request) -> Result<Answer, Refusal> {
        let namespace = Some(target.namespace.as_str()).filter(|name| !name.is_empty());
        let (version, after) = match request.query.get("continue") {
            None => (self.store.version(), None),
            Some(token) => {
                let (version, after) = token
                    .split_once('|')
                    .ok_or_else(|| Refusal::bad_request("continue key is not valid"))?;
                (version.parse().unwrap_or_default(), Some(after.to_owned()))
            }
        };
        let listed = self.store.list_at(&target.resource(), namespace, version);
        let listed = listed.ok_or_else(Refusal::gone)?;
        let labels = request.query.get("labelSelector").map_or("", String::as_str);
        let mut items: Vec<(String, Value)> = listed
            .into_iter()
            .map(|(key, object)| (format!("{}/{}", key.namespace, key.name), object))
            .filter(|(at, object)| {
                after.as_ref().is_none_or(|after| at > after) && has_labels(object, labels)
            })
            .collect();
        let limit = request.query.get("limit").and_then(|limit| limit.parse().ok());
        let limit = limit.filter(|limit: &usize| *limit > 0).unwrap_or(usize::MAX);
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if items.len() > limit {
            metadata["remainingItemCount"] = (items.len() - limit).into();
            items.truncate(limit);
            let last = items.last().map(|(at, _)| at.clone()).unwrap_or_default();
            metadata["continue"] = format!("{version}|{last}").into();
        }
        let is_metadata = request.accept.contains("as=PartialObjectMetadata");
        let (api_version, list) = if is_metadata {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned())
        } else {
            (kind.api_version(), format!("{}List", kind.kind))
        };
        let items: Vec<Value> =
            items.into_iter().map(|(_, object)| projected(object, request, kind)).collect();
        Ok(Answer::Object(
            200,
            json!({"apiVersion": api_version, "kind": list, "metadata": metadata, "items": items}),
        ))
    }

    fn watch(&self, kind: &Kind, target: &Target, request: &Request) -> Result<Answer, Refusal> {
        let query = |name: &str| request.query.get(name).map_or("", String::as_str);
        if query("sendInitialEvents") == "true" {
            return Err(Refusal::bad_request("this server has no streaming lists"));
        }
        let after = match query("resourceVersion") {
            "" | "0" => return Err(Refusal::bad_request("this server watches from a version")),
            version => version.parse().map_err(|_| Refusal::bad_request("Invalid value"))?,
        };
        Ok(Answer::Watch(Watch {
            resource: target.resource(),
            namespace: Some(target.namespace.clone()).filter(|name| !name.is_empty()),
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            after,
            is_metadata: request.accept.contains("as=PartialObjectMetadata"),
            has_bookmarks: query("allowWatchBookmarks") == "true",
            timeout_seconds: query("timeoutSeconds").parse().unwrap_or(1_800),
        }))
    }

    fn create(
        &mut self,
        kind: &Kind,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, Refusal> {
        let mut object = request.body.clone();
        let mut target = target.clone();
        if let Some(prefix) = object["metadata"]["generateName"].as_str()
            && object["metadata"]["name"].is_null()
        {
            let suffix = uuid::Uuid::now_v7().simple().to_string();
            object["metadata"]["name"] = format!("{prefix}{}", &suffix[suffix.len() - 5..]).into();
        }
        target.name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let version = &object["metadata"]["resourceVersion"];
        if version.as_str().is_some_and(|version| !version.is_empty()) {
            return Err(Refusal::bad_request("resourceVersion should not be set on a create"));
        }
        self.check_identity(kind, &target, &object)?;
        let key = key(&target);
        if self.store.get(&key).is_some() {
            let message = format!("{} \"{}\" already exists", target.plural, target.name);
            return Err(Refusal::new(409, "AlreadyExists", message));
        }
        let write = Write { kind, target: &target, key, old: None };
        let by = manager_name(request);
        self.is_dry_run = request.query.get("dryRun").is_some_and(|value| value == "All");
        let stored = self.write(write, object, &by, None, request);
        self.is_dry_run = false;
        Ok(Answer::Object(201, stored?))
    }

    fn update(
        &mut self,
        kind: &Kind,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, Refusal> {
        let old = self.find(target)?.clone();
        let object = request.body.clone();
        self.check_identity(kind, target, &object)?;
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if version.is_empty() && kind.kind != "Secret" {
            let problem = "metadata.resourceVersion: Invalid value: 0: must be specified for an \
                           update";
            return Err(Refusal::invalid(target, &[problem.to_owned()]));
        }
        let write = Write { kind, target, key: key(target), old: Some(old) };
        let by = manager_name(request);
        let stored = self.write(write, object, &by, None, request)?;
        Ok(Answer::Object(200, stored))
    }

    fn patch(
        &mut self,
        kind: &Kind,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, Refusal> {
        match request.content_type.as_str() {
            "application/merge-patch+json" => {
                let old = self.find(target)?.clone();
                let mut object = old.clone();
                merge(&mut object, &request.body);
                let write = Write { kind, target, key: key(target), old: Some(old) };
                let by = manager_name(request);
                let stored = self.write(write, object, &by, None, request)?;
                Ok(Answer::Object(200, projected(stored, request, kind)))
            }
            "application/apply-patch+yaml" => self.apply(kind, target, request),
            other => Err(Refusal::new(
                415,
                "UnsupportedMediaType",
                format!("this server has no patches of type {other}"),
            )),
        }
    }

    fn apply(
        &mut self,
        kind: &Kind,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, Refusal> {
        let manager = request.query.get("fieldManager").filter(|name| !name.is_empty());
        let manager = manager
            .ok_or_else(|| Refusal::bad_request("fieldManager: Required value: for apply patch"))?
            .clone();
        let mut applied = request.body.clone();
        if !applied["metadata"]["managedFields"].is_null() {
            return Err(Refusal::bad_request("metadata.managedFields must be nil"));
        }
        self.check_identity(kind, target, &applied)?;
        if kind.is_custom() {
            let unknown = schema::prune(&mut applied, &kind.schema);
            if let Some(field) = unknown.first() {
                return Err(Refusal::bad_request(format!(
                    "failed to create typed patch object: {field}: field not declared in schema"
                )));
            }
        }
        let stored = self.store.get(&key(target));
        if stored.is_none() && !target.subresource.is_empty() {
            return Err(Refusal::not_found(target));
        }
        // An apply that creates needs both permissions.
        let is_new = stored.is_none();
        if is_new {
            self.access.check(&request.token, "create", target)?;
        }
        let (old, managers) = match self.store.get(&key(target)) {
            Some(stored) => (Some(stored.object.clone()), stored.managers.clone()),
            None => (None, Vec::new()),
        };
        // Parts that the endpoint does not write are no part of what is applied.
        if kind.has_status
            && let Some(fields) = applied.as_object_mut()
        {
            if target.subresource == "status" {
                fields.retain(|name, _| {
                    ["apiVersion", "kind", "metadata", "status"].contains(&&**name)
                });
            } else {
                fields.remove("status");
            }
        }
        let base = old.clone().unwrap_or_else(|| {
            json!({
                "apiVersion": applied["apiVersion"], "kind": applied["kind"],
                "metadata": {"name": target.name, "namespace": target.namespace},
            })
        });
        let force = request.query.get("force").is_some_and(|force| force == "true");
        let by = (manager.as_str(), target.subresource.as_str());
        let (mut object, managers) =
            ownership::apply(&base, &managers, &applied, &kind.schema, by, force).map_err(
                |conflicts| {
                    let message = format!(
                        "Apply failed with {} conflicts: {}",
                        conflicts.len(),
                        conflicts.join(", ")
                    );
                    Refusal::new(409, "Conflict", message)
                },
            )?;
        // Preconditions.
        for field in ["resourceVersion", "uid"] {
            if let Some(value) = applied["metadata"].get(field) {
                object["metadata"][field] = value.clone();
            }
        }
        let code = if old.is_some() { 200 } else { 201 };
        let write = Write { kind, target, key: key(target), old };
        let stored = self.write(write, object, &manager, Some(managers), request)?;
        Ok(Answer::Object(code, stored))
    }

    fn delete(&mut self, target: &Target, options: &Value) -> Result<Answer, Refusal> {
        let mut object = self.find(target)?.clone();
        for field in ["resourceVersion", "uid"] {
            let wanted = &options["preconditions"][field];
            if !wanted.is_null() && *wanted != object["metadata"][field] {
                return Err(Refusal::conflict(target, "Precondition failed"));
            }
        }
        let is_on_node = object["kind"] == "Pod" && object["spec"]["nodeName"].is_string();
        let has_finalizers = (is_on_node && options["gracePeriodSeconds"] != 0)
            || object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        // A pod stays until its node has stopped it.
        if !has_finalizers {
            self.remove(&key(target));
            return Ok(Answer::Object(
                200,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            ));
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
            object["metadata"]["deletionTimestamp"] = now().into();
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if generation > 0 {
                object["metadata"]["generation"] = (generation + 1).into();
            }
            let key = key(target);
            let managers = self.managers(&key);
            object = self.store.put(key, object, managers);
        }
        Ok(Answer::Object(200, object))
    }

    /// Changes an object as a component of the cluster does, without rights and checks.
    pub fn change(&mut self, key: &Key, change: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.store.get(key).map(|stored| stored.object.clone()) else {
            return;
        };
        change(&mut object);
        let managers = self.managers(key);
        self.store.put(key.clone(), object, managers);
    }

    pub fn remove(&mut self, key: &Key) {
        let Some(object) = self.store.remove(key) else { return };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        for owned in self.store.owned_by(&uid) {
            self.remove(&owned);
        }
    }

    fn managers(&self, key: &Key) -> Vec<Manager> {
        self.store.get(key).map(|stored| stored.managers.clone()).unwrap_or_default()
    }

    fn check_identity(&self, kind: &Kind, target: &Target, object: &Value) -> Result<(), Refusal> {
        if object["apiVersion"] != kind.api_version() || object["kind"] != kind.kind {
            return Err(Refusal::bad_request(format!(
                "the object provided is {} {}, and the path is one of {} {}",
                object["apiVersion"],
                object["kind"],
                kind.api_version(),
                kind.kind
            )));
        }
        let metadata = &object["metadata"];
        if !target.name.is_empty() && metadata["name"].as_str().is_some_and(|it| it != target.name)
        {
            return Err(Refusal::bad_request("the name of the object does not match the path"));
        }
        let is_other = |name: &str| name != target.namespace;
        if metadata["namespace"].as_str().is_some_and(is_other) {
            return Err(Refusal::bad_request("the namespace does not match the path"));
        }
        if kind.is_namespaced && !self.namespaces.contains(&target.namespace) {
            let message = format!("namespaces \"{}\" not found", target.namespace);
            return Err(Refusal::new(404, "NotFound", message));
        }
        if !is_name(&target.name) {
            let problem = "metadata.name: Invalid value: a lowercase RFC 1123 subdomain must \
                           consist of lower case alphanumeric characters, '-' or '.'";
            return Err(Refusal::invalid(target, &[problem.to_owned()]));
        }
        Ok(())
    }

    /// Validates and stores an object; `managers` are given by an apply.
    fn write(
        &mut self,
        write: Write<'_>,
        mut object: Value,
        by: &str,
        managers: Option<Vec<Manager>>,
        request: &Request,
    ) -> Result<Value, Refusal> {
        let Write { kind, target, key, old } = write;
        if let Some(old) = &old {
            for field in ["resourceVersion", "uid"] {
                let given = object["metadata"][field].as_str().unwrap_or_default();
                if !given.is_empty() && old["metadata"][field] != given {
                    let why = "the object has been modified; please apply your changes to the \
                               latest version and try again";
                    return Err(Refusal::conflict(target, why));
                }
            }
        } else if object["metadata"]["uid"].is_string() && managers.is_some() {
            return Err(Refusal::conflict(target, "uid mismatch: the object is not there"));
        }
        if kind.is_custom() {
            let unknown = schema::prune(&mut object, &kind.schema);
            if !unknown.is_empty()
                && request.query.get("fieldValidation").is_some_and(|it| it == "Strict")
            {
                let message =
                    format!("strict decoding error: unknown field {}", unknown.join(", "));
                return Err(Refusal::bad_request(message));
            }
            self.pruned.extend(unknown);
            schema::fill_defaults(&mut object, &kind.schema);
        }
        keep_other_parts(kind, target, &mut object, old.as_ref());
        set_metadata(kind, target, &mut object, old.as_ref())?;
        if kind.is_custom() {
            let problems =
                schema::problems_of_object(&object, old.as_ref(), &kind.schema, &kind.rules);
            if !problems.is_empty() {
                return Err(Refusal::invalid(target, &problems));
            }
        } else {
            kind.check_built_in(target, &mut object, old.as_ref())?;
        }
        if self.is_dry_run || (old.as_ref() == Some(&object) && managers.is_none()) {
            return Ok(object);
        }
        let is_finished = !object["metadata"]["deletionTimestamp"].is_null()
            && kind.kind != "Pod"
            && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        if is_finished {
            self.remove(&key);
            return Ok(object);
        }
        if kind.kind == "CustomResourceDefinition" {
            let name = object["spec"]["names"]["kind"].clone();
            self.kinds.retain(|known| name != known.kind);
            self.kinds.extend(kinds::of_definition(&object));
        }
        let is_applied = managers.is_some();
        let managers = managers.unwrap_or_else(|| {
            let before = old.clone().unwrap_or_default();
            let managers = self.managers(&key);
            let by = (by, target.subresource.as_str());
            ownership::after_update(&before, &object, &managers, &kind.schema, by)
        });
        if old.as_ref() == Some(&object) && is_applied {
            return Ok(self.store.set_managers(&key, managers, object));
        }
        Ok(self.store.put(key, object, managers))
    }
}

/// Keeps what the endpoint does not write: the status, or all but the status.
fn keep_other_parts(kind: &Kind, target: &Target, object: &mut Value, old: Option<&Value>) {
    if !kind.has_status {
        return;
    }
    if target.subresource == "status" {
        let status = object.get("status").cloned();
        let version = object["metadata"].get("resourceVersion").cloned();
        *object = old.cloned().unwrap_or_default();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
            if let Some(status) = status {
                fields.insert("status".to_owned(), status);
            }
        }
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = version;
        }
    } else if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(status) = old.and_then(|old| old.get("status")) {
            fields.insert("status".to_owned(), status.clone());
        }
    }
}

/// Sets what only the server writes: uid, times, generation.
fn set_metadata(
    kind: &Kind,
    target: &Target,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    let spec_of = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("metadata");
            fields.remove("status");
        }
        object
    };
    let is_new_spec = old.is_none_or(|old| spec_of(old) != spec_of(object));
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata["name"] = target.name.clone().into();
    if kind.is_namespaced {
        metadata["namespace"] = target.namespace.clone().into();
    }
    let Some(old) = old else {
        metadata["uid"] = uuid::Uuid::now_v7().to_string().into();
        metadata["creationTimestamp"] = now().into();
        if kind.is_custom() {
            metadata["generation"] = 1.into();
        }
        return Ok(());
    };
    let had = &old["metadata"];
    for field in [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "resourceVersion",
        "deletionGracePeriodSeconds",
    ] {
        match had.get(field) {
            Some(value) => metadata[field] = value.clone(),
            None => {
                metadata.as_object_mut().and_then(|fields| fields.remove(field));
            }
        }
    }
    if kind.is_custom() && is_new_spec {
        let generation = had["generation"].as_i64().unwrap_or_default();
        metadata["generation"] = (generation + 1).into();
    }
    if !had["deletionTimestamp"].is_null() {
        let before = had["finalizers"].as_array().cloned().unwrap_or_default();
        let after = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        if after.iter().any(|finalizer| !before.contains(finalizer)) {
            let problem = "metadata.finalizers: Forbidden: no new finalizers can be added if the \
                           object is being deleted";
            return Err(Refusal::invalid(target, &[problem.to_owned()]));
        }
    }
    Ok(())
}

pub fn key(target: &Target) -> Key {
    Key {
        resource: target.resource(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
    }
}

fn manager_name(request: &Request) -> String {
    request.query.get("fieldManager").cloned().unwrap_or_else(|| request.token.clone())
}

/// Whether a name is an RFC 1123 subdomain.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.chars().all(is_known)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn has_labels(object: &Value, selector: &str) -> bool {
    selector.split(',').filter(|term| !term.is_empty()).all(|term| {
        let (name, value) = term.split_once('=').unwrap_or((term, ""));
        let has = &object["metadata"]["labels"][name];
        if value.is_empty() { !has.is_null() } else { *has == value.trim_start_matches('=') }
    })
}

/// The object, or only its metadata if the request accepts that.
fn projected(object: Value, request: &Request, kind: &Kind) -> Value {
    let mut object = object;
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.clone().into();
    if request.accept.contains("as=PartialObjectMetadata") { metadata_of(&object) } else { object }
}

pub fn metadata_of(object: &Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": object["metadata"],
    })
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Applies a JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().and_then(|target| target.remove(name));
        } else {
            merge(&mut target[name], value);
        }
    }
}
