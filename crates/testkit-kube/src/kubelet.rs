//! A node: it runs each pod's first container on this machine, in namespaces of its own.
//!
//! The container is made by bubblewrap: the programs of this machine are its image, its root is
//! read-only, each `emptyDir` is a folder of its own, and it has no network. It needs `bwrap` and
//! `nsenter`. Probes, init containers, size limits of volumes and resource limits are not there.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{ADMIN, ApiServer, Shared, request::Request, store::Key};

/// Time for a container to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Resource of pods in the store.
const PODS: &str = "/pods";

/// Resource of sandboxes in the store.
const SANDBOXES: &str = "agents.x-k8s.io/sandboxes";

/// Search path of an image.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Running containers, by the key of their pods.
pub type Containers = BTreeMap<Key, Container>;

/// A running container. Dropping it kills all its processes.
#[derive(Debug)]
pub struct Container {
    pub name: String,
    /// Process that the container started with.
    pub pid: u32,
    /// Folders of its volumes.
    pub folder: PathBuf,
    _bwrap: Child,
}

/// A running node. Dropping it stops all containers.
#[derive(Debug)]
pub struct Kubelet {
    shared: Arc<Shared>,
    _folder: TempDir,
    _works: AbortOnDropHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.shared.containers().clear();
    }
}

impl Shared {
    pub fn containers(&self) -> MutexGuard<'_, Containers> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Value)) {
        let mut server = self.lock();
        server.change(key, change);
        self.versions.send_replace(server.store.version());
    }
}

impl Kubelet {
    /// Runs the pods of all namespaces. A pod whose image is `missing` is never started.
    ///
    /// # Errors
    ///
    /// If there is no folder for the volumes.
    pub fn start(server: &ApiServer) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let shared = Arc::clone(&server.shared);
        let works = tokio::spawn(run_pods(Arc::clone(&shared), folder.path().to_owned()));
        Ok(Self { shared, _folder: folder, _works: AbortOnDropHandle::new(works) })
    }

    /// Number of running containers.
    #[must_use]
    pub fn containers(&self) -> usize {
        self.shared.containers().len()
    }

    /// Folder of a pod's volume on this machine.
    #[must_use]
    pub fn volume(&self, pod: &str, volume: &str) -> Option<PathBuf> {
        let containers = self.shared.containers();
        let found = containers.iter().find(|(key, _)| key.name == pod);
        found.map(|(_, container)| container.folder.join(volume))
    }
}

async fn run_pods(shared: Arc<Shared>, folder: PathBuf) {
    let mut versions = shared.versions.subscribe();
    let mut seen = HashSet::new();
    loop {
        versions.borrow_and_update();
        make_pods_of_sandboxes(&shared);
        let pods: BTreeMap<Key, Value> = {
            let server = shared.lock();
            let version = server.store.version();
            server.store.list_at(PODS, None, version).unwrap_or_default()
        };
        for (key, pod) in &pods {
            if pod["metadata"]["deletionTimestamp"].is_string() {
                shared.containers().remove(key);
                let mut server = shared.lock();
                server.remove(key);
                shared.versions.send_replace(server.store.version());
            } else if seen.insert(pod["metadata"]["uid"].to_string()) {
                let folder = folder.join(seen.len().to_string());
                tokio::spawn(start_pod(Arc::clone(&shared), key.clone(), pod.clone(), folder));
            }
        }
        shared.containers().retain(|key, _| pods.contains_key(key));
        // A container that ends by itself is noticed a little later.
        let _changed = timeout(Duration::from_millis(200), versions.changed()).await;
        note_ended(&shared);
    }
}

/// Makes the pod of each `Sandbox` of agent-sandbox, as its controller does.
fn make_pods_of_sandboxes(shared: &Shared) {
    let missing: Vec<(Key, Value)> = {
        let server = shared.lock();
        let listed = server.store.list_at(SANDBOXES, None, server.store.version());
        let has_pod = |key: &Key| {
            let pod = Key { resource: PODS.to_owned(), ..key.clone() };
            server.store.get(&pod).is_some()
        };
        listed.unwrap_or_default().into_iter().filter(|(key, _)| !has_pod(key)).collect()
    };
    for (key, sandbox) in missing {
        let template = &sandbox["spec"]["podTemplate"];
        let mut metadata = template["metadata"].clone();
        metadata["name"] = key.name.clone().into();
        metadata["ownerReferences"] = json!([{
            "apiVersion": sandbox["apiVersion"], "kind": "Sandbox", "name": key.name,
            "uid": sandbox["metadata"]["uid"], "controller": true,
        }]);
        let request = Request {
            method: "POST".to_owned(),
            path: format!("/api/v1/namespaces/{}/pods", key.namespace),
            token: ADMIN.to_owned(),
            body: json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}),
            ..Request::default()
        };
        // A pod that the server refuses is tried again, as the controller does.
        let _refused = shared.answer(&request);
    }
}

/// Sets the status of pods whose container has ended.
fn note_ended(shared: &Shared) {
    let mut ended = Vec::new();
    shared.containers().retain(|key, container| {
        let runs = fs::exists(format!("/proc/{}", container.pid)).unwrap_or(false);
        if !runs {
            ended.push(key.clone());
        }
        runs
    });
    for key in ended {
        shared.change(&key, |pod| {
            pod["status"] = json!({"phase": "Failed", "reason": "Error", "conditions": [
                {"type": "Ready", "status": "False"},
            ]});
        });
    }
}

async fn start_pod(shared: Arc<Shared>, key: Key, pod: Value, folder: PathBuf) {
    let container = &pod["spec"]["containers"][0];
    shared.change(&key, |pod| pod["spec"]["nodeName"] = "node-1".into());
    if container["image"] == "missing" {
        shared.change(&key, |pod| {
            pod["status"]["containerStatuses"] = json!([{
                "name": container["name"], "image": "missing", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}},
            }]);
        });
        return;
    }
    let started = timeout(START_TIMEOUT, start_container(&pod, &folder)).await;
    match started {
        Ok(Ok((bwrap, pid))) => {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            let container = Container { name, pid, folder, _bwrap: bwrap };
            shared.containers().insert(key.clone(), container);
            shared.change(&key, |pod| {
                pod["status"] = json!({
                    "phase": "Running", "podIP": "10.1.0.1", "hostIP": "10.0.0.1",
                    "conditions": [{"type": "Ready", "status": "True"}],
                });
            });
        }
        Ok(Err(error)) => shared.change(&key, |pod| {
            pod["status"] = json!({"phase": "Failed", "reason": "StartError", "message": error.to_string()});
        }),
        Err(_elapsed) => shared.change(&key, |pod| {
            pod["status"] = json!({"phase": "Failed", "reason": "StartTimeout"});
        }),
    }
}

async fn start_container(pod: &Value, folder: &Path) -> anyhow::Result<(Child, u32)> {
    let spec = &pod["spec"];
    let container = &spec["containers"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let user = spec["securityContext"]["runAsUser"].as_u64().unwrap_or_default().to_string();
    let mut bwrap = Command::new("bwrap");
    bwrap.env_clear().env("PATH", PATH).args([
        "--unshare-user",
        "--unshare-pid",
        "--as-pid-1",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--uid",
        &user,
        "--gid",
        &user,
        "--hostname",
        &text(&spec["hostname"]),
    ]);
    bwrap.args(["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]);
    for beside in ["/bin", "/lib", "/lib64", "/sbin"] {
        match fs::read_link(beside) {
            Ok(target) => bwrap.arg("--symlink").arg(target).arg(beside),
            Err(_) if Path::new(beside).is_dir() => bwrap.args(["--ro-bind", beside, beside]),
            Err(_) => &mut bwrap,
        };
    }
    bwrap.args(["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]);
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let volume = folder.join(text(&mount["name"]));
        fs::create_dir_all(&volume)?;
        bwrap.arg("--bind").arg(&volume).arg(text(&mount["mountPath"]));
    }
    if container["securityContext"]["readOnlyRootFilesystem"] == true {
        bwrap.args(["--remount-ro", "/"]);
    }
    bwrap.args(["--chdir", &text(&container["workingDir"]), "--"]);
    let command: Vec<String> =
        container["command"].as_array().into_iter().flatten().map(text).collect();
    bwrap.args(&command).kill_on_drop(true);
    bwrap.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bwrap = bwrap.spawn()?;
    let id = bwrap.id().unwrap_or_default();
    loop {
        // Once the program runs, the namespaces are complete.
        let child = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        if let Ok(child) = child.trim().parse::<u32>() {
            let line = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if line.split('\0').next() == command.first().map(String::as_str) {
                return Ok((bwrap, child));
            }
        }
        if let Some(ended) = bwrap.try_wait()? {
            anyhow::bail!("bwrap ended: {ended}");
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// A program that joins a container's namespaces.
pub fn join(pid: u32, program: &[String]) -> Command {
    let mut nsenter = Command::new("nsenter");
    nsenter.env_clear().env("PATH", PATH).env("HOSTNAME", "sandbox");
    nsenter.args(["--target", &pid.to_string(), "--user", "--preserve-credentials"]);
    nsenter.args(["--mount", "--pid", "--ipc", "--uts", "--net", "--wd", "--"]).args(program);
    nsenter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    nsenter
}
