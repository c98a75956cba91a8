//! An agent with its files, behaviours and subagents, moved as a tree of files.

use std::{fs, path::Path};

use holdfast_testkit::FakeModel;

use crate::installation::Installation;

fn write(installation: &Installation, agent: &str, path: &str, text: &str) {
    let local = installation.dir.join("local");
    fs::write(&local, text).unwrap();
    let local = local.to_str().unwrap();
    installation.run(&["files", "write", "--agent", agent, path, local]).ok();
}

/// Names of the files in a `.tar.gz`.
fn names(archive: &Path) -> String {
    let listed = std::process::Command::new("tar").arg("-tzf").arg(archive).output().unwrap();
    String::from_utf8(listed.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_as_a_tree_of_files_and_comes_back_the_same() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    installation.run(&["agents", "create", "helper", "--instructions", "Help."]).ok();
    installation
        .run(&["agents", "create", "coder", "--template", "coder", "--model", "fake:one"])
        .ok();
    installation
        .run(&[
            "agents",
            "update",
            "coder",
            "--spawns",
            "helper",
            "--description",
            "writes ${CODE}",
        ])
        .ok();
    for (path, text) in [
        ("role.md", "You write code.\n"),
        ("MEMORY.md", "The owner likes tests.\n"),
        ("skills/dig/SKILL.md", "---\nname: dig\ndescription: d\n---\n"),
        ("workspaces/garden/plan.md", "dig\n"),
        ("behaviors/do.yaml", "a file\n"),
    ] {
        write(&installation, "coder", path, text);
    }
    write(&installation, "helper", "role.md", "You help.\n");
    let file = |name: &str| installation.dir.join(name).to_str().unwrap().to_owned();
    let (first, second) = (file("first.tar.gz"), file("second.tar.gz"));

    let layout = ["--layout", "opendan"];
    installation.run(&[&["agents", "export", "coder", &first], &layout[..]].concat()).ok();
    let listed = names(Path::new(&first));
    for path in [
        "agent.yaml",
        "behaviors/check.yaml",
        "behaviors/do.yaml",
        "memory/memory.md",
        "role.md",
        "sub-agents/helper/agent.yaml",
        "sub-agents/helper/role.md",
        "workshop/files/behaviors/do.yaml",
        "workshop/skills/dig/SKILL.md",
        "workshop/workspaces/garden/plan.md",
    ] {
        assert!(listed.lines().any(|line| line == path), "{path}: {listed}");
    }
    let taken = installation.run(&["agents", "import", &first]);
    assert_ne!(taken.code, Some(0), "the names are used");
    for agent in ["coder", "helper"] {
        installation.run(&["agents", "delete", agent]).ok();
    }
    installation.run(&["agents", "import", &first]).ok();
    installation.run(&[&["agents", "export", "coder", &second], &layout[..]].concat()).ok();

    assert!(fs::read(&first)? == fs::read(&second)?, "{}", names(Path::new(&second)));
    let coder = installation.json(&["agents", "show", "coder"]);
    assert_eq!(coder["description"], "writes ${CODE}");
    assert_eq!(coder["spawns"][0], "helper");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_another_program_becomes_an_agent_of_the_name_of_its_file() -> anyhow::Result<()>
{
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let tree = installation.dir.join("jarvis");
    for (path, text) in [
        ("role.md", "You are Jarvis.\n"),
        ("behaviors/plan.yaml", "process_rule: Plan.\n"),
        ("behaviors/odd.yaml", "process_rule: [\n"),
        ("memory/memory.md", "Tea, not coffee.\n"),
        ("memory/things.sqlite", "no text"),
        ("workshop/skills/dig/SKILL.md", "---\nname: dig\ndescription: d\n---\n"),
    ] {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap())?;
        fs::write(path, text)?;
    }
    let archive = installation.dir.join("jarvis.tar.gz");
    let made = std::process::Command::new("tar")
        .arg("-czf")
        .arg(&archive)
        .args(["-C", tree.to_str().unwrap(), "."])
        .status()?;
    assert!(made.success());

    let imported = installation.run(&["agents", "import", archive.to_str().unwrap()]).ok();

    assert!(imported.err.contains("`memory/things.sqlite` is kept as a file"), "{}", imported.err);
    assert!(imported.err.contains("the behaviour `odd` is left out"), "{}", imported.err);
    let agent = installation.json(&["agents", "show", "jarvis"]);
    assert_eq!(agent["behaviors"]["default"], "resolve_router");
    let plan = installation.json(&["behaviors", "show", "plan", "--agent", "jarvis"]);
    assert_eq!(plan["layer"], "agent");
    let read =
        |path: &str| installation.run(&["files", "read", "--agent", "jarvis", path]).ok().out;
    assert_eq!(read("MEMORY.md"), "Tea, not coffee.\n");
    assert_eq!(read("skills/dig/SKILL.md"), "---\nname: dig\ndescription: d\n---\n");
    Ok(())
}

fn git(folder: &Path, line: &[&str]) -> String {
    let identity = ["-c", "user.name=anna", "-c", "user.email=anna@example.com"];
    let done = std::process::Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(identity)
        .args(line)
        .output()
        .unwrap();
    assert!(done.status.success(), "{line:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_comes_by_its_address_and_its_commits_go_back() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let (server, author) = (installation.dir.join("server.git"), installation.dir.join("author"));
    fs::create_dir_all(&author)?;
    git(&author, &["init", "--quiet", "--initial-branch=trunk"]);
    fs::create_dir_all(author.join("src"))?;
    fs::write(author.join("src/a.txt"), "one\n")?;
    std::os::unix::fs::symlink("src/a.txt", author.join("link"))?;
    git(&author, &["add", "--all"]);
    git(&author, &["commit", "--quiet", "--message", "first"]);
    git(&author, &["branch", "other"]);
    git(&installation.dir, &["clone", "--quiet", "--bare", "author", "server.git"]);
    let address = format!("file://{}", server.display());

    let password =
        ["workspaces", "create", "tool", "--git", "https://anna:secret@127.0.0.1/tool.git"];
    let refused = installation.run(&password).exits_with(2);
    assert!(refused.err.contains("has a password"), "{}", refused.err);
    let missing = installation.run(&["workspaces", "create", "tool", "--git", "file:///nowhere"]);
    assert!(missing.code == Some(1) && missing.err.contains("git: "), "{}", missing.err);

    let made = installation.json(&["workspaces", "create", "tool", "--git", &address]);
    assert_eq!((&made["kind"], &made["folder"]), (&"git".into(), &"workspaces/tool".into()));
    let again = installation.run(&["workspaces", "create", "tool", "--git", &address]);
    assert!(again.err.contains("has files already"), "{}", again.err);
    let read = |path: &str| installation.run(&["files", "read", path]).ok().out;
    assert_eq!(read("workspaces/tool/src/a.txt"), "one\n");
    assert_eq!(read("workspaces/tool/link"), "src/a.txt");
    assert!(read("workspaces/tool/.git/config").contains(&address));

    // A hostile agent names programs, and another server.
    let proof = installation.dir.join("proof");
    let run = format!("touch {}; false", proof.display());
    let config = read("workspaces/tool/.git/config").replace(&address, "https://evil.example/x");
    let config = format!(
        "{config}[core]\n\tfsmonitor = {run:?}\n\thooksPath = hooks\n[credential]\n\thelper = {:?}\n\
         [url \"https://evil.example/\"]\n\tinsteadOf = file://\n",
        format!("!{run}")
    );
    let hook = format!("#!/bin/sh\n{run}\n");
    for (path, text) in [
        (".git/config", config.as_str()),
        (".git/hooks/post-index-change", &hook),
        (".git/objects/info/alternates", "/etc\n"),
        ("hooks/post-checkout", &hook),
        ("sub/.GIT/config", &config),
    ] {
        write(&installation, "main", &format!("workspaces/tool/{path}"), text);
    }

    // A commit is made in the files, as by an agent, and pushed from a copy.
    let copy = installation.dir.join("copy");
    let copied = copy.to_str().unwrap();
    let told = installation.run(&["workspaces", "copy", "tool", copied]).ok();
    assert!(told.err.contains("1 file within a Git repository was left out"), "{}", told.err);
    assert_eq!(git(&copy, &["status", "--short"]), "?? hooks/\n");
    assert_eq!(git(&copy, &["remote", "get-url", "origin"]), format!("{address}\n"));
    assert_eq!(git(&copy, &["log", "--format=%an:%s"]), "anna:first\n");
    fs::write(copy.join("src/a.txt"), "two\n")?;
    git(&copy, &["commit", "--quiet", "--all", "--message", "second"]);
    git(&copy, &["push", "--quiet", "origin", "HEAD"]);
    assert_eq!(git(&server, &["log", "--format=%s", "trunk"]), "second\nfirst\n");
    assert!(!proof.exists(), "a program of the agent was run");
    let taken = installation.run(&["workspaces", "copy", "tool", copied]).exits_with(2);
    assert!(taken.err.contains("has files already"), "{}", taken.err);

    let other = ["workspaces", "create", "other", "--git", &address, "--branch", "other"];
    installation.run(&other).ok();
    assert!(read("workspaces/other/.git/HEAD").contains("refs/heads/other"));
    Ok(())
}
