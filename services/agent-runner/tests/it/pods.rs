//! Commands run in pods of a cluster, with the same promises as on one machine.

use std::{
    fs,
    time::{Duration, Instant},
};

use agent_runner::Config;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_agent::UNKNOWN_OUTCOME;
use holdfast_directory::Actor;
use holdfast_sandbox::{BackendChoice, Limits, NetworkPolicy};
use holdfast_session::Acceptance;
use holdfast_testkit::Reply;
use holdfast_testkit_kube::{ApiServer, Kubelet};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::shell::{Step, exec, owner, process, process_in, returned, step_by_step};
use crate::world::World;

const NAMESPACE: &str = "commands";
/// Token of the runners.
const TOKEN: &str = "runner";

const RULES: &str = include_str!("../../../../helm/holdfast/files/sandbox-rules.yaml");

/// A cluster with one node, whose namespace runners may use as the chart's Role says.
struct Cluster {
    kube: ApiServer,
    _node: Kubelet,
    folder: TempDir,
}

impl Cluster {
    async fn start() -> anyhow::Result<Self> {
        let cluster = Self::without_rights().await?;
        cluster.permit();
        Ok(cluster)
    }

    /// A cluster that knows the runners' token and permits nothing.
    async fn without_rights() -> anyhow::Result<Self> {
        let kube = ApiServer::start(&[NAMESPACE]).await?;
        kube.grant(TOKEN, &role(&json!([])));
        let _node = Kubelet::start(&kube)?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": kube.url()}}],
            "users": [{"name": "runner", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "runner"}}],
        });
        fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string())?;
        Ok(Self { kube, _node, folder })
    }

    fn permit(&self) {
        self.kube.grant(TOKEN, &role(&serde_saphyr::from_str(RULES).unwrap()));
    }

    fn config(&self, world: &World) -> Config {
        let mut config = world.config();
        config.runner.sandbox.backend = BackendChoice::Pods;
        config.runner.pods = holdfast_sandbox_pods::Config {
            namespace: NAMESPACE.to_owned(),
            kubeconfig: self.folder.path().join("kubeconfig"),
            image: "tools".to_owned(),
            start_timeout: Duration::from_secs(20),
            lease: Duration::from_secs(2),
            ..holdfast_sandbox_pods::Config::default()
        };
        // Scripts of these tests do what it refuses.
        config.runner.sandbox.guard.enable_deny_patterns = false;
        config.runner.sandbox.guard.restrict_to_workspace = false;
        config
    }

    /// Names of the pods that are not being deleted.
    fn pods(&self) -> Vec<String> {
        let pods = self.kube.list("Pod").into_iter();
        pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    fn warm_pods(&self) -> usize {
        let is_warm = |pod: &&Value| {
            pod["metadata"]["labels"]["holdfast.dev/use"] == "warm"
                && pod["status"]["phase"] == "Running"
        };
        self.kube.list("Pod").iter().filter(is_warm).count()
    }
}

fn role(rules: &Value) -> Value {
    json!({"kind": "Role", "metadata": {"namespace": NAMESPACE}, "rules": rules})
}

/// Runs one command for the owner, and returns what the model was told.
async fn run(world: &World, command: &str) -> anyhow::Result<String> {
    run_call(world, json!({ "command": command })).await
}

async fn run_call(world: &World, input: Value) -> anyhow::Result<String> {
    let sent = begin(world, input).await?;
    world.text(&sent).await?;
    let mut told = returned(world, &sent).await?;
    told.pop().ok_or_else(|| anyhow::anyhow!("nothing was told"))
}

/// Sends a message for which the model runs one command.
async fn begin(world: &World, input: Value) -> anyhow::Result<Acceptance> {
    world.model.queue([Reply::call("a", "exec", input.to_string()), Reply::text("done")]);
    world.send(owner(world, "go")).await
}

async fn read(world: &World, path: &str) -> anyhow::Result<Option<String>> {
    let file = world.workspaces.read(world.tenant, world.agent.id, &path.parse()?, None).await?;
    Ok(file.and_then(|file| file.text().map(str::to_owned)))
}

#[tokio::test]
async fn a_command_gets_a_credential_for_the_proxy_that_ends_with_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let cluster = Cluster::start().await?;
    let mut config = cluster.config(&world);
    config.runner.sandbox.network = NetworkPolicy::Proxy;
    config.runner.pods.listen = Some(([127, 0, 0, 1], 0).into());
    let _runner = world.runner_with(config, |app| app).await?;
    let policy = json!({ "actions": { "network": "allow" } });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;

    let told = run(&world, "echo \"=$http_proxy=\"").await?;
    assert!(told.contains("=="), "only a command that asks for the network: {told}");
    let input = json!({ "command": "echo \"=$http_proxy=\"", "network": true });
    let told = run_call(&world, input).await?;
    let url = told.split('=').find(|part| part.starts_with("http://")).unwrap_or_default();
    let (user, address) = url.trim_start_matches("http://").split_once('@').unwrap_or_default();
    assert!(user.starts_with("command:") && user.len() > 40, "{told}");

    let credential = STANDARD.encode(user);
    let mut proxy = TcpStream::connect(address).await?;
    let request =
        format!("CONNECT 1.1.1.1:443 HTTP/1.1\r\nProxy-Authorization: Basic {credential}\r\n\r\n");
    proxy.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    proxy.read_to_string(&mut answer).await?;
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_command_runs_in_a_pod_and_what_it_changes_is_kept() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let _runner = world.runner_with(cluster.config(&world), |app| app).await?;

    let told = run(&world, "mkdir -p sub && echo hello > sub/a.txt; echo out; pwd; exit 3").await?;
    assert!(told.starts_with("failed: exited with code 3 after "), "{told}");
    assert!(told.contains("\nout\n/workspace\nChanged files, as revision "), "{told}");
    assert!(told.ends_with(":\n+ sub/a.txt\n"), "{told}");
    assert_eq!(read(&world, "sub/a.txt").await?.as_deref(), Some("hello\n"));

    // The same pod, with what file tools did meanwhile.
    let pods = cluster.pods();
    world.model.queue([
        Reply::call("a", "write", r#"{"path":"n.txt","content":"one\n"}"#),
        exec("cat n.txt sub/a.txt && rm sub/a.txt && echo two >> n.txt; echo oh no >&2"),
        Reply::call("c", "read", r#"{"path":"n.txt"}"#),
        Reply::text("done"),
    ]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;
    let told = returned(&world, &sent).await?;
    assert!(told[2].contains("\none\nhello\nSTDERR:\noh no\n"), "{told:?}");
    assert!(told[2].ends_with("~ n.txt\n- sub/a.txt\n"), "{told:?}");
    assert!(told[3].contains("two"), "{told:?}");
    assert_eq!(cluster.pods(), pods);
    assert_eq!(cluster.kube.denied(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_command_whose_time_is_up_ends_with_all_its_processes() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let _runner = world.runner_with(cluster.config(&world), |app| app).await?;

    let script =
        "echo begin; echo x > early; (trap '' TERM; sleep 61.5) & trap '' TERM; sleep 61.5";
    let input = json!({ "command": script, "timeout": 10, "yield_ms": 60_000 });
    let told = run_call(&world, input).await?;
    assert!(told.starts_with("failed: its time was up after "), "{told}");
    assert!(told.contains("\nbegin\n") && told.ends_with("+ early\n"), "{told}");

    // What is left of a command holds its output open, and ends with it.
    let begun = Instant::now();
    let told = run(&world, "(setsid sleep 61.5 &) ; sleep 61.5 & echo done").await?;
    assert!(told.contains("exited with code 0") && told.contains("\ndone\n"), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(!is_running("sleep 61.5"));
    Ok(())
}

#[tokio::test]
async fn too_much_output_and_too_many_files_are_cut_off() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let mut config = cluster.config(&world);
    config.runner.sandbox.limits =
        Limits { output: 1_000, disk: 1 << 20, entries: 100, ..Limits::default() };
    let _runner = world.runner_with(config, |app| app).await?;

    let told = run(&world, "seq 1 20000; echo end").await?;
    assert!(told.contains("are forgotten") && told.contains("20000\nend\n"), "{told}");
    assert!(told.len() < 3_000, "{told}");

    let told = run(&world, "echo x > small; dd if=/dev/zero of=large bs=1M count=3").await?;
    assert!(told.starts_with("failed: over its limit of disk after "), "{told}");
    assert!(told.contains("nothing that it changed was kept"), "{told}");
    let told = run(&world, "mkdir d && cd d && touch $(seq 1 150)").await?;
    assert!(told.starts_with("failed: over its limit of files and folders after "), "{told}");
    assert_eq!(read(&world, "small").await?, None);

    // A pod with too much in it is not used again.
    let told = run(&world, "ls; cat /proc/self/limits | grep 'open files'").await?;
    assert!(told.contains("SOUL.md") && !told.contains("large"), "{told}");
    assert!(told.contains(" 1024 "), "{told}");
    Ok(())
}

#[tokio::test]
async fn links_of_a_pod_are_not_kept_and_lead_nowhere() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let _runner = world.runner_with(cluster.config(&world), |app| app).await?;

    let told =
        run(&world, "ln -s /etc/passwd l; ln -s .. up; mkfifo p; echo x > f; ln f g").await?;
    assert!(told.contains("+ f\n+ g\n"), "{told}");
    for name in ["`l` was not kept: ", "`up` was not kept: ", "`p` was not kept: "] {
        assert!(told.contains(name), "{name}: {told}");
    }
    let told = run(&world, "ls").await?;
    assert!(told.contains("\nf\ng\n") && !told.contains("\nl\n"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_session_sees_nothing_of_another_and_a_command_nothing_of_the_one_before()
-> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let _runner = world.runner_with(cluster.config(&world), |app| app).await?;
    let script = "ls -A /tmp /dev/shm; echo sleeping: $(cat /proc/[0-9]*/comm | grep -c sleep); env; id -u; \
                  echo hidden-$((40+2)) > /tmp/.left; echo x > /dev/shm/left; sleep 62.5 & \
                  touch /etc/x /x || echo read-only";

    for _ in 0..2 {
        let told = run(&world, script).await?;
        assert!(!told.contains("left\n/dev") && !told.contains("\nleft\n"), "{told}");
        // That of the pod itself.
        assert!(told.contains("\nsleeping: 1\n"), "{told}");
        assert!(!is_running("sleep 62.5"));
        assert!(told.contains("\n1000\n") && told.contains("read-only"), "{told}");
        for not_there in ["CARGO", "postgres", "KUBERNETES"] {
            assert!(!told.contains(not_there), "{not_there}: {told}");
        }
    }
    let first = cluster.pods();
    assert_eq!(first.len(), 1);

    world.model.queue([exec("ls -A /tmp; ls -A"), Reply::text("done")]);
    let sent = world.say("other", "go").await?;
    world.text(&sent).await?;
    let told = returned(&world, &sent).await?.remove(0);
    assert!(!told.contains("left"), "{told}");
    assert_eq!(cluster.pods().len(), 2);
    for pod in cluster.kube.list("Pod") {
        let shown = pod["metadata"].to_string() + &pod["spec"].to_string();
        for secret in [&*world.tenant.to_string(), "hidden", "other", world.agent.name.as_str()] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_background_command_in_a_pod_takes_input_and_ends_when_it_is_told_to()
-> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let _runner = world.runner_with(cluster.config(&world), |app| app).await?;
    let input = json!({
        "command": "read line; echo got $line > heard; echo heard $line; sleep 63.5",
        "background": true,
    });
    world.text(&begin(&world, input).await?).await?;

    step_by_step(
        &world,
        vec![
            Step::Calls(|said| process("stdin", &process_in(said), &json!({ "text": "hello\n" }))),
            Step::Awaits("\\nheard hello"),
            Step::Calls(|said| process("kill", &process_in(said), &json!({}))),
        ],
    );
    let sent = world.send(owner(&world, "go on")).await?;
    world.text(&sent).await?;
    let told = returned(&world, &sent).await?;
    let [.., heard, ended] = told.as_slice() else { panic!("{told:?}") };
    assert!(heard.starts_with("running") && heard.contains("\nheard hello\n"), "{told:?}");
    assert!(ended.starts_with("failed: cancelled after "), "{told:?}");
    assert!(ended.ends_with("+ heard\n"), "{told:?}");
    assert!(!is_running("sleep 63.5"));
    Ok(())
}

#[tokio::test]
async fn a_pod_that_is_deleted_under_its_command_is_told_and_the_next_command_has_another()
-> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let _runner = world.runner_with(cluster.config(&world), |app| app).await?;

    let sent = begin(&world, json!({ "command": "echo x > f; sleep 64.5" })).await?;
    world.until("it runs", async || is_running("sleep 64.5")).await?;
    let pod = cluster.pods().remove(0);
    cluster.kube.delete("Pod", &pod).unwrap();
    world.text(&sent).await?;
    let told = returned(&world, &sent).await?.remove(0);
    assert!(
        told.starts_with(
            "failed: its pod was deleted or has ended; nothing that it changed was kept after "
        ),
        "{told}"
    );
    assert_eq!(read(&world, "f").await?, None);

    // Between two commands, too.
    let told = run(&world, "echo one").await?;
    assert!(told.starts_with("completed: ") && told.contains("\none\n"), "{told}");
    cluster.kube.delete("Pod", &cluster.pods()[0]).unwrap();
    let told = run(&world, "echo two").await?;
    assert!(told.starts_with("completed: ") && told.contains("\ntwo\n"), "{told}");
    Ok(())
}

#[tokio::test]
async fn without_an_api_server_commands_fail_with_the_reason_and_run_again_once_it_is_back()
-> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    cluster.kube.set_up(false);
    // The runner starts all the same.
    let _runner = world.runner_with(cluster.config(&world), |app| app).await?;

    let told = run(&world, "echo one").await?;
    let away = "not run: the Kubernetes API server cannot be reached: try again in a minute";
    assert!(told.contains(away), "{told}");
    cluster.kube.set_up(true);
    let told = run(&world, "echo two").await?;
    assert!(told.contains("\ntwo\n"), "{told}");

    let sent = begin(&world, json!({ "command": "sleep 65.5", "yield_ms": 60_000 })).await?;
    world.until("it runs", async || is_running("sleep 65.5")).await?;
    cluster.kube.set_up(false);
    world.text(&sent).await?;
    let told = returned(&world, &sent).await?.pop().unwrap();
    assert!(told.starts_with("failed: the connection to its pod broke; nothing that"), "{told}");
    cluster.kube.set_up(true);
    let told = run(&world, "echo three").await?;
    assert!(told.contains("\nthree\n"), "{told}");
    // Nobody renews the pod of the lost command.
    world.until("it is gone", async || !is_running("sleep 65.5")).await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_right_and_an_image_that_is_not_there_are_told_in_one_line() -> anyhow::Result<()>
{
    let (world, cluster) = (World::start().await?, Cluster::without_rights().await?);
    let runner = world.runner_with(cluster.config(&world), |app| app).await?;
    let report = async || world.bus.runner_reports(Duration::from_millis(300)).await.ok()?.pop();
    let told = world.until_some("it reports", report).await?.no_commands;
    assert!(
        told.starts_with(
            "the cluster does not permit to create pods in the namespace `commands` ("
        ),
        "{told}"
    );
    assert!(told.contains("cannot create resource \"pods\""), "{told}");
    drop(runner);

    cluster.permit();
    let mut config = cluster.config(&world);
    config.runner.pods.image = "missing".to_owned();
    config.runner.pods.start_timeout = Duration::from_secs(8);
    let _runner = world.runner_with(config, |app| app).await?;
    let told = run(&world, "echo one").await?;
    let reason = "not run: no pod for the command was ready in time (ImagePullBackOff)";
    assert!(told.contains(reason), "{told}");
    world.until("it is deleted", async || cluster.pods().is_empty()).await?;
    Ok(())
}

#[tokio::test]
async fn pods_wait_for_commands_and_two_runners_never_take_the_same() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let mut config = cluster.config(&world);
    config.runner.pods.warm = 3;
    let _one = world.runner_with(config.clone(), |app| app).await?;
    let _two = world.runner_with(config, |app| app).await?;
    world.until("three pods wait", async || cluster.warm_pods() == 3).await?;
    let warm = cluster.pods();

    world.model.answer(|request| match request.last_user_text().is_empty() {
        _ if request.body.to_string().contains("exited with") => Reply::text("done"),
        _ => exec("sleep 1"),
    });
    let mut sent = Vec::new();
    for session in ["a", "b", "c"] {
        sent.push(world.say(session, "go").await?);
    }
    for sent in &sent {
        world.text(sent).await?;
        assert!(returned(&world, sent).await?[0].contains("exited with code 0"));
    }
    let used: Vec<Value> = cluster
        .kube
        .list("Pod")
        .into_iter()
        .filter(|pod| pod["metadata"]["labels"]["holdfast.dev/use"] == "command")
        .collect();
    assert_eq!(used.len(), 3);
    for pod in &used {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        assert!(warm.iter().any(|known| known == name), "{name} did not wait: {warm:?}");
    }
    world.until("three pods wait again", async || cluster.warm_pods() == 3).await?;
    assert_eq!(cluster.kube.denied(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_pod_whose_runner_is_lost_is_swept_and_its_command_is_not_run_again() -> anyhow::Result<()>
{
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let mut config = cluster.config(&world);
    config.runner.lease = Duration::from_secs(2);
    config.runner.sweep = Duration::from_millis(100);
    config.runner.pods.start_timeout = Duration::from_secs(4);
    world.model.queue([exec("echo x > begun; sleep 66.5"), Reply::text("who knows")]);
    let first = world.runner_with(config.clone(), |app| app).await?;

    let sent = world.send(owner(&world, "go")).await?;
    world.until("it runs", async || is_running("sleep 66.5")).await?;
    // A pod as a runner leaves it behind whose machine is lost.
    let mut orphan = cluster.kube.get("Pod", &cluster.pods()[0]).unwrap();
    orphan["metadata"]["annotations"]["holdfast.dev/keep-until"] = "2026-01-01T00:00:00Z".into();
    let of_orphan = json!({
        "name": "orphan",
        "labels": orphan["metadata"]["labels"], "annotations": orphan["metadata"]["annotations"],
    });
    orphan["metadata"] = of_orphan;
    first.kill();
    cluster.kube.create(&orphan).unwrap();
    let _second = world.runner_with(config, |app| app).await?;
    assert_eq!(world.text(&sent).await?, "who knows");
    assert_eq!(returned(&world, &sent).await?, [UNKNOWN_OUTCOME]);
    assert_eq!(read(&world, "begun").await?, None);

    // Longer than a pod's lease, which is renewed meanwhile.
    let input = json!({ "command": "sleep 8; echo next", "yield_ms": 60_000 });
    let told = run_call(&world, input).await?;
    assert!(told.starts_with("completed: ") && told.contains("\nnext\n"), "{told}");
    world.until("it is swept", async || !is_running("sleep 66.5")).await?;
    world.until("one pod is left", async || cluster.pods().len() == 1).await?;
    Ok(())
}

#[tokio::test]
async fn a_runner_that_stops_leaves_no_pod_and_an_idle_session_none_either() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let mut config = cluster.config(&world);
    let runner = world.runner_with(config.clone(), |app| app).await?;
    run(&world, "echo one").await?;
    assert_eq!(cluster.pods().len(), 1);
    runner.stop().await?;
    assert_eq!(cluster.pods(), Vec::<String>::new());

    config.runner.pods.idle = Duration::from_millis(300);
    let _runner = world.runner_with(config, |app| app).await?;
    run(&world, "echo two").await?;
    world.until("the pod is deleted", async || cluster.pods().is_empty()).await?;
    Ok(())
}

#[tokio::test]
async fn where_agent_sandbox_is_installed_it_makes_the_pods() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let template = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"podTemplate": template}},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sandboxes.agents.x-k8s.io"},
        "spec": {
            "group": "agents.x-k8s.io", "scope": "Namespaced",
            "names": {"plural": "sandboxes", "kind": "Sandbox"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    cluster.kube.create(&definition).unwrap();
    let mut config = cluster.config(&world);
    config.runner.pods.warm = 1;
    let runner = world.runner_with(config, |app| app).await?;
    world.until("a pod waits", async || cluster.warm_pods() == 1).await?;

    let told = run(&world, "echo one > f; echo two").await?;
    assert!(told.starts_with("completed: ") && told.contains("+ f"), "{told}");
    world.until("another waits", async || cluster.warm_pods() == 1).await?;
    assert_eq!(cluster.kube.list("Sandbox").len(), 2);
    for pod in cluster.kube.list("Pod") {
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Sandbox");
    }
    runner.stop().await?;
    assert_eq!((cluster.kube.list("Sandbox").len(), cluster.pods().len()), (1, 1));
    assert_eq!(cluster.kube.denied(), Vec::<String>::new());
    Ok(())
}

/// Whether a process with this in its command line runs on this machine.
fn is_running(words: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).replace('\0', " ").trim() == words)
}

#[tokio::test]
async fn a_tenant_s_commands_run_in_pods_where_its_policy_demands_it() -> anyhow::Result<()> {
    let (world, cluster) = (World::start().await?, Cluster::start().await?);
    let mut config = cluster.config(&world);
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let runner = world.runner_with(config.clone(), |app| app).await?;
    let told = run(&world, "echo one > f; cat /proc/1/cmdline").await?;
    assert!(!told.contains("holdfast-sandbox") && cluster.pods().is_empty(), "{told}");
    runner.stop().await?;

    let policy = json!({ "sandbox_mode": "pod" });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;
    let runner = world.runner_with(config, |app| app).await?;
    let told = run(&world, "cat f /proc/1/cmdline").await?;
    assert!(told.contains("\none\n") && told.contains("holdfast-sandbox"), "{told}");
    assert_eq!(cluster.pods().len(), 1);
    runner.stop().await?;

    // A runner without pods does not run them elsewhere.
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;
    let told = run(&world, "echo two").await?;
    assert!(told.contains("not run: commands of this conversation need a pod"), "{told}");
    Ok(())
}
