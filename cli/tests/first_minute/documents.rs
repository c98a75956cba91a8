//! Every command of README.md, docs/ and the help texts works as written.
//!
//! Each document is a script: its commands run in their order, in a tenant of its own, with the
//! replacements of [`cases`]. Commands that are only mentioned in a sentence may lack arguments: of
//! them, the subcommand and the options must exist.

mod cases;
mod commands;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use self::{
    cases::{
        BLOCKS, EXCEPTIONS, FILES, IDS, INTERNAL, PREPARATIONS, PROGRAMS, REPLACEMENTS, SKILL,
        Treatment, VARIABLES,
    },
    commands::{Document, DocumentCommand, Shell},
};
use crate::installation::{CommandOutput, HOLDFAST, Installation};

/// Languages of code blocks that are not checked by themselves; commands of `sh` are.
const LANGUAGES: [&str; 13] = [
    "", "bash", "console", "html", "ini", "js", "json", "markdown", "rust", "sh", "sql", "text",
    "yaml",
];

/// Number of documents that are checked at once.
const THREADS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_documents_works_as_written() -> anyhow::Result<()> {
    let mut installation = Installation::new().await?;
    let shelf = installation.root.join("shelf");
    fs::create_dir_all(shelf.join("water-plants"))?;
    fs::write(shelf.join("water-plants/SKILL.md"), SKILL)?;
    let config = installation.root.join("holdfast.toml");
    let registry = format!(
        "[[skills.registries]]\nkind = \"directory\"\nname = \"shelf\"\npath = {shelf:?}\n"
    );
    fs::write(&config, registry)?;
    installation.vars.push(("HOLDFAST_CONFIG", config.display().to_string()));
    let up = installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    let help = HelpTexts::read();
    let scripts = Scripts::new(&installation)?;

    let mut welcome = Document { name: "welcome".to_owned(), ..Document::default() };
    let try_next = up.out.split("Try next\n").nth(1).unwrap_or_default();
    let try_next = try_next.split("python3").next().unwrap_or_default();
    let lines: Vec<String> =
        try_next.lines().map(|line| line.trim_start().replace(HOLDFAST, "holdfast")).collect();
    welcome.add_commands(1, &lines);
    assert_eq!(welcome.commands.len(), 5, "{}", up.out);
    let mut documents = vec![welcome];
    documents.extend(read_documents());
    documents.push(help.document());
    let queue = Mutex::new(documents.iter());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let next = lock(&queue).next();
                    let Some(document) = next else { break };
                    scripts.check(document, &help);
                }
            });
        }
    });

    let Results { used, failures, ran } = lock(&scripts.results).clone();

    let stale: Vec<_> = EXCEPTIONS
        .iter()
        .filter(|(document, begins, ..)| !used.contains(&(*document, *begins)))
        .collect();
    assert!(stale.is_empty(), "exceptions without a command: {stale:#?}");
    assert!(ran > 150, "only {ran} commands ran");
    assert!(failures.is_empty(), "{} commands fail:\n\n{}", failures.len(), failures.join("\n\n"));
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// README.md, then the files of docs/ and docs/channels/ by name.
fn read_documents() -> Vec<Document> {
    let of = |folder: &'static str| {
        let listed = fs::read_dir(repository().join(folder)).unwrap();
        listed
            .map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy()))
    };
    let mut names: Vec<String> =
        of("docs").chain(of("docs/channels")).filter(|name| name.ends_with(".md")).collect();
    // The table of contents.
    names.retain(|name| name != "docs/SUMMARY.md");
    names.sort();
    names.insert(0, "README.md".to_owned());
    let read = |name: &String| fs::read_to_string(repository().join(name)).unwrap();
    names.iter().map(|name| Document::of_markdown(name, &read(name))).collect()
}

/// Runs commands of documents in one installation.
struct Scripts<'a> {
    installation: &'a Installation,
    state: Value,
    path: String,
    makefile: String,
    results: Mutex<Results>,
}

#[derive(Debug, Clone, Default)]
struct Results {
    /// Exceptions that a command had.
    used: BTreeSet<(&'static str, &'static str)>,
    failures: Vec<String>,
    /// Number of commands that ran.
    ran: usize,
}

/// Environment of a document's commands.
struct Script {
    folder: PathBuf,
    /// Key of the document's tenant; without one, commands find that of `up`.
    key: Option<String>,
}

impl<'a> Scripts<'a> {
    fn new(installation: &'a Installation) -> anyhow::Result<Self> {
        let programs = installation.root.join("bin");
        fs::create_dir_all(&programs)?;
        symlink(HOLDFAST, programs.join("holdfast"))?;
        // A password manager.
        fs::write(programs.join("pass"), "#!/bin/sh\necho password\n")?;
        fs::set_permissions(programs.join("pass"), fs::Permissions::from_mode(0o755))?;
        let path = format!("{}:{}", programs.display(), env::var("PATH")?);
        let makefile = fs::read_to_string(repository().join("Makefile"))?;
        let state = installation.state();
        Ok(Self { installation, state, path, makefile, results: Mutex::default() })
    }

    fn fail(&self, place: &str, text: &str, failure: &str) {
        lock(&self.results).failures.push(format!("{place}: {text}\n{failure}"));
    }

    fn check(&self, document: &Document, help: &HelpTexts) {
        self.run(document);
        for (language, block) in &document.blocks {
            if let Err(failure) = self.check_block(document, language, block) {
                self.fail(&document.name, block, &failure);
            }
        }
        for mention in &document.mentions {
            let checked = match mention.text.strip_prefix("make ") {
                Some(_) => check_make(&self.makefile, &mention.text),
                None if mention.text == INTERNAL => Ok(()),
                None => help.check(&mention.text),
            };
            if let Err(failure) = checked {
                self.fail(&mention.place, &mention.text, &failure);
            }
        }
    }

    fn run(&self, document: &Document) {
        let script = self.script(document);
        let prepare = |scripts: &Self, is_before: &dyn Fn(&str) -> bool| {
            for (name, before, commands) in PREPARATIONS {
                if *name == document.name && is_before(before) {
                    commands.iter().for_each(|command| drop(scripts.shell(&script, command).ok()));
                }
            }
        };
        prepare(self, &str::is_empty);
        for command in &document.commands {
            prepare(self, &|before| !before.is_empty() && command.text.starts_with(before));
            if let Err(failure) = self.run_command(document, &script, command) {
                self.fail(&command.place, &command.text, &failure);
            }
        }
    }

    /// Creates the tenant and the files of a document. README.md and the text of `up` get those
    /// that `up` made.
    fn script(&self, document: &Document) -> Script {
        if matches!(document.name.as_str(), "README.md" | "welcome") {
            return Script { folder: self.installation.root.clone(), key: None };
        }
        let name = document.name.trim_start_matches("docs/").trim_end_matches(".md");
        // Also that of a tenant.
        let name = &name.replace('/', "-");
        let folder = self.installation.root.join(name);
        fs::create_dir_all(folder.join("projects")).unwrap();
        for (file, content) in FILES {
            fs::write(folder.join(file), content).unwrap();
        }
        for (name, begins, file) in BLOCKS.iter().filter(|(name, ..)| *name == document.name) {
            let block = document.blocks.iter().find(|(_, block)| block.starts_with(begins));
            let (_, block) = block.unwrap_or_else(|| panic!("{name} has no block for {file}"));
            fs::write(folder.join(file), block).unwrap();
        }
        // A request that fails ends curl with an error.
        fs::write(folder.join(".curlrc"), "fail\nsilent\nshow-error\n").unwrap();
        let tenant = self.installation.json(&["tenants", "create", name]);
        Script { folder, key: tenant["secret"].as_str().map(str::to_owned) }
    }

    fn run_command(
        &self,
        document: &Document,
        script: &Script,
        command: &DocumentCommand,
    ) -> Result<(), String> {
        let shell = Shell::new(&command.text);
        let exception = EXCEPTIONS
            .iter()
            .find(|(name, begins, ..)| *name == document.name && shell.plain.starts_with(begins));
        if let Some((name, begins, ..)) = exception {
            lock(&self.results).used.insert((name, begins));
        }
        let treatment =
            exception.map_or(Treatment::ExitsWith(0), |(_, _, treatment, _)| *treatment);
        if treatment == Treatment::NotOurs {
            return Ok(());
        }
        if shell.programs == ["make"] {
            return check_make(&self.makefile, &shell.plain);
        }
        let is_known = |program: &String| {
            program == "holdfast"
                || program == "target/debug/holdfast"
                || PROGRAMS.contains(&program.as_str())
        };
        if let Some(unknown) = shell.programs.iter().find(|program| !is_known(program)) {
            return Err(format!("`{unknown}` is in no category of documents/cases.rs"));
        }

        let mut text = self.replace_placeholders(script, &command.text)?;
        match treatment {
            Treatment::PrintsConfig if text.contains("--print-config") => {}
            Treatment::PrintsConfig => {
                let begins = exception.map(|(_, begins, ..)| *begins).unwrap_or_default();
                text = text.replacen(begins, &format!("{begins} --print-config"), 1);
            }
            Treatment::Parsed => {
                text = format!("HOLDFAST_URL=http://127.0.0.1:1 HOLDFAST_API_KEY=hf_1_2 {text}")
            }
            Treatment::ExitsWith(_) | Treatment::NotOurs => {}
        }
        let preamble =
            command.preamble.join("\n").replace("cd ", &format!("cd {}/", repository().display()));
        let is_right = |output: &CommandOutput| match treatment {
            Treatment::ExitsWith(code) => output.code == Some(code),
            Treatment::Parsed => output.code.is_some_and(|code| code != 2),
            Treatment::PrintsConfig | Treatment::NotOurs => output.code == Some(0),
        };
        let mut output = self.shell(script, &format!("{preamble}\n{text}"));
        // A new webhook is known to the bridge within some seconds.
        let until = Instant::now() + Duration::from_secs(60);
        while shell.programs == ["curl"] && !is_right(&output) && Instant::now() < until {
            thread::sleep(Duration::from_millis(200));
            output = self.shell(script, &format!("{preamble}\n{text}"));
        }
        lock(&self.results).ran += 1;
        if is_right(&output) {
            return Ok(());
        }
        Err(format!("ran `{text}`: {:?}\n{}{}", output.code, output.out, output.err))
    }

    fn replace_placeholders(&self, script: &Script, text: &str) -> Result<String, String> {
        let plain = Shell::new(text).plain;
        let mut text = text.to_owned();
        for (begins, placeholder, replacement) in REPLACEMENTS {
            if plain.starts_with(begins) {
                text = text.replace(placeholder, replacement);
            }
        }
        for (at, port) in [("gateway", "18789"), ("gateway", "18790")] {
            let protocol = if port == "18789" { "http" } else { "grpc" };
            let address = self.state[at][protocol].as_str().unwrap().trim_start_matches("http://");
            text = text.replace(&format!("127.0.0.1:{port}"), address);
        }
        text = text.replace("$BRIDGE", self.state["bridge"]["http"].as_str().unwrap());
        for (begins, placeholder, list) in IDS {
            if !plain.starts_with(begins) || !text.contains(placeholder) {
                continue;
            }
            let listed = self.shell(script, &format!("{list} --output json"));
            if listed.code != Some(0) {
                return Err(format!("`{list}`: {}", listed.err));
            }
            let id = listed.json()[0]["id"].as_str().map(str::to_owned);
            let id = id.ok_or_else(|| format!("`{list}` lists nothing"))?;
            text = text.replace(placeholder, &id);
        }
        Ok(text)
    }

    fn shell(&self, script: &Script, text: &str) -> CommandOutput {
        let mut command = Command::new("bash");
        command.args(["-euc", text]).current_dir(&script.folder);
        self.installation.isolate(&mut command);
        command.env("PATH", &self.path).env("HOME", &script.folder).envs(VARIABLES.iter().copied());
        if let Some(key) = &script.key {
            command.env("HOLDFAST_API_KEY", key);
        }
        CommandOutput::new(command.output().unwrap(), &[text])
    }

    /// Checks a block without commands: settings must be accepted, Python must be well-formed.
    fn check_block(&self, document: &Document, language: &str, block: &str) -> Result<(), String> {
        let mut command = match language {
            "toml" => {
                let file = format!("{}.toml", document.name.replace('/', "-"));
                let file = self.installation.root.join(file);
                fs::write(&file, block).unwrap();
                let mut command = Command::new(HOLDFAST);
                self.installation.isolate(&mut command);
                command.args(["agent-runner", "--print-config"]).env("HOLDFAST_CONFIG", file);
                command
            }
            "python" => {
                let mut command = Command::new("python3");
                command.args(["-c", "import ast, sys; ast.parse(sys.argv[1])", block]);
                command
            }
            language if LANGUAGES.contains(&language) => return Ok(()),
            unknown => return Err(format!("blocks of `{unknown}` are in no category")),
        };
        let output = CommandOutput::new(command.output().unwrap(), &[language]);
        if output.code == Some(0) { Ok(()) } else { Err(output.err) }
    }
}

/// Checks that the targets of a `make` command exist.
fn check_make(makefile: &str, command: &str) -> Result<(), String> {
    for word in command.split_whitespace().skip(1).take_while(|word| !word.contains('=')) {
        let is_target = makefile.lines().any(|line| line.starts_with(&format!("{word}:")));
        if !is_target {
            return Err(format!("the Makefile has no target `{word}`"));
        }
    }
    Ok(())
}

/// Help texts of all commands, by their names after `holdfast`.
struct HelpTexts(BTreeMap<String, String>);

impl HelpTexts {
    fn read() -> Self {
        let mut texts = BTreeMap::new();
        let mut open = vec![String::new()];
        while let Some(path) = open.pop() {
            let words: Vec<&str> = path.split_whitespace().chain(["--help"]).collect();
            let help =
                CommandOutput::new(Command::new(HOLDFAST).args(&words).output().unwrap(), &words)
                    .ok();
            let commands = help.out.split("Commands:\n").nth(1).unwrap_or_default();
            for line in commands.lines().take_while(|line| !line.trim().is_empty()) {
                let name = line.split_whitespace().next().unwrap_or_default();
                let alias =
                    line.split("[aliases: ").nth(1).and_then(|rest| rest.split([',', ']']).next());
                let is_name = line.starts_with("  ") && !line.starts_with("   ") && name != "help";
                for name in is_name.then_some(name).into_iter().chain(alias) {
                    open.push(format!("{path} {name}").trim().to_owned());
                }
            }
            texts.insert(path, help.out);
        }
        assert!(texts.len() > 100, "only {} commands have help", texts.len());
        Self(texts)
    }

    /// Examples and mentions of all help texts.
    fn document(&self) -> Document {
        let mut whole = Document { name: "help".to_owned(), ..Document::default() };
        for (path, text) in &self.0 {
            let part = Document::of_help(&format!("holdfast {path} --help"), text);
            whole.commands.extend(part.commands);
            whole.mentions.extend(part.mentions);
        }
        assert!(!whole.commands.is_empty(), "no help text has an example");
        whole
    }

    /// Checks that the subcommand and the options of a mentioned command exist.
    fn check(&self, command: &str) -> Result<(), String> {
        let mut words = command.split_whitespace().skip(1).peekable();
        let mut path = String::new();
        while let Some(word) = words.peek() {
            let name = word.split(['|', '…']).next().unwrap_or_default();
            let longer = format!("{path} {name}").trim().to_owned();
            if !self.0.contains_key(&longer) {
                break;
            }
            path = longer;
            words.next();
        }
        let help = &self.0[&path];
        if help.contains("Commands:\n") && words.peek().is_some_and(|word| !word.starts_with('-')) {
            return Err(format!("`holdfast {path}` has no such command"));
        }
        for word in words.take_while(|word| *word != "--") {
            let word = word.trim_start_matches('[').trim_end_matches([']', '…']);
            let name = word.split('=').next().unwrap_or_default();
            if name.starts_with("--") && !help.contains(name) {
                return Err(format!("`holdfast {path}` has no option `{name}`"));
            }
        }
        Ok(())
    }
}
