//! An agent at work: it mends a program, asks before it goes out, has others help, and is killed
//! everywhere on the way.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use flate2::{Compression, write::GzEncoder};
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::approvals_client::ApprovalsClient;
use holdfast_proto::gateway::v1::files_client::FilesClient;
use holdfast_proto::gateway::v1::messages_client::MessagesClient;
use holdfast_proto::gateway::v1::sessions_client::SessionsClient;
use holdfast_testkit::Backends;
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::node::Node;
use holdfast_tests::turnstile;
use holdfast_tests::work::{self, Work};
use tokio::time::{sleep, timeout};
use tonic::Request;
use tonic::transport::Channel;

use crate::report::Report;
use crate::{Form, RUNNER, form};

const SOON: Duration = Duration::from_secs(30);

/// How long all of the work may take, with a death in it.
const TASK_TIMEOUT: Duration = Duration::from_secs(60);

/// What the model reads at once: less than the two long files.
const WINDOW: &str = "24000";

/// One who has an agent work, and looks at what came of it.
struct Person {
    channel: Channel,
    key: String,
    /// Where the runners lay out the agent's files.
    scratch: tempfile::TempDir,
}

impl Person {
    fn of(mesh: &Mesh) -> anyhow::Result<Self> {
        holdfast_kit::tls::install_crypto();
        let channel = holdfast_grpc::channel(&format!("http://{}", mesh.grpc[0]), SOON)?;
        let (key, scratch) = (mesh.tenants[0].key.clone(), tempfile::tempdir()?);
        Ok(Self { channel, key, scratch })
    }

    fn ask<T>(&self, message: T) -> anyhow::Result<Request<T>> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.key).parse()?);
        request.set_timeout(SOON);
        Ok(request)
    }

    async fn give(&self, archive: Vec<u8>) -> anyhow::Result<i64> {
        let import = pb::ImportFilesRequest { archive, ..Default::default() };
        let mut files = FilesClient::new(self.channel.clone());
        Ok(files.import_files(self.ask(import)?).await?.into_inner().revision)
    }

    async fn send(&self, session: &str) -> anyhow::Result<String> {
        let send = pb::SendRequest {
            request_id: session.to_owned(),
            text: work::TASK.to_owned(),
            session: session.to_owned(),
            ..Default::default()
        };
        let mut messages = MessagesClient::new(self.channel.clone());
        Ok(messages.send(self.ask(send)?).await?.into_inner().session_id)
    }

    /// Says yes to whatever the agent asks for; how often it was asked.
    async fn approve(&self) -> anyhow::Result<usize> {
        let mut approvals = ApprovalsClient::new(self.channel.clone());
        let pending = pb::ListApprovalsRequest { state: "pending".into(), ..Default::default() };
        let pending = approvals.list_approvals(self.ask(pending)?).await?.into_inner().approvals;
        for approval in &pending {
            let decision = pb::ResolveApprovalRequest {
                approval: approval.id.clone(),
                decision: pb::Decision::AllowOnce.into(),
                ..Default::default()
            };
            approvals.resolve_approval(self.ask(decision)?).await?;
        }
        Ok(pending.len())
    }

    async fn history(&self, session: &str) -> anyhow::Result<Vec<pb::Entry>> {
        let history =
            pb::GetHistoryRequest { session: session.into(), limit: 500, ..Default::default() };
        let mut sessions = SessionsClient::new(self.channel.clone());
        Ok(sessions.get_history(self.ask(history)?).await?.into_inner().entries)
    }

    /// Waits until the agent says that all is done, and approves what it asks for meanwhile.
    async fn see_it_done(&self, session: &str) -> anyhow::Result<usize> {
        let mut approved = 0;
        let waited = timeout(TASK_TIMEOUT, async {
            loop {
                approved += self.approve().await?;
                let history = self.history(session).await?;
                if history.iter().any(|entry| entry.kind == "thought" && entry.text == work::DONE) {
                    return anyhow::Ok(());
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        if waited.await.is_err() {
            let history = self.history(session).await?;
            let last: Vec<_> = history.iter().rev().take(6).collect();
            anyhow::bail!("the work is not done; last it was {last:#?}");
        }
        Ok(approved)
    }
}

/// Path in the agent's workspace of a file in a session.
fn in_workspace(session: &str, path: &str) -> String {
    format!("people/api={session}/{path}")
}

/// The program, its test, and two long texts, as files of a session's person.
fn repository(name: &str) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let texts = [
        ("add.sh", work::BROKEN.to_owned()),
        ("test.sh", work::TEST.to_owned()),
        ("long/one.txt", work::long("one")),
        ("long/two.txt", work::long("two")),
    ];
    for (path, text) in texts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, in_workspace(name, path), text.as_bytes())?;
    }
    let mut packed = archive.into_inner()?;
    packed.flush()?;
    Ok(packed.finish()?)
}

/// A mesh without a runner, whose agent has the program.
async fn prepare(runners: usize) -> anyhow::Result<(Mesh, Person)> {
    let plan =
        MeshConfig { runners, lease: Duration::from_millis(900), ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    for node in mesh.gateways.iter().chain(&mesh.bridges) {
        node.start().await?;
        node.ready(SOON).await?;
    }
    let person = Person::of(&mesh)?;
    Ok((mesh, person))
}

async fn start(person: &Person, runner: &Arc<Node>, failpoints: &str) -> anyhow::Result<()> {
    let scratch = person.scratch.path().to_str().context("a path that is no text")?;
    let env = [
        ("HOLDFAST_RUNNER__SCRATCH__DIR", scratch),
        ("HOLDFAST_RUNNER__CONTEXT_TOKENS", WINDOW),
        ("HOLDFAST_RUNNER__SANDBOX__NETWORK", "host"),
        ("HOLDFAST_FAILPOINTS", failpoints),
    ];
    runner.start_with(&env).await?;
    // One that is to die may do so before it is ready.
    if failpoints.is_empty() { runner.ready(SOON).await } else { Ok(()) }
}

/// What must be so after the work, whoever died: the file is mended once, with its diff and its
/// turn; every deed was done at most once; what was said is there; it cost something.
async fn check_result(
    mesh: &Mesh,
    person: &Person,
    name: &str,
    session: &str,
    given: i64,
) -> anyhow::Result<()> {
    let mut files = FilesClient::new(person.channel.clone());
    let (program, built) = (in_workspace(name, "add.sh"), in_workspace(name, "built.txt"));
    let read = pb::ReadFileRequest { path: program.clone(), ..Default::default() };
    let mended = files.read_file(person.ask(read)?).await?.into_inner().content;
    ensure!(mended == b"expr \"$1\" + \"$2\"\n", "the program is {mended:?}");
    let read = pb::ReadFileRequest { path: built, ..Default::default() };
    let built = files.read_file(person.ask(read)?).await?.into_inner().content;
    ensure!(built == work::built(name).as_bytes(), "what the command wrote is {built:?}");
    let log = pb::GetFileLogRequest { path: program.clone(), ..Default::default() };
    let log = files.get_file_log(person.ask(log)?).await?.into_inner().revisions;
    let changes: Vec<_> = log.iter().filter(|change| change.revision > given).collect();
    ensure!(changes.len() == 1, "it was changed by {changes:?}");
    ensure!(!changes[0].run_id.is_empty(), "no turn made {:?}", changes[0]);
    let diff = pb::DiffFilesRequest { from: given, path: program, ..Default::default() };
    let diff = files.diff_files(person.ask(diff)?).await?.into_inner().diff;
    ensure!(
        diff.contains("-expr \"$1\" - \"$2\"") && diff.contains("+expr \"$1\" + \"$2\""),
        "{diff}"
    );

    let history = person.history(session).await?;
    let said = |kind: &str, text: &str| {
        history.iter().any(|entry| entry.kind == kind && entry.text.contains(text))
    };
    ensure!(said("heard", work::TASK), "the task is not in the transcript");
    ensure!(said("returned", "FAIL: got -1") && said("returned", "PASS"), "{history:#?}");
    for part in ["one", "two"] {
        ensure!(said("heard", &format!("part {part} is sound")), "part {part} was not announced");
    }
    let mut sessions = SessionsClient::new(person.channel.clone());
    let runs = pb::ListRunsRequest { session: session.to_owned(), limit: 50, ..Default::default() };
    let runs = sessions.list_runs(person.ask(runs)?).await?.into_inner().runs;
    let cost: u64 =
        runs.iter().filter_map(|run| run.usage.as_ref()).map(|usage| usage.input_tokens).sum();
    ensure!(cost > 0, "it cost nothing: {runs:?}");

    const LOST: &str = "
        select count(*) from session.inbox where state <> 'done' or outcome <> 'completed'";
    const TWICE: &str = "
        select count(*) from (
            select from session.entries where kind = 'returned'
            group by session_id, run_id, body->>'call' having count(*) > 1) twice";
    ensure!(mesh.number(LOST).await? == 0, "a message did not come to its end");
    ensure!(mesh.number(TWICE).await? == 0, "a call returned twice");
    let violations = mesh.fakes.model.violations();
    ensure!(violations.is_empty(), "calls and results do not pair up: {violations:?}");
    let posts = mesh.fakes.world.posts();
    for deed in ["own", "one", "two"].map(|part| format!("\"{name}:{part}\"")) {
        let done =
            posts.iter().filter(|post| String::from_utf8_lossy(&post.body).contains(&deed)).count();
        ensure!(done <= 1, "`{deed}` was done {done} times");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_mends_a_program_though_the_runners_of_its_helpers_are_killed()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let (mesh, person) = prepare(2).await?;
    let given = person.give(repository("work")?).await?;
    let work = Work::teach(&mesh.fakes.model, "work", Duration::from_secs(2));
    for runner in &mesh.runners {
        start(&person, runner, "").await?;
    }

    let session = person.send("work").await?;
    let done = person.see_it_done(&session);
    let kill = async {
        let asked =
            async || ["asked-one", "asked-two"].iter().all(|part| work.done().contains(*part));
        while !asked().await {
            sleep(Duration::from_millis(20)).await;
        }
        // One of them runs a helper at least, and both are killed.
        for runner in &mesh.runners {
            runner.kill().await?;
            start(&person, runner, "").await?;
        }
        anyhow::Ok(())
    };
    let (approved, killed) = tokio::join!(done, timeout(TASK_TIMEOUT, kill));
    killed.context("the helpers were not asked")??;

    ensure!(approved? == 1, "it did not ask before it went out");
    ensure!(work.done().contains("summary"), "nothing was summarised on the way");
    check_result(&mesh, &person, "work", &session, given).await
}

/// Places where a runner can die in the work, each by how manieth time somebody comes by there the
/// short form lets one die; the long form lets one die each time.
///
/// In the order in which the work comes by first: who dies one after another dies in this order.
const PLACES: [(&str, &[usize]); 22] = [
    ("runner.before_claim", &[]),
    ("runner.after_claim", &[]),
    ("runner.after_load", &[]),
    ("runner.boundary", &[4]),
    ("runner.before_model", &[]),
    ("runner.after_model", &[]),
    ("runner.before_append", &[]),
    ("runner.after_append", &[1]),
    ("runner.before_call", &[]),
    ("runner.in_call", &[1]),
    ("runner.after_call", &[]),
    ("runner.before_keep", &[1]),
    ("runner.after_keep", &[1]),
    ("runner.before_ask", &[1]),
    ("runner.after_ask", &[1]),
    ("runner.before_settle", &[1]),
    ("runner.after_settle", &[1]),
    ("runner.before_renew", &[]),
    ("runner.before_announce", &[1]),
    ("runner.after_announce", &[1]),
    ("runner.before_complete", &[1]),
    ("runner.after_complete", &[]),
];

/// Calls that are open, by their tools: those in which a runner has just died.
const OPEN: &str = "
    select string_agg(distinct c->>'tool', ' ') from session.entries t,
        jsonb_array_elements(t.body->'calls') c
    where t.kind = 'thought' and not exists (
        select from session.entries r
        where r.session_id = t.session_id and r.run_id = t.run_id and r.kind = 'returned'
          and r.body->>'call' = c->>'id')";

#[derive(Debug, Default)]
struct Deaths {
    count: usize,
    /// In which calls some of them did.
    tools: BTreeSet<String>,
}

/// The work with deaths at these places, each of another runner, one after another; those places
/// are left out that nobody comes by so often.
async fn with_deaths(
    mesh: &Mesh,
    person: &Person,
    name: &str,
    places: &[(&str, usize)],
) -> anyhow::Result<Deaths> {
    let given = person.give(repository(name)?).await?;
    let _work = Work::teach(&mesh.fakes.model, name, Duration::ZERO);
    let died = RefCell::new(Deaths::default());
    let arm = async |number: usize| {
        let plan = places.get(number).map(|(point, at)| format!("{point}=die:{at}"));
        start(person, &mesh.runners[number % 2], &plan.unwrap_or_default()).await
    };
    arm(0).await?;
    let session = person.send(name).await?;
    let rescue = async {
        for (number, (point, _)) in places.iter().enumerate() {
            mesh.runners[number % 2]
                .wait_for_death(TASK_TIMEOUT)
                .await
                .with_context(|| point.to_string())?;
            let open = mesh.text(OPEN).await?;
            {
                let mut died = died.borrow_mut();
                died.count += 1;
                if *point == "runner.in_call" {
                    died.tools.extend(open.split_whitespace().map(str::to_owned));
                }
            }
            arm(number + 1).await?;
        }
        anyhow::Ok(())
    };
    let done = person.see_it_done(&session);
    {
        // Who is watched for his death, and does not die, ends with the watch.
        tokio::pin!(rescue, done);
        tokio::select! {
            rescued = &mut rescue => {
                rescued?;
                done.await?;
            }
            done = &mut done => { done?; }
        }
    }
    check_result(mesh, person, name, &session, given)
        .await
        .with_context(|| format!("{name}: {places:?}"))?;
    for runner in &mesh.runners {
        runner.end().await?;
    }
    Ok(died.take())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_step_or_call_its_runner_dies_in_the_work_comes_to_the_same() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_shared().await?;
    let (mesh, person) = prepare(2).await?;
    let mut report = Report::of("work");
    match form() {
        Form::Short => some_places(&mesh, &person, &mut report).await?,
        Form::Long => every_place(&mesh, &person, &mut report).await?,
    }
    report.show()
}

/// One death at each place, several in one work.
async fn some_places(mesh: &Mesh, person: &Person, report: &mut Report) -> anyhow::Result<()> {
    let places: Vec<(&str, usize)> =
        PLACES.iter().flat_map(|(point, at)| at.iter().map(|at| (*point, *at))).collect();
    // Neighbours are far from each other, so that the work gets on between two deaths.
    const WORKS: usize = 3;
    for number in 0..WORKS {
        let chosen: Vec<(&str, usize)> =
            places.iter().copied().skip(number).step_by(WORKS).collect();
        let began = Instant::now();
        let died = with_deaths(mesh, person, &format!("work-{number}"), &chosen).await?;
        for (point, at) in &chosen[..died.count] {
            report.line(&format!("a death at {point}, at passage"), at);
        }
        report.line(&format!("work {number}: done after, ms"), began.elapsed().as_millis());
        ensure!(died.count == chosen.len(), "nobody came by {:?}", chosen[died.count]);
    }
    Ok(())
}

/// One death in each work, wherever somebody comes by.
async fn every_place(mesh: &Mesh, person: &Person, report: &mut Report) -> anyhow::Result<()> {
    let mut tools = BTreeSet::new();
    for (point, _) in PLACES {
        let (began, mut deaths) = (Instant::now(), 0);
        loop {
            let at = deaths + 1;
            let died = with_deaths(mesh, person, &format!("{point}-{at}"), &[(point, at)]).await?;
            if died.count == 0 {
                break;
            }
            tools.extend(died.tools);
            deaths += 1;
        }
        report.line(&format!("deaths at {point}"), deaths);
        report.line(&format!("deaths at {point}, ms in all"), began.elapsed().as_millis());
        ensure!(deaths > 0, "nobody died at {point}");
    }
    for tool in work::TOOLS {
        ensure!(tools.contains(tool), "nobody died in a call of `{tool}`, only of {tools:?}");
    }
    report.line("tools in whose calls a runner died", tools.len());
    Ok(())
}
