//! A Kubernetes API server for tests, over HTTP, as strict as a real one in what the operator uses.
//!
//! | module | contents |
//! |---|---|
//! | `http` | requests and watches over HTTP |
//! | `server` | the rules of each request: versions, generations, finalizers, status, deletion |
//! | `request` | paths, verbs, answers of failures |
//! | `access` | RBAC: a request that no granted rule permits is refused with 403 |
//! | `pods`, `kubelet`, `exec` | checks of pods; a node that runs them; processes in them |
//! | `kinds` | built-in resources, and those of installed definitions |
//! | `schema` | structural schemas: pruning, defaults, validation, CEL rules |
//! | `ownership` | owners of fields, and server-side apply |
//! | `store` | objects, resource versions, history |
//!
//! Not there: JSON patches, strategic merge patches, streaming lists, field selectors, webhooks,
//! conversion between versions, `metadata.managedFields` in answers. A request for one of them is
//! refused. Objects of a deleted owner are deleted at once.

mod access;
mod exec;
mod http;
mod kinds;
mod kubelet;
mod ownership;
mod pods;
mod request;
mod schema;
mod server;
mod store;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::task::AbortOnDropHandle;

pub use crate::kubelet::Kubelet;
use crate::{
    kubelet::Containers,
    request::{Refusal, Request},
    server::{Answer, Server},
};

/// Token of the administrator, who may do everything.
pub const ADMIN: &str = "admin";

/// The running server. Its methods act as the administrator, in its first namespace.
#[derive(Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    namespace: String,
    _served: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<Server>,
    versions: watch::Sender<u64>,
    /// Whether requests are answered, and connections stay open.
    is_up: watch::Sender<bool>,
    containers: Mutex<Containers>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &Request) -> Result<Answer, Refusal> {
        let mut server = self.lock();
        let answer = server.answer(request);
        self.versions.send_replace(server.store.version());
        answer
    }
}

impl ApiServer {
    /// Serves on a free port, with these namespaces.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start(namespaces: &[&str]) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            server: Mutex::new(Server::new(namespaces)),
            versions: watch::Sender::new(0),
            is_up: watch::Sender::new(true),
            containers: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = http::router(shared.clone());
        let served = tokio::spawn(async move {
            // It ends with the process, or when this handle is dropped.
            let _ended = axum::serve(listener, router).await;
        });
        let namespace = namespaces.first().copied().unwrap_or("default").to_owned();
        Ok(Self { shared, address, namespace, _served: AbortOnDropHandle::new(served) })
    }

    /// Answers nothing from now on and closes all connections, or answers again.
    pub fn set_up(&self, is_up: bool) {
        self.shared.is_up.send_replace(is_up);
    }

    /// Lets the answers of a verb and plural, such as `list tenants`, take this time.
    pub fn delay(&self, requests: &str, delay: Duration) {
        self.shared.lock().delays.insert(requests.to_owned(), delay);
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Permits to the bearer of `token` what a rendered Role or `ClusterRole` permits.
    pub fn grant(&self, token: &str, role: &Value) {
        self.shared.lock().access.grant(token, role);
    }

    /// Requests that were refused for want of a permission.
    #[must_use]
    pub fn denied(&self) -> Vec<String> {
        self.shared.lock().access.denied().to_vec()
    }

    /// Unknown fields that were sent and dropped.
    #[must_use]
    pub fn pruned(&self) -> Vec<String> {
        self.shared.lock().pruned.clone()
    }

    /// Number of requests so far, by verb and plural: `patch agents`.
    #[must_use]
    pub fn requests(&self) -> HashMap<String, usize> {
        self.shared.lock().counts.clone()
    }

    /// Forgets the history: a watch or list that continues from before gets 410 Gone.
    pub fn compact(&self) {
        self.shared.lock().store.compact();
        self.shared.versions.send_modify(|_| {});
    }

    /// Applies an object, as `kubectl apply --server-side` does with this manager.
    ///
    /// # Errors
    ///
    /// The object `Status` of the refusal.
    pub fn apply(&self, object: &Value, manager: &str) -> Result<Value, Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let query = HashMap::from([("fieldManager".to_owned(), manager.to_owned())]);
        let mut request = self.request("PATCH", kind, name, object.clone());
        request.content_type = "application/apply-patch+yaml".to_owned();
        request.query = query;
        self.call(&request)
    }

    /// Creates an object.
    ///
    /// # Errors
    ///
    /// The object `Status` of the refusal.
    pub fn create(&self, object: &Value) -> Result<Value, Value> {
        let kind = object["kind"].as_str().unwrap_or_default();
        self.call(&self.request("POST", kind, "", object.clone()))
    }

    /// Replaces an object.
    ///
    /// # Errors
    ///
    /// The object `Status` of the refusal.
    pub fn replace(&self, object: &Value) -> Result<Value, Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        self.call(&self.request("PUT", kind, name, object.clone()))
    }

    /// Patches an object by a JSON merge patch. `kind` may end with `/status`.
    ///
    /// # Errors
    ///
    /// The object `Status` of the refusal.
    pub fn merge(&self, kind: &str, name: &str, patch: Value) -> Result<Value, Value> {
        let mut request = self.request("PATCH", kind, name, patch);
        request.content_type = "application/merge-patch+json".to_owned();
        self.call(&request)
    }

    /// Deletes an object; one with finalizers stays until they are removed.
    ///
    /// # Errors
    ///
    /// The object `Status` of the refusal.
    pub fn delete(&self, kind: &str, name: &str) -> Result<Value, Value> {
        self.call(&self.request("DELETE", kind, name, Value::Null))
    }

    #[must_use]
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.call(&self.request("GET", kind, name, Value::Null)).ok()
    }

    /// As [`get`](Self::get), in another namespace.
    #[must_use]
    pub fn get_in(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        self.call(&self.request_in(namespace, "GET", kind, name, Value::Null)).ok()
    }

    /// As [`delete`](Self::delete), in another namespace.
    ///
    /// # Errors
    ///
    /// The object `Status` of the refusal.
    pub fn delete_in(&self, namespace: &str, kind: &str, name: &str) -> Result<Value, Value> {
        self.call(&self.request_in(namespace, "DELETE", kind, name, Value::Null))
    }

    #[must_use]
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let listed = self.call(&self.request("GET", kind, "", Value::Null));
        listed.ok().and_then(|listed| listed["items"].as_array().cloned()).unwrap_or_default()
    }

    fn request(&self, method: &str, kind: &str, name: &str, body: Value) -> Request {
        self.request_in(&self.namespace, method, kind, name, body)
    }

    fn request_in(
        &self,
        namespace: &str,
        method: &str,
        kind: &str,
        name: &str,
        body: Value,
    ) -> Request {
        let (kind, subresource) = kind.split_once('/').unwrap_or((kind, ""));
        let server = self.shared.lock();
        let path = match server.kind_named(kind) {
            Some(kind) => {
                let root = if kind.group.is_empty() { "api" } else { "apis" };
                let namespace = kind.is_namespaced.then(|| format!("namespaces/{namespace}"));
                let parts = [
                    root,
                    &kind.api_version(),
                    namespace.as_deref().unwrap_or_default(),
                    &kind.plural,
                    name,
                    subresource,
                ];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
            }
            None => format!("unknown/{kind}"),
        };
        Request {
            method: method.to_owned(),
            path: format!("/{path}"),
            token: ADMIN.to_owned(),
            body,
            ..Request::default()
        }
    }

    fn call(&self, request: &Request) -> Result<Value, Value> {
        match self.shared.answer(request) {
            Ok(Answer::Object(_, object)) => Ok(object),
            Ok(Answer::Watch(_) | Answer::Exec(_)) => Err(json!("this needs HTTP")),
            Err(refusal) => Err(refusal.status()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.x.dev"},
            "spec": {
                "group": "x.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"size": {"type": "integer"}},
                            "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size", "message": "it only grows"}]},
                        "status": {"type": "object", "properties": {"seen": {"type": "integer"}}},
                    }}}}],
            },
        })
    }

    fn thing(name: &str, size: i64) -> Value {
        json!({"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": name},
            "spec": {"size": size, "shape": "round"}, "status": {"seen": 9}})
    }

    async fn server() -> ApiServer {
        let server = ApiServer::start(&["here"]).await.unwrap();
        server.create(&definition()).unwrap();
        server
    }

    #[tokio::test]
    async fn a_stale_write_is_a_conflict_and_unknown_fields_are_dropped() {
        let server = server().await;
        let first = server.create(&thing("a", 1)).unwrap();
        assert_eq!(first["spec"], json!({"size": 1}));
        assert!(first.get("status").is_none(), "{first}");
        assert_eq!(server.pruned(), [".spec.shape"]);

        let mut second = first.clone();
        second["spec"]["size"] = 2.into();
        let second = server.replace(&second).unwrap();
        assert_eq!(second["metadata"]["generation"], 2);
        assert_eq!(server.replace(&first).unwrap_err()["code"], 409);
        let smaller = server.merge("Thing", "a", json!({"spec": {"size": 1}})).unwrap_err();
        assert!(smaller["message"].as_str().unwrap().contains("it only grows"), "{smaller}");
    }

    #[tokio::test]
    async fn a_status_is_written_apart_and_changes_no_generation() {
        let server = server().await;
        server.create(&thing("a", 1)).unwrap();
        let patch = json!({"spec": {"size": 7}, "status": {"seen": 1}});
        let after = server.merge("Thing/status", "a", patch).unwrap();
        assert_eq!((&after["spec"]["size"], &after["status"]["seen"]), (&json!(1), &json!(1)));
        assert_eq!(after["metadata"]["generation"], 1);
    }

    #[tokio::test]
    async fn finalizers_keep_an_object_that_is_being_deleted() {
        let server = server().await;
        server.create(&thing("a", 1)).unwrap();
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        server.merge("Thing", "a", finalizers(json!(["x.dev/f"]))).unwrap();
        server.delete("Thing", "a").unwrap();
        assert!(server.get("Thing", "a").unwrap()["metadata"]["deletionTimestamp"].is_string());
        let more = server.merge("Thing", "a", finalizers(json!(["x.dev/f", "x.dev/g"])));
        assert_eq!(more.unwrap_err()["code"], 422);
        server.merge("Thing", "a", finalizers(json!([]))).unwrap();
        assert!(server.get("Thing", "a").is_none());
    }

    #[tokio::test]
    async fn fields_belong_to_who_applied_them() {
        let server = server().await;
        let apply = |size: i64, by: &str| {
            let object = json!({"apiVersion": "x.dev/v1", "kind": "Thing",
                "metadata": {"name": "a"}, "spec": {"size": size}});
            server.apply(&object, by)
        };
        apply(1, "anna").unwrap();
        assert_eq!(apply(2, "ben").unwrap_err()["code"], 409);
        apply(1, "ben").unwrap();
        // What Anna no longer applies stays, as Ben applies it too.
        let empty = json!({"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "a"}});
        server.apply(&empty, "anna").unwrap();
        assert_eq!(server.get("Thing", "a").unwrap()["spec"]["size"], 1);
        server.apply(&empty, "ben").unwrap();
        assert!(server.get("Thing", "a").unwrap()["spec"].get("size").is_none());
    }

    #[tokio::test]
    async fn a_list_goes_on_at_its_version_until_that_is_compacted() {
        let server = server().await;
        for name in ["a", "b", "c"] {
            server.create(&thing(name, 1)).unwrap();
        }
        let page = |token: Option<&str>| {
            let mut request = server.request("GET", "Thing", "", Value::Null);
            request.query.insert("limit".to_owned(), "2".to_owned());
            if let Some(token) = token {
                request.query.insert("continue".to_owned(), token.to_owned());
            }
            server.call(&request)
        };
        let first = page(None).unwrap();
        let token = first["metadata"]["continue"].as_str().unwrap();
        server.delete("Thing", "c").unwrap();
        assert_eq!(page(Some(token)).unwrap()["items"][0]["metadata"]["name"], "c");
        server.compact();
        assert_eq!(page(Some(token)).unwrap_err()["code"], 410);
    }

    #[tokio::test]
    async fn what_no_rule_permits_is_refused() {
        let server = server().await;
        server.grant("op", &json!({"kind": "Role", "metadata": {"namespace": "here"}, "rules": [
            {"apiGroups": ["x.dev"], "resources": ["things"], "resourceNames": ["a"], "verbs": ["create", "get"]},
        ]}));
        server.create(&thing("a", 1)).unwrap();
        server.create(&thing("b", 1)).unwrap();
        let code = |method: &str, name: &str, token: &str| {
            let mut request = server.request(method, "Thing", name, thing("z", 1));
            request.token = token.to_owned();
            server.call(&request).err().map(|status| status["code"].clone())
        };
        assert_eq!(code("GET", "a", "op"), None);
        assert_eq!(code("GET", "b", "op"), Some(json!(403)));
        assert_eq!(code("POST", "", "op"), Some(json!(403)));
        assert_eq!(code("GET", "a", "nobody"), Some(json!(401)));
        assert_eq!(server.denied().len(), 2);
    }
}
